"""Tasks across closes, crashes, changed code and time."""

import asyncio
from typing import Any

import pytest

from perdure.base.errors import InvalidValue, InvocationEnded, NotFound
from perdure.base.ids import ROOT, TaskId
from perdure.session.documents import Document, document_family
from perdure.storage.memory import MemoryStorage
from perdure.storage.records import Task as Record
from perdure.tasks.decisions import Next
from perdure.tasks.definition import StoredTask, phase, task
from perdure.tasks.outcomes import Aborted, Completed, Faulted, Orphaned
from perdure.tasks.runtime import TaskRun
from perdure.testing.clock import settle
from tests.tasks.living import Living

RUNS: list[Any] = []
KEPT: list[TaskRun] = []
Notes: Document[dict[str, Any]] = Document("l.notes", dict[str, Any], scope="task", initial=dict)
Pages: Document[dict[str, Any]] = document_family("l.pages", dict[str, Any], scope="task")


@pytest.fixture(autouse=True)
def _forget() -> None:
    RUNS.clear()
    KEPT.clear()


@task("l.worker")
class Worker:
    """Sleeps, then works until somebody stops it."""

    how: str = "run"

    @phase(first=True)
    async def begin(self, run: TaskRun) -> Next[Any]:
        """Parks first."""
        return run.sleep(self.work, until=run.now() + 10)

    @phase
    async def work(self, run: TaskRun) -> Next[Any]:
        """Works."""
        RUNS.append((type(run.wake).__name__, run.restarts))
        KEPT.append(run)
        if self.how == "checkpoint":
            async with run.transaction() as tx:
                tx.checkpoint(self.recover, n=1)
        while self.how != "complete":
            try:
                if self.how == "hold the line":
                    async with run.transaction():
                        await asyncio.Event().wait()
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if self.how != "stuck" or len(RUNS) > 9:
                    raise
                RUNS.append("ignored")
        return run.complete("done")

    @phase
    async def recover(self, run: TaskRun, n: int) -> Next[Any]:
        """Entered by later opens only."""
        return run.complete(["recovered", n, run.wake])

    async def abort(self, run: TaskRun) -> Next[Any]:
        """Tells that it ran."""
        RUNS.append("abort")
        return run.aborted()


async def working(how: str = "run", **more: Any) -> tuple[Living, TaskId]:
    """A session in which a worker works."""
    life = await Living(Worker, **more).open()
    id = await life.start(Worker(how))
    await settle()
    await life.clock.advance(10)
    assert RUNS[0] == ("Time", 0)
    return life, id


async def test_a_close_writes_back_with_the_wake_and_counts_no_restart() -> None:
    life, id = await working()
    for _ in range(5):
        life = await life.again(Worker)
        await settle()
    assert RUNS == [("Time", 0)] * 6
    assert not life.reports
    await life.close()
    assert life.storage._stored.tasks[id].status == "pending"  # type: ignore[attr-defined]


async def test_too_many_opens_that_find_it_running_fault_it() -> None:
    life, id = await working()
    for _ in range(3):
        life = await life.again(Worker, crash=True)
        await settle()
    assert [("Time", count) for count in range(4)] == RUNS
    life = await life.again(Worker, crash=True)
    ended = await life.outcome(id)
    assert isinstance(ended, Faulted)
    assert ended.error["code"] == "restart_limit"
    await life.close()


@pytest.mark.parametrize("crash", [False, True])
async def test_a_checkpoint_stays_in_the_invocation_and_is_entered_by_the_next_open(crash: bool) -> None:
    life, id = await working("checkpoint")
    assert await life.status(id) == "running"
    assert len(RUNS) == 1
    life = await life.again(Worker, crash=crash)
    assert await life.outcome(id) == Completed(["recovered", 1, None])
    await life.close()


async def test_run_code_can_do_nothing_after_its_end() -> None:
    life, id = await working("complete")
    await life.outcome(id)
    run = KEPT[0]
    for call in (run.now, run.transaction, lambda: run.complete(1), lambda: run.fail("x")):
        with pytest.raises(InvocationEnded):
            call()
    for waits in (run.memo("a"), run.memo("a", 1), run.outcomes([]), run.read(Notes, id)):
        with pytest.raises(InvocationEnded):
            await waits
    await life.close()


@pytest.mark.parametrize("how", ["stuck", "hold the line"])
async def test_code_that_does_not_stop_is_named_and_cut_off(how: str) -> None:
    life, id = await working("stuck")
    if how == "hold the line":
        held = asyncio.Event()

        async def hold() -> None:
            async with KEPT[0].transaction() as tx:
                await tx.doc(Notes, id)
                held.set()
                await asyncio.Event().wait()

        holder = asyncio.create_task(hold())
        await held.wait()
    assert await asyncio.wait_for(life.close(0.01), 1) == [f"task {id} (l.worker)"]
    with pytest.raises(InvocationEnded):
        KEPT[0].transaction()
    RUNS.extend(["over"] * 9)
    for invocation in life.tasks.scheduler.invocations.values():
        invocation.task.cancel()
    if how == "hold the line":
        holder.cancel()
    await settle()
    life = await Living(storage=life.storage, clock=life.clock).open()
    assert (await life.record(id)).status == "pending"
    assert await life.session.snapshot(Notes, id) is None
    await life.close()


async def test_a_close_aborts_nothing() -> None:
    life, id = await working()
    await life.close()
    assert "abort" not in RUNS
    life = await Living(storage=life.storage, clock=life.clock).open(resume=False)
    assert not (await life.record(id)).abort_requested
    await life.close()


async def test_memos_belong_to_the_first_writer_and_go_at_the_end() -> None:
    @task("l.memo")
    class Memo:
        @phase(first=True)
        async def begin(self, run: TaskRun) -> Next[Any]:
            RUNS.append((await run.memo("a"), await run.memo("a", len(RUNS)), await run.memo("a", 99)))
            if len(RUNS) == 1:
                await asyncio.Event().wait()
            with pytest.raises(InvalidValue):
                await run.memo("perdure.documents", 1)
            return run.complete()

    life = await Living(Memo).open()
    id = await life.start(Memo())
    await settle()
    life = await life.again(Memo, crash=True)
    assert await life.outcome(id) == Completed(None)
    assert RUNS == [(None, 0, 0), (0, 0, 0)]
    assert (await life.record(id)).memos is None
    await life.close()


@pytest.mark.parametrize("made_by", ["itself", "another"])
async def test_documents_of_a_task_retire_when_it_ends(made_by: str) -> None:
    life, id = await working()
    async with life.session.transaction() as tx:
        if made_by == "itself":
            tx.run = KEPT[0]
        (await tx.doc(Notes, id))["n"] = 1
        for key in "ab":
            await tx.doc(Pages, id, key=key, seed={"key": key})
    life = await life.again(Worker, crash=True)
    assert await life.session.snapshot(Notes, id) == {"n": 1}
    assert await life.session.document_keys(Pages, id) == ["a", "b"]
    await settle()
    await life.abort(id)
    assert await life.outcome(id) == Aborted()
    assert await life.session.snapshot(Notes, id) is None
    assert await life.session.document_keys(Pages, id) == []
    assert await life.storage.scan_documents("task", id) == []
    async with life.session.transaction() as tx:
        with pytest.raises(NotFound):
            await tx.doc(Notes, id)
    await life.close()


@task("l.worker", version=2)
class Newer:
    """The worker's next version."""

    how: str
    since: int

    @phase(first=True)
    async def begin(self, run: TaskRun) -> Next[Any]:
        """Begins."""
        return run.complete("new from the start")

    @phase
    async def work(self, run: TaskRun, n: int) -> Next[Any]:
        """Works."""
        return run.complete([self.since, n, type(run.wake).__name__])

    @staticmethod
    def migrate(stored: StoredTask, from_version: int) -> StoredTask:
        """From version 1."""
        if stored.input["how"] == "bad":
            raise KeyError
        return StoredTask({**stored.input, "since": from_version}, stored.phase, {"n": 7})


async def test_a_task_waits_for_its_code_and_goes_on_when_it_comes() -> None:
    life = await Living(Worker).open()
    id = await life.start(Worker())
    await settle()
    life = await life.again()
    await life.clock.advance(10)
    assert await life.status(id) == "pending"
    assert "l.worker" in life.tasks.scheduler.blocked[id]
    assert life.tasks.wake() == (False, None)
    life.catalog.install(Newer)
    life.tasks.code_changed()
    assert await life.outcome(id) == Completed([1, 7, "Time"])
    assert ((await life.record(id)).version, life.tasks.scheduler.blocked) == (2, {})
    await life.close()


async def test_a_failed_migration_and_newer_records_block_and_end_nothing() -> None:
    life = await Living(Worker).open()
    bad = await life.start(Worker("bad"))
    await settle()
    life = await life.again(Newer)
    good = await life.start(Newer("x", 5))
    assert await life.outcome(good) == Completed("new from the start")
    await life.clock.advance(10)
    assert await life.status(bad) == "pending"
    assert "migrating" in life.tasks.scheduler.blocked[bad]
    assert (await life.record(bad)).version == 1, "what could not be migrated stays as it was"
    await life.close()


async def test_newer_code_takes_over_at_the_next_phase() -> None:
    life = await Living(Worker).open()
    id = await life.start(Worker())
    await settle()
    life.catalog.install(Newer)
    await life.clock.advance(10)
    assert await life.outcome(id) == Completed([1, 7, "Time"])
    await life.close()


@pytest.mark.parametrize("how", ["by setting at resume", "by setting at abort", "by call"])
async def test_a_marked_task_without_code_is_orphaned_only_when_the_host_says_so(how: str) -> None:
    life = await Living(Worker).open()
    id = await life.start(Worker())
    await settle()
    life = await life.again()
    if how == "by setting at abort":
        life.tasks.orphans = lambda: True
    await life.abort(id)
    if how == "by call":
        assert await life.status(id) == "pending"
        assert await life.tasks.orphan_missing() == [id]
    elif how == "by setting at resume":
        life = await life.again(resume=False)
        life.tasks.orphans = lambda: True
        await life.tasks.resume()
    assert isinstance(await life.outcome(id), Orphaned)
    await life.close()


async def test_a_deadline_in_the_past_fires_once_after_an_open() -> None:
    life = await Living(Worker).open()
    id = await life.start(Worker("complete"))
    await settle()
    until = life.clock.now() + 10
    assert life.tasks.wake() == (False, until)
    await life.close()
    await life.clock.advance(1000)
    life = await Living(Worker, storage=life.storage, clock=life.clock).open(resume=False)
    await settle()
    assert (await life.status(id), life.tasks.wake()) == ("sleeping", (True, until))
    await life.tasks.resume()
    assert await life.outcome(id) == Completed("done")
    assert RUNS == [("Time", 0)]
    assert life.tasks.wake() == (False, None)
    await life.close()


async def test_wake_is_inactive_while_an_aborted_owner_only_waits_for_blocked_work() -> None:
    life = await Living(Worker).open()
    owner = await life.start(Worker())
    await settle()
    await life.start(Worker(), owner=owner)
    await settle()
    life = await life.again()
    await life.abort(owner)
    await life.clock.advance(10)
    assert await life.status(owner) == "pending"
    assert life.tasks.wake() == (False, None)
    await life.close()


class Counting(MemoryStorage):
    """Counts the whole tasks that are read."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[TaskId] = []

    async def task(self, id: TaskId) -> Record | None:
        """Read a task."""
        self.read.append(id)
        return await super().task(id)


async def test_an_open_reads_live_tasks_only() -> None:
    storage = Counting()
    life = await Living(Worker, storage=storage).open(resume=False)
    async with life.session.transaction() as tx:
        many = [tx.create_task(Worker(), conversation=ROOT) for _ in range(200)]
    async with life.session.transaction() as tx:
        for id in many:
            await tx.abort_task(id)
    await life.close()
    life = await Living(storage=storage).open()
    ended = await life.tasks.orphan_missing()
    assert len(ended) == 200
    await life.close()
    storage.read.clear()
    life = await Living(Worker, storage=storage).open()
    assert not storage.read
    assert not life.session.store.working.tasks
    await life.close()
