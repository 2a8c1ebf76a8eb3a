"""What plugs in: extensions of tools, sections, hooks, wraps and tasks; the registry; resolution of names.

May import tasks, models, env and below. `api` holds what extension code is handed.
"""
