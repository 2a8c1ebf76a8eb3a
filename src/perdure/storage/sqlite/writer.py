"""The commit queue: what is queued together becomes one SQL transaction, and futures are done in order."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

import apsw

from perdure.base.errors import Error, StorageRejected
from perdure.storage.records import Batch
from perdure.storage.sqlite.apply import BatchWriter, weight
from perdure.storage.sqlite.errors import no_room, translate, uncertain
from perdure.storage.worker import Worker

GROUP_BATCHES: Final = 256
"""Batches in one SQL transaction at most: bounds how long the first one waits for the last."""
LOOP_BYTES: Final = 256 * 1024
"""Batches above this are written by the thread: copying them would stall the event loop for about a millisecond."""
GATHER_TICKS: Final = 2
"""Rounds of the event loop without a new batch after which a flush begins: whoever is ready gets into it."""

LONE_GROUPS: Final = 4
"""After as many flushes with one batch each, the next ones begin at once: there is nobody to wait for."""
PROBE_GROUPS: Final = 16
"""Among those, each so manieth gathers all the same, to see whether others commit by now."""

LOOP_FLUSH_SECONDS: Final = 0.002
"""While flushes take less than this, a lone commit flushes on the event loop: handing it over costs a part of that, and
nobody else was ready to commit meanwhile."""
FLUSH_WEIGHT: Final = 0.2
"""Share of the newest flush in the running mean of their durations."""

FLUSHED: Final = "PRAGMA synchronous=FULL"
UNFLUSHED: Final = "PRAGMA synchronous=NORMAL"

Group = list[tuple[Batch, "asyncio.Future[int]"]]


class Outcome(NamedTuple):
    """What became of a group: its first `stored` batches are stored; the others got the error."""

    stored: int
    error: Error | None = None
    broken: bool = False


class Writer:
    """The only one who writes. Statements run on the event loop, which costs microseconds; flushes, waits for a lock
    and large batches run in a thread, and meanwhile the queue grows into the next group.
    """

    def __init__(self, batches: BatchWriter, worker: Worker, *, flush: bool, busy_ms: int, where: str) -> None:
        self._batches = batches
        self._connection = batches.connection
        self._execute = batches.connection.cursor().execute
        self._worker = worker
        self._flush = flush
        self._busy_ms = busy_ms
        self._where = where
        self._queue: deque[tuple[Batch, asyncio.Future[int]]] = deque()
        self._busy = False
        self._gathering = False
        self._lone = 0
        self._level = ""
        self._flush_seconds = 2 * LOOP_FLUSH_SECONDS
        self._broken: Error | None = None
        self._idle: asyncio.Event = asyncio.Event()
        self._idle.set()
        self._connection.set_busy_timeout(0)

    @property
    def idle(self) -> bool:
        """Nothing queued, nothing under way."""
        return not self._busy and not self._queue

    async def settle(self) -> None:
        """Wait until everything queued has its outcome."""
        while not self.idle:
            self._idle.clear()
            await self._idle.wait()

    async def aside(self, job: Callable[[apsw.Connection], None]) -> None:
        """Run a job on the connection, in the thread, between two commits; those that come meanwhile wait."""
        await self.settle()
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def landed(_: None) -> None:
            self._busy = False
            if not over.done():
                over.set_result(None)
            if self._queue and not self._gathering:
                self._start()
            elif self.idle:
                self._idle.set()

        self._busy = True
        self._worker.run(lambda: job(self._connection), landed)
        await over

    def commit_now(self, batch: Batch) -> bool:
        """Commit on the spot, if that needs no flush and no waiting; False: it must be queued."""
        if self._flush or self._busy or self._queue or self._broken is not None or weight(batch) > LOOP_BYTES:
            return False
        outcome = self._transact([batch], False, 0)
        if outcome is None:
            return False
        self._settle_outcome(outcome)
        if outcome.error is not None:
            raise outcome.error
        return True

    def put(self, batch: Batch) -> "asyncio.Future[int]":
        """Queue a batch."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._queue.append((batch, future))
        if not self._busy and not self._gathering:
            self._start()
        return future

    def _start(self) -> None:
        waits = self._lone < LONE_GROUPS or self._lone % PROBE_GROUPS == 0
        if self._flush and waits and not self._queue[0][0].progress:
            self._gathering = True
            self._gather(len(self._queue), GATHER_TICKS)
        else:
            self._next()

    def _gather(self, seen: int, ticks: int) -> None:
        length = len(self._queue)
        ticks = GATHER_TICKS if length > seen else ticks - 1
        if ticks > 0 and length < GROUP_BATCHES:
            asyncio.get_running_loop().call_soon(self._gather, length, ticks)
        else:
            self._gathering = False
            self._next()

    def _next(self) -> None:
        """Write the next group. Groups that need no waiting follow each other at once."""
        while self._queue and not self._busy:
            group = [self._queue.popleft() for _ in range(min(len(self._queue), GROUP_BATCHES))]
            if self._broken is not None:
                self._resolve(group, Outcome(0, _closed_off(self._where)))
            else:
                self._write_group(group)
        if self.idle:
            self._idle.set()

    def _write_group(self, group: Group) -> None:
        batches = [batch for batch, _ in group]
        flush = self._flush and not all(batch.progress for batch in batches)
        if flush:
            self._lone = self._lone + 1 if len(batches) == 1 else 0
        if sum(map(weight, batches)) <= LOOP_BYTES:
            outcome = self._begin_flush(group, batches) if flush else self._transact(batches, False, 0)
            if outcome is not None:
                self._resolve(group, outcome)
            if outcome is not None or self._busy:
                return
        self._busy = True
        self._worker.run(lambda: self._transact(batches, flush, self._busy_ms), lambda done: self._landed(group, done))

    def _landed(self, group: Group, outcome: Outcome) -> None:
        self._busy = False
        self._resolve(group, outcome)
        if self._queue and not self._gathering:
            self._start()
        elif self.idle:
            self._idle.set()

    def _begin_flush(self, group: Group, batches: list[Batch]) -> Outcome | None:
        """Write on the event loop and let the thread commit. None: it is at that, or somebody holds the lock.

        A commit that nobody else waits for is flushed here, while the disk is quick.
        """
        before = self._batches.seq, self._batches.next_id
        try:
            self._begin(True)
        except apsw.BusyError:
            return None
        except Exception as error:
            return self._no_effect(error, before)
        done, refused = self._write(batches, before)
        if refused is not None and done == 0:
            return refused
        stored = Outcome(done, None if refused is None else refused.error)
        if len(batches) == 1 and not self._queue and self._flush_seconds < LOOP_FLUSH_SECONDS:
            return self._commit(before, stored)
        self._busy = True
        self._worker.run(lambda: self._commit(before, stored), lambda outcome: self._landed(group, outcome))
        return None

    def _transact(self, batches: list[Batch], flush: bool, busy_ms: int) -> Outcome | None:
        """One SQL transaction from begin to end. None: somebody else holds the lock and `busy_ms` is 0."""
        before = self._batches.seq, self._batches.next_id
        try:
            if busy_ms:
                self._connection.set_busy_timeout(busy_ms)
            try:
                self._begin(flush)
            finally:
                if busy_ms:
                    self._connection.set_busy_timeout(0)
        except apsw.BusyError as error:
            return self._no_effect(error, before) if busy_ms else None
        except Exception as error:
            return self._no_effect(error, before)
        done, refused = self._write(batches, before)
        if refused is not None and done == 0:
            return refused
        return self._commit(before, Outcome(done, None if refused is None else refused.error))

    def _begin(self, flush: bool) -> None:
        level = FLUSHED if flush else UNFLUSHED
        if level != self._level:
            self._connection.execute(level)
            self._level = level
        self._execute("BEGIN IMMEDIATE")

    def _write(self, batches: list[Batch], before: tuple[int, int]) -> tuple[int, Outcome | None]:
        """Write batches into the open transaction up to the first that is refused; none left: it is rolled back."""
        done = 0
        try:
            for batch in batches:
                self._batches.write(batch)
                done += 1
            self._batches.move_head()
        except Exception as error:
            outcome = self._no_effect(error, before)
            if done == 0 or outcome.broken:
                return 0, outcome
            # The batches before the refused one were good: write them again, alone.
            try:
                self._execute("BEGIN IMMEDIATE")
            except Exception as again:
                return 0, self._no_effect(again, before)
            kept, failed = self._write(batches[:done], before)
            return (0, failed) if failed is not None else (kept, outcome)
        return len(batches), None

    def _commit(self, before: tuple[int, int], stored: Outcome) -> Outcome:
        began = time.perf_counter()
        try:
            self._execute("COMMIT")
        except Exception as error:
            return self._commit_failed(error, before)
        if self._level == FLUSHED:
            self._flush_seconds += FLUSH_WEIGHT * (time.perf_counter() - began - self._flush_seconds)
        return stored

    def _commit_failed(self, error: Exception, before: tuple[int, int]) -> Outcome:
        """A write that found no room or no lock left no commit behind once rolled back; any other failure may have."""
        harmless = isinstance(error, apsw.BusyError) or no_room(error, self._connection)
        if harmless:
            outcome = self._no_effect(error, before)
            if not outcome.broken:
                return outcome
        else:
            self._roll_back(before)
        return Outcome(0, uncertain(error, self._where), broken=True)

    def _no_effect(self, error: Exception, before: tuple[int, int]) -> Outcome:
        ours = translate(error, self._connection, self._where)
        if not self._roll_back(before):
            return Outcome(0, uncertain(error, self._where), broken=True)
        return Outcome(0, ours)

    def _roll_back(self, before: tuple[int, int]) -> bool:
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            self._batches.take_back(*before)
        except Exception:
            return False
        return not self._connection.in_transaction

    def _settle_outcome(self, outcome: Outcome) -> None:
        if outcome.broken and self._broken is None:
            self._broken = outcome.error

    def _resolve(self, group: Group, outcome: Outcome) -> None:
        self._settle_outcome(outcome)
        for place, (batch, future) in enumerate(group):
            if future.done():
                continue  # cancelled by the one who waited: the commit stands all the same
            if place < outcome.stored:
                future.set_result(batch.seq)
            elif place == outcome.stored or outcome.broken or not isinstance(outcome.error, StorageRejected):
                assert outcome.error is not None
                future.set_exception(outcome.error)
            else:
                future.set_exception(StorageRejected(f"commit {batch.seq} was queued behind one that was refused"))


def _closed_off(where: str) -> StorageRejected:
    return StorageRejected(
        f"an earlier commit to {where} failed with an open outcome; this one was not stored",
        hint="open the session anew",
    )
