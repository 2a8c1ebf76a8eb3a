"""The store in one SQLite file: `store.SqliteStorage`. May import the storage room and base only."""
