"""Access to models behind our own messages. Knows no session and no agent. May import base only."""
