"""The store in one SQLite file."""

from perdure.storage.sqlite.store import SqliteStorage

__all__ = ["SqliteStorage"]
