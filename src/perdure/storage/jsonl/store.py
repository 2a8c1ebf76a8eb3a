"""The JSONL store: one session in one file of lines, which people can read, search and copy."""

import asyncio
import os
import time
import weakref
from collections.abc import Callable
from typing import Final, TypeVar

from perdure.base.errors import Error, InvalidValue, StorageError, StorageReadOnly
from perdure.storage.jsonl import content
from perdure.storage.jsonl.blobs import write_blobs
from perdure.storage.jsonl.check import check
from perdure.storage.jsonl.file import LineFile
from perdure.storage.jsonl.index import Index
from perdure.storage.jsonl.lines import SCHEMA_VERSION, Mark, compose
from perdure.storage.jsonl.opening import LOOP_BYTES, file_size, follow, look, open_for_writing
from perdure.storage.jsonl.reads import JsonlReads
from perdure.storage.jsonl.rewrite import is_due, rewrite
from perdure.storage.lock import OwnerLock
from perdure.storage.place import check_place, real_path
from perdure.storage.protocol import Durability
from perdure.storage.records import Batch, StorageHead
from perdure.storage.worker import Worker

T = TypeVar("T")

LOOP_FLUSH_SECONDS: Final = 0.002
"""While flushes take less than this, a commit flushes on the event loop: handing it over costs a part of that."""
FLUSH_WEIGHT: Final = 0.2
"""Share of the newest flush in the running mean of their durations."""
RETRY_FACTOR: Final = 1.5
"""After a rewriting that failed, the file grows by this before the next try."""
COMMIT_THREAD: Final = "perdure-jsonl"

_open: "weakref.WeakSet[JsonlStorage]" = weakref.WeakSet()


class JsonlStorage(JsonlReads):
    """A session in a file to which every commit appends one line; blobs lie in a folder beside it.

    `durability="power"`: a commit is flushed to the disk before it returns; progress commits ride along with the next.
    `"process"`: no commit is flushed: it survives the death of the process, not of the machine.
    `read_only`: reads beside an owner, takes no lock, never writes.

    An open reads the whole file once and keeps in memory where each record stands. A file of which more than half is
    garbage (values that newer ones replaced) is rewritten compactly at an open, and between two commits.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, durability: Durability = "power", read_only: bool = False
    ) -> None:
        if durability not in ("power", "process"):
            raise InvalidValue(f"durability {durability!r}", hint='"power" or "process"')
        self._path = real_path(path)
        super().__init__(self._path)
        self._durability: Durability = durability
        self._read_only = read_only
        self._lock = OwnerLock(self._path)
        self._worker = Worker(COMMIT_THREAD)
        self._busy: asyncio.Future[object] | None = None
        self._broken: Error | None = None
        self._flush_seconds = 2 * LOOP_FLUSH_SECONDS
        self._rewrite_above = 0

    @property
    def location(self) -> str:
        """The file's path, links resolved."""
        return self._path

    @property
    def lock(self) -> OwnerLock:
        """The ownership of this store, to publish a control address with."""
        return self._lock

    async def open(self) -> StorageHead:
        """Take ownership and begin a new epoch; with `read_only`, only look.

        A torn tail is cut off. Raises `StorageInUse`, `StorageReadOnly`, `StorageCorrupt` (with the offset), `TooNew`,
        `StorageFull`; each leaves the file as it was. Takes about a second for 100,000 entries, beside the event loop.
        """
        check_place(self._path, read_only=self._read_only)
        if self._index is not None:
            raise StorageError(f"{self._path} is already open here")
        if not self._read_only:
            self._lock.acquire()
        try:
            self._file, index = await self._beside(self._load, file_size(self._path))
        except BaseException:
            self._worker.stop()
            self._lock.release()
            raise
        self._index = index
        self._broken, self._rewrite_above = None, 0
        _open.add(self)
        return StorageHead(index.next_id, index.seq, index.epoch, SCHEMA_VERSION)

    async def commit(self, batch: Batch) -> int:
        """Store the batch whole or nothing of it; return its seq. Cancelling the caller does not cancel the commit."""
        while self._busy is not None:
            await asyncio.wait([self._busy])
        file, index = self._ready()
        if self._due(file, index):
            await self._rewrite(file, index)
            file, index = self._ready()
        line = self._write(file, index, batch)
        if not self._flushes(batch):
            self._adopt(file, index, line)
        elif self._flush_seconds < LOOP_FLUSH_SECONDS:
            self._flushed(file, index, line, self._flush(file))
        else:
            await self._apart(lambda: self._flush(file), lambda error: self._flushed(file, index, line, error))
        return batch.seq

    def commit_now(self, batch: Batch) -> bool:
        """Commit on the event loop if that needs no flush and no waiting; False: nothing happened."""
        file, index = self._ready()
        if self._busy is not None or self._flushes(batch) or self._due(file, index):
            return False
        self._adopt(file, index, self._write(file, index, batch))
        return True

    async def close(self) -> None:
        """Wait for the commit under way, flush, note that the store was closed, give up ownership. May be called twice.

        Cancelling the caller does not stop it half-way.
        """
        while self._busy is not None:
            await asyncio.wait([self._busy])
        if self._index is not None and not self._read_only and self._file is not None:
            await self._apart(self._finish, lambda _: self._stop())
        else:
            self._stop()

    def _load(self) -> tuple[LineFile, Index]:
        return look(self._path) if self._read_only else open_for_writing(self._path, self._durability)

    def _ready(self) -> tuple[LineFile, Index]:
        if self._file is None or self._index is None:
            raise StorageError(f"{self._path} is not open")
        if self._read_only:
            raise StorageReadOnly(f"{self._path} was opened read-only")
        if self._broken is not None:
            raise StorageError(
                f"an earlier commit to {self._path} failed with an open outcome; this one was not stored",
                hint="open the session anew",
            )
        return self._file, self._index

    def _now(self) -> Index:
        index = super()._now()
        if self._read_only and self._file is not None:
            self._file, self._index = follow(self._path, self._file, index)
            return self._index
        return index

    def _flushes(self, batch: Batch) -> bool:
        return self._durability == "power" and not batch.progress

    def _write(self, file: LineFile, index: Index, batch: Batch) -> bytes:
        """Append the batch's line. Raises for a batch that does not fit or finds no room: then nothing happened."""
        check(index, batch)
        records = content.encode_batch(batch)
        fresh = {blob.digest: blob for blob in batch.blobs if blob.digest not in index.blobs}
        if fresh:
            stored = write_blobs(self._path, list(fresh.values()), flush=self._durability == "power")
            records["blobs"] = [content.encode(one) for one in stored]
        line = compose(Mark(seq=batch.seq, next=batch.next_id, flushed=file.flushed), records)
        try:
            file.append(line)
        except Error as error:
            if error.certain != "not_stored":
                self._broken = error
            raise
        return line

    def _adopt(self, file: LineFile, index: Index, line: bytes) -> None:
        index.take(line, file.end - len(line))

    def _flush(self, file: LineFile) -> Error | None:
        began = time.perf_counter()
        try:
            file.flush(file.end)
        except Error as error:
            return error
        self._flush_seconds += FLUSH_WEIGHT * (time.perf_counter() - began - self._flush_seconds)
        return None

    def _flushed(self, file: LineFile, index: Index, line: bytes, error: Error | None) -> None:
        if error is not None:
            self._broken = error
            raise error
        self._adopt(file, index, line)

    def _due(self, file: LineFile, index: Index) -> bool:
        return file.end > self._rewrite_above and is_due(index, file.end)

    async def _rewrite(self, file: LineFile, index: Index) -> None:
        """Rewrite the file compactly; where that fails, it stays as it is, and is tried again when it has grown."""

        def land(done: tuple[LineFile, Index] | None) -> None:
            if done is None:
                self._rewrite_above = round(file.end * RETRY_FACTOR)
            else:
                self._file, self._index = done
                file.close()

        def work() -> tuple[LineFile, Index] | None:
            try:
                return rewrite(file, index)
            except (Error, OSError):
                return None

        await self._apart(work, land)

    async def _apart(self, job: Callable[[], T], land: Callable[[T], None]) -> None:
        """Run a job in the thread and `land` on the event loop, whether or not the caller still waits."""
        done: asyncio.Future[object] = asyncio.get_running_loop().create_future()

        def landed(result: T) -> None:
            self._busy = None
            try:
                land(result)
            except BaseException as error:
                done.set_exception(error)
                done.exception()  # seen: the caller may be gone
            else:
                done.set_result(None)

        self._busy = done
        self._worker.run(job, landed)
        await asyncio.shield(done)

    async def _beside(self, job: Callable[[], T], size: int) -> T:
        """Run a job that reads so many bytes: in the thread if that takes a while."""
        if size <= LOOP_BYTES:
            return job()
        found: list[T] = []

        def work() -> BaseException | None:
            try:
                found.append(job())
            except BaseException as error:
                return error
            return None

        def land(error: BaseException | None) -> None:
            if error is not None:
                raise error

        await self._apart(work, land)
        return found[0]

    def _finish(self) -> None:
        """Everything reaches the disk, and a line says so: damage before it can be no torn tail."""
        file, index = self._file, self._index
        if file is None or index is None or self._broken is not None:
            return
        try:
            file.flush(file.end)
            file.append(compose(Mark(closed=True, flushed=file.end), {}))
        except Error:
            return  # what was acknowledged is as durable as promised; only the note is missing

    def _stop(self) -> None:
        _open.discard(self)
        file, self._file, self._index = self._file, None, None
        try:
            if file is not None:
                file.close()
        finally:
            self._lock.release()
            self._worker.stop()

    def _leave_behind(self) -> None:
        """In a forked child: this store is the parent's."""
        if self._file is not None:
            self._file.close()
        self._file = self._index = self._busy = None
        self._worker = Worker(COMMIT_THREAD)


def _leave_all_behind() -> None:
    for store in list(_open):
        store._leave_behind()
    _open.clear()


os.register_at_fork(after_in_child=_leave_all_behind)
