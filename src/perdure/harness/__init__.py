"""What a host program holds: open a session, talk to conversations, act, inspect, close. May import agent and below."""
