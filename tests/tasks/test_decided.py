"""What each decision does when a task really runs."""

from typing import Any

import pytest

from perdure.base.errors import StorageRejected
from perdure.base.ids import TaskId
from perdure.session.documents import Document
from perdure.storage.memory import MemoryStorage
from perdure.storage.records import Batch
from perdure.tasks.decisions import Next
from perdure.tasks.definition import phase, task
from perdure.tasks.outcomes import Aborted, Completed, Failed, Faulted
from perdure.tasks.runtime import TaskRun
from perdure.testing.clock import settle
from tests.tasks.living import Living

Log: Document[list[Any]] = Document("t.log", list[Any], scope="session", initial=list)


@task("t.leaf")
class Leaf:
    """Ends as it is told."""

    how: str = "complete"

    @phase(first=True)
    async def end(self, run: TaskRun) -> Next[Any]:
        """Ends."""
        if self.how == "raise":
            raise ZeroDivisionError("boom")
        if self.how == "sleep":
            return run.sleep(self.again, until=run.now() + 100)
        ends: dict[str, Any] = {"complete": run.complete, "fail": run.fail, "aborted": run.aborted}
        return ends[self.how]("x")  # type: ignore[no-any-return]

    @phase
    async def again(self, run: TaskRun) -> Next[Any]:
        """Wakes."""
        return run.complete(type(run.wake).__name__)


@task("t.decider")
class Decider:
    """Decides on its run or in a transaction."""

    what: str
    on_tx: bool

    @phase(first=True)
    async def decide(self, run: TaskRun) -> Next[Any]:
        """The decision."""
        leaf = None
        if not self.on_tx:
            if self.what == "wait":
                async with run.transaction() as tx:
                    leaf = tx.create_task(Leaf())
            return self.take(run, run, leaf)
        async with run.transaction() as tx:
            (await tx.doc(Log)).append("decided")
            leaf = tx.create_task(Leaf()) if self.what == "wait" else None
            return self.take(tx, run, leaf)

    def take(self, on: Any, run: TaskRun, leaf: TaskId | None) -> Next[Any]:
        """One decision."""
        made: Next[Any] = {
            "goto": lambda: on.goto(self.last, said="gone"),
            "sleep": lambda: on.sleep(self.last, (), run.now() + 5, said="slept"),
            "wait": lambda: on.wait([leaf], "all_settled", self.last, said="waited"),
            "complete": lambda: on.complete({"a": 1}),
            "fail": lambda: on.fail({"message": "no", "code": "declined"}),
            "aborted": lambda: on.aborted("enough"),
        }[self.what]()
        return made

    @phase
    async def last(self, run: TaskRun, said: str) -> Next[Any]:
        """Where it goes on."""
        return run.complete([said, type(run.wake).__name__])


ENDS: dict[str, Any] = {
    "goto": Completed(["gone", "NoneType"]),
    "sleep": Completed(["slept", "Time"]),
    "wait": Completed(["waited", "Tasks"]),
    "complete": Completed({"a": 1}),
    "fail": Failed({"message": "no", "code": "declined"}),
    "aborted": Aborted("enough"),
}


@pytest.mark.parametrize("on_tx", [False, True])
@pytest.mark.parametrize("what", ENDS)
async def test_every_decision_on_a_run_and_in_a_transaction(what: str, on_tx: bool) -> None:
    living = await Living(Leaf, Decider).open()
    id = await living.start(Decider(what, on_tx))
    await settle()
    await living.clock.advance(5)
    assert await living.outcome(id) == ENDS[what]
    assert await living.session.snapshot(Log) == (["decided"] if on_tx else None)
    assert not living.reports
    await living.close()


@task("t.late")
class Late:
    """Raises after its decision is stored."""

    how: str

    @phase(first=True)
    async def begin(self, run: TaskRun) -> Next[Any]:
        """Decides, then raises."""
        async with run.transaction() as tx:
            if self.how == "goto":
                tx.goto(self.on)
            elif self.how == "sleep":
                tx.sleep(self.on, until=run.now() + 5)
            else:
                tx.complete("done")
        raise ZeroDivisionError

    @phase
    async def on(self, run: TaskRun) -> Next[Any]:
        """Goes on all the same."""
        return run.complete("done")


@pytest.mark.parametrize("how", ["goto", "sleep", "complete"])
async def test_a_raise_after_a_stored_decision_is_only_reported(how: str) -> None:
    living = await Living(Late).open()
    id = await living.start(Late(how))
    await settle()
    await living.clock.advance(5)
    assert await living.outcome(id) == Completed("done")
    assert [type(error) for _, error in living.reports] == [ZeroDivisionError]
    await living.close()


async def test_code_that_raises_ends_faulted_with_its_error() -> None:
    living = await Living(Leaf).open()
    assert await living.ran(Leaf("raise")) == Faulted({"message": "boom", "code": "ZeroDivisionError"})
    await living.close()


class Refusing(MemoryStorage):
    """Refuses every batch in which a task goes to sleep."""

    async def commit(self, batch: Batch) -> int:
        """Commit, or refuse."""
        if any(write.task.status == "sleeping" for write in batch.tasks):
            raise StorageRejected("too large")
        return await super().commit(batch)


async def test_a_decision_that_the_store_refuses_faults_the_task() -> None:
    living = await Living(Leaf, storage=Refusing()).open()
    ended = await living.ran(Leaf("sleep"))
    assert isinstance(ended, Faulted)
    assert ended.error["code"] == "storage_rejected"
    await living.close()
