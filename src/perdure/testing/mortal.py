"""A store whose process dies at a given commit, or is watched at each of them."""

import asyncio
from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec

from perdure.base.errors import StorageRejected
from perdure.storage.protocol import ImmediateStorage, PipelinedStorage, Storage
from perdure.storage.records import Batch, StorageHead
from perdure.testing.dump import Dump, dump
from perdure.testing.reopening import ForwardedReads

When = Literal["before", "after", "unflushed"]

LAST_TICKS: Final = 60
"""Rounds of the event loop that a process still lives while a commit is on its way: enough for all that is ready."""


class Stop(msgspec.Struct, frozen=True):
    """Where a process dies: at its commit number `commit`, counted from 1.

    `before`: the commit is not stored. `after`: it is stored, and nobody was told. `unflushed`: it is on its way and
    never arrives, while everything that does not wait for it goes on; then the process dies.
    """

    commit: int
    when: When

    def __str__(self) -> str:
        return f"{self.when} commit {self.commit}"


class ProcessDied(BaseException):
    """The simulated process has died. No `except Exception` may catch it: nothing runs in a dead process."""


class _Grave:
    """What a dead process finds instead of its store."""

    def __getattr__(self, name: str) -> Any:
        raise ProcessDied(f"the process has died, and asked for {name}")


class MortalStorage(ForwardedReads):
    """Counts the commits that go to another store, and dies at one of them; `died` is then called, once.

    `stored` holds every batch that the other store took, `at_open` all that it held when it was opened, `head` where
    it stood then. `watch` is called before each commit, and after it, before anybody is told.
    """

    head: StorageHead

    def __init__(
        self,
        inner: Storage,
        stop: Stop | None,
        died: Callable[[], None],
        watch: Callable[[Stop], None] = lambda stop: None,
    ) -> None:
        super().__init__(inner)
        self.real = inner
        self.commits = 0
        self.in_flight = 0
        self.dead = False
        self.stored: list[Batch] = []
        self.at_open: Dump = {}
        self.handed: list[Batch] = []
        """Every batch that was given to the other store, whether it has told already what became of it or not."""
        self._watch = watch
        self._lost: list[asyncio.Future[int]] = []
        self._stop = stop
        self._died = died
        self._pipeline = inner if isinstance(inner, PipelinedStorage) else None
        self._immediate = inner if isinstance(inner, ImmediateStorage) else None

    @property
    def location(self) -> str:
        """Where the store lies, for people."""
        return self.real.location

    @property
    def pipelined(self) -> bool:
        """Whether the other store is."""
        return self._pipeline is not None and self._pipeline.pipelined

    @property
    def threaded(self) -> bool:
        """Whether threads may do some of its work."""
        return self._immediate is not None or self._pipeline is not None

    async def open(self) -> StorageHead:
        """Open the store and remember what it holds."""
        self.head = await self.real.open()
        self.at_open = await dump(self.real)
        return self.head

    async def commit(self, batch: Batch) -> int:
        """Commit, or die."""
        reached = self._count()
        number = self.commits
        self.in_flight += 1
        try:
            if reached == "unflushed":
                return await self._never()
            self.handed.append(batch)
            seq = await self.real.commit(batch)
        except StorageRejected:
            self.handed = [kept for kept in self.handed if kept is not batch]
            raise
        finally:
            self.in_flight -= 1
        self._took(batch, number)
        if reached == "after":
            self.die()
        return seq

    def commit_now(self, batch: Batch) -> bool:
        """Commit on the spot where the other store can, or die."""
        if self._immediate is None or (self._next() and self._stop is not None and self._stop.when == "unflushed"):
            return False
        reached = self._count()
        if not self._immediate.commit_now(batch):
            self.commits -= 1  # `commit` is asked next, and counts it
            return False
        self.handed.append(batch)
        self._took(batch, self.commits)
        if reached == "after":
            self.die()
        return True

    def enqueue(self, batch: Batch) -> "asyncio.Future[int]":
        """Hand the batch on, or die."""
        assert self._pipeline is not None
        reached = self._count()
        self.in_flight += 1
        if reached == "unflushed":
            never: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            self._lost.append(never)
            return never
        number = self.commits
        self.handed.append(batch)
        future = self._pipeline.enqueue(batch)
        future.add_done_callback(lambda done: self._landed(batch, number, done))
        if reached == "after":
            self.die()
        return future

    async def close(self) -> None:
        """Close the store."""
        self._check_alive()
        await self.real.close()

    def die(self) -> None:
        """The process dies now: every further use of the store raises `ProcessDied`."""
        if not self.dead:
            self.dead = True
            self.inner = _Grave()
            self._died()
            for future in self._lost:
                if not future.done():
                    future.set_exception(ProcessDied("the process has died"))
        self._check_alive()

    def _next(self) -> bool:
        return self._stop is not None and self.commits + 1 >= self._stop.commit

    def _count(self) -> When | None:
        """Count a commit. Tells how this one is to end; dies if it is not even to be stored."""
        self._check_alive()
        self.commits += 1
        stop = self._stop
        self._watch(Stop(self.commits, "before"))
        if stop is None or self.commits < stop.commit:
            return None
        if stop.when == "before":
            self.die()
        if stop.when == "unflushed" and self.commits == stop.commit:
            asyncio.get_running_loop().call_soon(self._linger, LAST_TICKS)
        return stop.when

    def _linger(self, ticks: int) -> None:
        if ticks > 0:
            asyncio.get_running_loop().call_soon(self._linger, ticks - 1)
            return
        try:
            self.die()
        except ProcessDied:
            return

    async def _never(self) -> int:
        await asyncio.get_running_loop().create_future()
        raise AssertionError("a commit that never arrives has arrived")

    def _landed(self, batch: Batch, number: int, done: "asyncio.Future[int]") -> None:
        self.in_flight -= 1
        if done.cancelled() or done.exception() is not None:
            self.handed = [kept for kept in self.handed if kept is not batch]
        else:
            self._took(batch, number)

    def _took(self, batch: Batch, number: int) -> None:
        self.stored.append(batch)
        if not self.dead:
            self._watch(Stop(number, "after"))

    def _check_alive(self) -> None:
        if self.dead:
            raise ProcessDied("the process has died")
