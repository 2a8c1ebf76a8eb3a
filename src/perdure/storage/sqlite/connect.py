"""Opening a SQLite file: what it is, whether it is ours, and the connections to it. Never changes what is not ours."""

import os
import struct
from typing import Final

import apsw

from perdure.base.errors import StorageCorrupt, StorageError, TooNew
from perdure.storage import percent
from perdure.storage.place import flush_folder
from perdure.storage.records import StorageHead
from perdure.storage.sqlite.errors import translate
from perdure.storage.sqlite.rows import Row
from perdure.storage.sqlite.statements import READS, WRITES

APPLICATION_ID: Final = 0x50455244
"""Marks the file as ours, also for the `file` command: "PERD"."""
SCHEMA_VERSION: Final = 1
LATER_INDEXES: Final = """
CREATE INDEX IF NOT EXISTS document_key ON document(scope_id, kind, key);
CREATE INDEX IF NOT EXISTS document_member ON document(scope_id, kind, key) WHERE retired IS NULL AND key IS NOT NULL;
"""
"""Indexes that came after the schema. An older program keeps them up without knowing them, so they need no version;
statements do not insist on them, since a store that is only read may lack them."""
STATEMENTS_CACHED: Final = 200
"""Prepared statements kept by a connection: more than there are."""
WAL_KEPT_BYTES: Final = 8 * 1024 * 1024
"""The write-ahead log is cut back to this size once it has been written into the file."""
READ_WAIT_MS: Final = 1000
"""How long a read waits in the rare moments (recovery, close of another process) when a reader must wait."""

MAGIC: Final = b"SQLite format 3\0"
HEADER_BYTES: Final = 100
HEADER: Final = struct.Struct(">16x H 6x I I 28x I 4x I 20x I 4x")
"""Page size, change counter, pages, user version, application id, change counter for which the pages are right."""

READ_WRITE: Final = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
READ_ONLY: Final = apsw.SQLITE_OPEN_READONLY


def inspect(path: str) -> None:
    """Look at the file's header before any connection may change a byte. Reads nothing else, takes no locks.

    The engine reads it, not `open`: closing any other descriptor of the file would drop the locks of this process.
    """
    if not os.path.exists(path) or os.path.getsize(path) == 0:
        return
    file = apsw.VFSFile("", path, [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0])
    try:
        header, size = file.xRead(HEADER_BYTES, 0), file.xFileSize()
    finally:
        file.xClose()
    if len(header) < HEADER_BYTES or not header.startswith(MAGIC):
        raise StorageCorrupt(f"{path} is no store of ours, or damaged from its first byte", hint="choose another file")
    page, changes, pages, version, application, valid_for = HEADER.unpack_from(header)
    _check_mark(application, version, path)
    log = path + "-wal"
    if os.path.exists(log) and os.path.getsize(log) > 0:
        return  # the log may hold what the file lacks
    if changes == valid_for and size < pages * (65536 if page == 1 else page):
        raise StorageCorrupt(f"{path} has been cut off: {size} bytes of {pages * page}", hint="restore it from a copy")


def check_ours(connection: apsw.Connection, path: str) -> bool:
    """Whether the schema is there; False for an empty database. Raises for what is foreign or newer."""
    version = connection.pragma("user_version")
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if tables is None or tables[0] == 0:
        return False
    _check_mark(connection.pragma("application_id"), version, path)
    return True


def _check_mark(application: object, version: object, path: str) -> None:
    if application != APPLICATION_ID:
        raise StorageCorrupt(f"{path} is a SQLite database of another program", hint="choose another file")
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise TooNew(
            f"{path} was written by a newer version (schema {version}, this one knows {SCHEMA_VERSION})",
            hint="update perdure",
        )


def connect_writer(path: str, schema: str) -> tuple[apsw.Connection, StorageHead]:
    """The connection that writes, on a store that is there now and in a new epoch. The caller owns the store's lock."""
    connection: apsw.Connection | None = None
    try:
        inspect(path)
        created = not os.path.exists(path)
        connection = apsw.Connection(path, flags=READ_WRITE, statementcachesize=STATEMENTS_CACHED)
        connection.set_busy_timeout(READ_WAIT_MS)
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # until it is certain that the file is ours
        ready = check_ours(connection, path)
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
        connection.pragma("synchronous", "FULL")
        if not ready:
            connection.pragma("application_id", APPLICATION_ID)
            connection.pragma("user_version", SCHEMA_VERSION)
        if connection.pragma("journal_mode", "WAL") != "wal":
            raise StorageError(f"{path} cannot have a write-ahead log here", hint="use a local disk")
        connection.wal_autocheckpoint(0)
        connection.pragma("journal_size_limit", WAL_KEPT_BYTES)
        head = _begin_epoch(connection, None if ready else schema)
        if created:
            flush_folder(os.path.dirname(path))
        return connection, head
    except BaseException as error:
        found = translate(error, connection, path)
        if connection is not None:
            connection.close(True)
        raise found from error


def connect_reader(path: str, *, read_only: bool) -> apsw.Connection:
    """A connection that only reads. With `read_only` it makes do with a file and a folder that may not be written."""
    connection: apsw.Connection | None = None
    try:
        if read_only:
            inspect(path)
        connection = apsw.Connection(path, flags=READ_ONLY, statementcachesize=STATEMENTS_CACHED)
        connection.set_busy_timeout(READ_WAIT_MS)
        try:
            ready = check_ours(connection, path)
        except (apsw.CantOpenError, apsw.ReadOnlyError):
            if not read_only or os.path.exists(path + "-wal"):
                raise
            # No log and no way to make one: nobody writes here, so the file alone is the store.
            connection.close(True)
            connection = apsw.Connection(
                f"file:{percent.encoded(os.fsencode(path))}?mode=ro&immutable=1",
                flags=READ_ONLY | apsw.SQLITE_OPEN_URI,
                statementcachesize=STATEMENTS_CACHED,
            )
            ready = check_ours(connection, path)
        if not ready:
            raise StorageCorrupt(f"{path} is empty: no store was ever completed there")
        return connection
    except BaseException as error:
        found = translate(error, connection, path)
        if connection is not None:
            connection.close(True)
        raise found from error


def read_head(connection: apsw.Connection) -> StorageHead:
    """Where the store stands."""
    row: Row | None = connection.execute(READS["head"]).fetchone()
    if row is None:
        raise StorageCorrupt("the store has lost its head")
    next_id, seq, epoch, schema_version = row
    newest: Row | None = connection.execute(READS["newest"]).fetchone()
    if newest is None:
        raise StorageCorrupt("the store does not tell its newest records")
    return StorageHead(max(next_id, newest[0] + 1), max(seq, newest[1]), epoch, schema_version)


def _begin_epoch(connection: apsw.Connection, schema: str | None) -> StorageHead:
    connection.execute("BEGIN IMMEDIATE")
    try:
        if schema is not None:
            connection.execute(schema).fetchall()
            connection.execute("INSERT INTO meta VALUES (1, ?, 1, 0, 0)", (SCHEMA_VERSION,))
        connection.execute(LATER_INDEXES).fetchall()
        connection.execute(WRITES["epoch"])
        head = read_head(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return head
