"""A session whose tasks run, on a clock that stands still until told to move."""

import asyncio
from typing import Any

from perdure.base.ids import ROOT, TaskId
from perdure.session.session import Session
from perdure.storage.memory import MemoryStorage
from perdure.storage.protocol import Storage
from perdure.storage.records import Task as Record
from perdure.tasks.definition import TaskDefinition, task_definition
from perdure.tasks.outcomes import Outcome
from perdure.tasks.tasks import Tasks
from perdure.tasks.transaction import TaskTransaction
from perdure.testing.clock import FakeClock, settle

TIMEOUT = 2.0
"""Seconds of real time after which a test that stands still fails."""


class Catalog:
    """The installed code, which may change."""

    def __init__(self, *classes: Any) -> None:
        self.known: dict[str, TaskDefinition] = {}
        self.install(*classes)

    def install(self, *classes: Any) -> None:
        """Add code, or put newer code in the place of older."""
        for each in classes:
            definition = task_definition(each)
            self.known[definition.kind] = definition

    def task(self, kind: str) -> TaskDefinition | None:
        """The code of a kind."""
        return self.known.get(kind)


class Living:
    """A session with its tasks."""

    def __init__(
        self, *classes: Any, storage: Storage | None = None, clock: FakeClock | None = None, **more: Any
    ) -> None:
        self.storage = storage or MemoryStorage()
        self.clock = clock or FakeClock()
        self.catalog = Catalog(*classes)
        self.session = Session(self.storage, transaction_type=TaskTransaction, clock=self.clock)
        self.reports: list[tuple[str, BaseException]] = []
        self.tasks = Tasks(self.session, self.catalog, report=lambda *said: self.reports.append(said), **more)

    async def open(self, *, resume: bool = True) -> "Living":
        """Open, and by default schedule."""
        await self.session.open()
        await self.tasks.open()
        if resume:
            await self.tasks.resume()
        return self

    async def close(self, timeout: float = 1.0) -> list[str]:
        """Close in good order."""
        stuck = await self.tasks.close(timeout)
        await self.session.close()
        return stuck

    async def again(self, *classes: Any, resume: bool = True, crash: bool = False, **more: Any) -> "Living":
        """The next process with this code: after a close, or after a crash with what was stored then."""
        storage = self.storage
        if crash:
            assert isinstance(storage, MemoryStorage)
            storage = storage.copy()
            await self.end()
        else:
            await self.close()
        return await Living(*classes, storage=storage, clock=self.clock, **more).open(resume=resume)

    async def end(self) -> None:
        """Stop what still runs, whatever the test has left behind."""
        self.tasks.scheduler.active, self.tasks.scheduler.closing = False, True
        for invocation in list(self.tasks.scheduler.invocations.values()):
            invocation.task.cancel()
        await settle()

    async def start(self, task: Any, **how: Any) -> TaskId:
        """Create a task, of the root conversation unless told otherwise."""
        async with self.session.transaction() as tx:
            if not how.keys() & {"owner", "conversation"}:
                how["conversation"] = ROOT
            return tx.create_task(task, **how)

    async def abort(self, id: TaskId, *, background: bool = False) -> bool:
        """Mark a task for abort."""
        async with self.session.transaction() as tx:
            return await tx.abort_task(id, background=background)

    async def outcome(self, id: TaskId) -> Outcome:
        """How the task ended; fails if it does not."""
        return await asyncio.wait_for(self.tasks.wait(id), TIMEOUT)

    async def ran(self, task: Any, **how: Any) -> Outcome:
        """Create a task and tell how it ended."""
        return await self.outcome(await self.start(task, **how))

    async def record(self, id: TaskId) -> Record:
        """The task's record as stored."""
        found = await self.storage.task(id)
        assert found is not None
        return found

    async def status(self, id: TaskId) -> str:
        """Its status, once everything that could run has run."""
        await settle()
        return (await self.record(id)).status
