"""What faults a task: breaking the rules of decisions, and waits that could never end."""

import asyncio
from typing import Any

import pytest

from perdure.base.errors import InvalidDecision, Refused
from perdure.base.ids import ROOT, TaskId
from perdure.tasks.decisions import Next
from perdure.tasks.definition import phase, task
from perdure.tasks.outcomes import Faulted
from perdure.tasks.runtime import TaskRun
from perdure.testing.clock import settle
from tests.tasks.living import Living
from tests.tasks.test_decided import Leaf, Log


@task("t.above")
class WaitsAbove:
    """Waits for its owner."""

    owner: TaskId

    @phase(first=True)
    async def begin(self, run: TaskRun) -> Next[Any]:
        """Would never end."""
        return run.wait([self.owner], "all_settled", self.begin)


@task("t.wrong")
class Wrong:
    """Breaks a rule."""

    how: str

    @phase(first=True)
    async def begin(self, run: TaskRun) -> Any:
        """Breaks it."""
        return await BREAKS[self.how](self, run)

    @phase
    async def on(self, run: TaskRun, n: int = 0) -> Next[Any]:
        """Where it would go on."""
        return run.complete("went on")

    @phase
    async def child_ended(self, run: TaskRun, child: TaskId) -> Next[Any]:
        """Takes over its child's end."""
        outcome = (await run.outcomes([child]))[0]
        assert isinstance(outcome, Faulted)
        raise InvalidDecision(outcome.why)


async def nothing(self: Any, run: TaskRun) -> None:
    pass


async def other_value(self: Any, run: TaskRun) -> str:
    return "done"


async def same_phase(self: Any, run: TaskRun) -> Any:
    return run.goto(self.begin)


async def second(self: Any, run: TaskRun) -> Any:
    async with run.transaction() as tx:
        tx.goto(self.on)
        return tx.complete(1)


async def rolled_back(self: Any, run: TaskRun) -> Any:
    kept: Any = None
    try:
        async with run.transaction() as tx:
            kept = tx.complete(1)
            raise KeyError
    except KeyError:
        pass
    return kept


async def other_return(self: Any, run: TaskRun) -> Any:
    async with run.transaction() as tx:
        tx.sleep(self.on, until=run.now() + 1000)
    return run.complete(1)


async def later_commit(self: Any, run: TaskRun) -> Any:
    async with run.transaction() as tx:
        made: Any = tx.goto(self.on)
    async with run.transaction() as tx:
        await tx.doc(Log)
    return made


async def later_commit_swallowed(self: Any, run: TaskRun) -> Any:
    async with run.transaction() as tx:
        made: Any = tx.sleep(self.on, until=run.now() + 1000)
    try:
        async with run.transaction() as tx:
            await tx.doc(Log)
    except Refused:
        pass
    return made


async def later_decision(self: Any, run: TaskRun) -> Any:
    async with run.transaction() as tx:
        tx.goto(self.on)
    async with run.transaction() as tx:
        return tx.complete(1)


async def stale_transaction(self: Any, run: TaskRun) -> Any:
    async with run.transaction() as tx:
        await tx.doc(Log)
    await tx.doc(Log)


async def cancelled_await(self: Any, run: TaskRun) -> Any:
    inner = asyncio.ensure_future(asyncio.sleep(0))
    inner.cancel()
    await inner


async def no_json(self: Any, run: TaskRun) -> Any:
    return run.complete(object())


async def wait_itself(self: Any, run: TaskRun) -> Any:
    return run.wait([run.task_id], "all_settled", self.on)


async def wait_missing(self: Any, run: TaskRun) -> Any:
    return run.wait([TaskId(999)], "all_settled", self.on)


async def wait_nothing(self: Any, run: TaskRun) -> Any:
    return run.wait([], "all_settled", self.on)


async def wait_not_owned(self: Any, run: TaskRun) -> Any:
    async with run.transaction() as tx:
        other = tx.create_task(Leaf("sleep"), conversation=ROOT)
        return tx.wait([other], "fail_fast", self.on)


async def wait_ancestor(self: Any, run: TaskRun) -> Any:
    async with run.transaction() as tx:
        child = tx.create_task(WaitsAbove(run.task_id))
        return tx.wait([child], "all_settled", self.child_ended, child=child)


BREAKS: dict[str, Any] = {
    each.__name__: each
    for each in (
        nothing,
        other_value,
        same_phase,
        second,
        rolled_back,
        other_return,
        later_commit,
        later_commit_swallowed,
        later_decision,
        stale_transaction,
        cancelled_await,
        no_json,
        wait_itself,
        wait_missing,
        wait_nothing,
        wait_not_owned,
        wait_ancestor,
    )
}
CODES = {"stale_transaction": "invocation_ended", "cancelled_await": "CancelledError", "no_json": "invalid_value"}


@pytest.mark.parametrize("how", BREAKS)
async def test_a_broken_rule_faults_the_task(how: str) -> None:
    living = await Living(Leaf, Wrong, WaitsAbove).open()
    id = await living.start(Wrong(how))
    ended = await living.outcome(id)
    assert isinstance(ended, Faulted), ended
    assert ended.error["code"] == CODES.get(how, "invalid_decision")
    assert living.reports
    await settle()
    assert not living.tasks.scheduler.invocations
    await living.close()
