"""Where tools touch files and processes. Knows no session, no model. May import base only."""
