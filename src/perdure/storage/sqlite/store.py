"""The SQLite store: one session in one file."""

import asyncio
import contextlib
import os
import threading
import time
import weakref
from typing import Final

import apsw

from perdure.base.errors import InvalidValue, StorageError, StorageReadOnly
from perdure.storage.lock import OwnerLock
from perdure.storage.place import check_place, real_path
from perdure.storage.protocol import Durability
from perdure.storage.records import Batch, StorageHead
from perdure.storage.sqlite.apply import BatchWriter
from perdure.storage.sqlite.connect import connect_reader, connect_writer, read_head
from perdure.storage.sqlite.reads import SqliteReads
from perdure.storage.sqlite.rows import SCOPE_NUMBER
from perdure.storage.sqlite.writer import Writer
from perdure.storage.worker import Worker

BUSY_SECONDS: Final = 10.0
"""How long a commit waits for another process that holds the file's write lock."""
SHRINK_BYTES: Final = 1024 * 1024
"""Free pages up to this are kept for what comes next."""
SHRINK_SECONDS: Final = 3.0
SHRINK_PAUSE_SECONDS: Final = 0.02
CHECKPOINT_PAGES: Final = 1000
"""Pages of 4 KiB in the write-ahead log after which it is written into the file, beside the commits."""
SCHEMA: Final = os.path.join(os.path.dirname(__file__), "schema.sql")
COMMIT_THREAD: Final = "perdure-commit"

_UNREADABLE: Final = "SELECT id FROM document WHERE retired IS NOT NULL AND rewindable = 0 AND scope = ?"

_open: "weakref.WeakSet[SqliteStorage]" = weakref.WeakSet()
_left_behind: list[object] = []
"""In a forked child: the parent's connections, kept so that the child never closes them."""


class SqliteStorage(SqliteReads):
    """A session in a SQLite file with a write-ahead log.

    `durability="power"`: a commit is flushed to the disk before it returns; progress commits ride along with the next.
    `"process"`: no commit is flushed: it survives the death of the process, not of the machine.
    `read_only`: reads beside an owner, takes no lock, never writes; `busy_timeout` in seconds.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Durability = "power",
        read_only: bool = False,
        busy_timeout: float = BUSY_SECONDS,
    ) -> None:
        if durability not in ("power", "process"):
            raise InvalidValue(f"durability {durability!r}", hint='"power" or "process"')
        self._path = real_path(path)
        super().__init__(self._path)
        self._flush = durability == "power"
        self._read_only = read_only
        self._busy_ms = max(1, round(busy_timeout * 1000))
        self._lock = OwnerLock(self._path)
        self._connection: apsw.Connection | None = None
        self._writer: Writer | None = None
        self._worker = Worker(COMMIT_THREAD)
        self._checkpoint: threading.Thread | None = None
        self._closing: asyncio.Future[None] | None = None
        self._checkpoint_at = CHECKPOINT_PAGES

    @property
    def location(self) -> str:
        """The file's path, links resolved."""
        return self._path

    @property
    def lock(self) -> OwnerLock:
        """The ownership of this store, to publish a control address with."""
        return self._lock

    @property
    def pipelined(self) -> bool:
        """True if a commit waits for a flush, so that it pays to go on meanwhile."""
        return self._flush and not self._read_only

    async def open(self) -> StorageHead:
        """Take ownership and begin a new epoch; with `read_only`, only look.

        Raises `StorageInUse`, `StorageReadOnly`, `StorageCorrupt`, `TooNew`; each leaves the file as it was.
        """
        check_place(self._path, read_only=self._read_only)
        if self._read_only:
            if self._reader is not None:
                raise StorageError(f"{self._path} is already open here")
            self._closing = None
            reader = connect_reader(self._path, read_only=True)
            self._begin_reading(reader)
            return read_head(reader)
        self._lock.acquire()
        self._closing = None
        try:
            connection, head = connect_writer(self._path, _schema())
            self._connection = connection
            self._begin_reading(connect_reader(self._path, read_only=False))
            connection.set_wal_hook(self._log_grew)
        except BaseException:
            self._stop()
            raise
        self._writer = Writer(
            BatchWriter(connection, head.seq, head.next_id),
            self._worker,
            flush=self._flush,
            busy_ms=self._busy_ms,
            where=self._path,
        )
        _open.add(self)
        return head

    async def commit(self, batch: Batch) -> int:
        """Store the batch whole or nothing of it; return its seq. Cancelling the caller does not cancel the commit."""
        if self.commit_now(batch):
            return batch.seq
        return await asyncio.shield(self._ready().put(batch))

    def commit_now(self, batch: Batch) -> bool:
        """Commit on the event loop if that needs no flush and no waiting; False: nothing happened."""
        return self._ready().commit_now(batch)

    def enqueue(self, batch: Batch) -> "asyncio.Future[int]":
        """Take the batch; the future is done in order, once it is as durable as promised."""
        return self._ready().put(batch)

    async def shrink(self) -> None:
        """Give back what nobody reads any more: the session's own documents that were retired, and free pages if they
        are most of the file. What such documents were at an earlier commit cannot be told after that. Commits wait
        meanwhile; killed in between, nothing has changed."""
        await self._ready().aside(_shrink)

    async def close(self) -> None:
        """Wait for commits under way, write the log into the file, give up ownership. May be called twice.

        Cancelling the caller does not stop it half-way.
        """
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        writer = self._writer
        if writer is not None:
            await writer.settle()
        self._writer = None
        # Writing a long log into the file takes a while; nobody else on the event loop should wait for that.
        await asyncio.to_thread(self._stop)

    def _ready(self) -> Writer:
        if self._writer is None:
            if self._read_only:
                raise StorageReadOnly(f"{self._path} was opened read-only")
            raise StorageError(f"{self._path} is not open")
        return self._writer

    def _stop(self) -> None:
        _open.discard(self)
        self._worker.stop()
        if self._checkpoint is not None:
            self._checkpoint.join()
            self._checkpoint = None
        self._stop_reading()
        connection, self._connection = self._connection, None
        try:
            if connection is not None:
                connection.set_wal_hook(None)
                _finish(connection)
        finally:
            self._lock.release()

    def _log_grew(self, connection: apsw.Connection, name: str, pages: int) -> int:
        """After each commit, in whichever thread made it. A checkpoint runs beside the commits, on a connection of its
        own; under commits without a pause it never sees the end of the log, so the first commit after it writes the
        few pages that came meanwhile. Then the log begins anew: it is quicker to flush where it need not grow."""
        if pages < self._checkpoint_at - CHECKPOINT_PAGES:
            self._checkpoint_at = CHECKPOINT_PAGES  # the log began anew
        if pages < self._checkpoint_at or (self._checkpoint is not None and self._checkpoint.is_alive()):
            return apsw.SQLITE_OK
        if self._checkpoint is None:
            self._checkpoint = threading.Thread(
                target=_checkpoint_file, args=(self._path,), name="perdure-checkpoint", daemon=True
            )
            self._checkpoint.start()
        else:
            self._checkpoint = None
            self._checkpoint_at = pages + CHECKPOINT_PAGES  # should a reader hold the log, the next round tries again
            with contextlib.suppress(apsw.Error):
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        return apsw.SQLITE_OK

    def _leave_behind(self) -> None:
        """In a forked child: this store is the parent's."""
        _left_behind.extend((self._connection, self._reader, self._worker, self._writer))
        self._connection = self._reader = self._words = self._writer = self._checkpoint = None
        self._worker = Worker(COMMIT_THREAD)


def _checkpoint_file(path: str) -> None:
    """Write the log into the file, beside the commits. A failure loses nothing: the next one tries again."""
    try:
        connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
    except apsw.Error:
        return
    try:
        connection.pragma("synchronous", "NORMAL")
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    except apsw.Error:
        return
    finally:
        connection.close(True)


def _shrink(connection: apsw.Connection) -> None:
    """Write the file anew without its free pages. A failure, such as of a full disk, loses nothing."""
    with contextlib.suppress(apsw.Error), connection:
        for table, column in (("revision", "document"), ("document", "id")):
            connection.execute(f"DELETE FROM {table} WHERE {column} IN ({_UNREADABLE})", (SCOPE_NUMBER["session"],))
    free, size = connection.pragma("freelist_count"), connection.pragma("page_count")
    if free * connection.pragma("page_size") < SHRINK_BYTES or free * 2 < size:
        return
    deadline, vacuumed = time.monotonic() + SHRINK_SECONDS, False
    while time.monotonic() < deadline:
        try:
            if not vacuumed:
                connection.execute("VACUUM")
                vacuumed = True
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            return
        except apsw.BusyError:
            time.sleep(SHRINK_PAUSE_SECONDS)  # another checkpoint is at it, or a reader
        except apsw.Error:
            return


def _finish(connection: apsw.Connection) -> None:
    """Write the log into the file and close. A failure loses nothing: the log stays and is read at the next open."""
    try:
        connection.set_busy_timeout(0)
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except apsw.Error:
        return
    finally:
        connection.close(True)


def _schema() -> str:
    with open(SCHEMA, encoding="utf-8") as file:
        return file.read()


def _leave_all_behind() -> None:
    for store in list(_open):
        store._leave_behind()
    _open.clear()


os.register_at_fork(after_in_child=_leave_all_behind)
