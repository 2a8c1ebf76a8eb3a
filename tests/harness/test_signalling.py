"""Signals through the harness: from a program, as raw JSON, and from a submission that settles."""

from pathlib import Path
from typing import Any

import pytest

from perdure import (
    ROOT,
    Extension,
    InvalidDefinition,
    InvalidValue,
    Next,
    Registry,
    RequestConflict,
    Settled,
    Signal,
    SubmissionSettled,
    Task,
    TaskId,
    TaskRun,
    phase,
    task,
)
from perdure.harness.signalling import UnknownSignal
from perdure.testing.clock import settle
from perdure.testing.scripted_model import call
from tests.agent.kit import agent

Approval: Signal[bool] = Signal("app.approval", schema=bool)


@task("app.waiting")
class Waiting(Task[Any]):
    """Waits for one key and completes with what it holds."""

    signal: str = "approval"

    @phase(first=True)
    async def begin(self, run: TaskRun) -> Next[Any]:
        """Sleeps."""
        key = Approval.key("k") if self.signal == "approval" else SubmissionSettled.key("k")
        return run.sleep(self.woken, [key])

    @phase
    async def woken(self, run: TaskRun) -> Next[Any]:
        """Tells."""
        if self.signal == "approval":
            state = await run.read_signal(Approval, "k")
            return run.complete(state.value if state else None)
        settled = await run.read_signal(SubmissionSettled, "k")
        assert settled is not None
        return run.complete([settled.value.status, settled.value.answer, settled.value.reason])


def extension() -> Extension:
    return Extension("app", tasks=[Waiting], signals=[Approval])


async def started(harness: Any, task: Any) -> TaskId:
    async with harness.session.transaction() as tx:
        id: TaskId = tx.create_task(task, conversation=ROOT, background=True)
    await harness.resume()
    await settle()
    return id


async def test_a_program_delivers_and_the_task_goes_on() -> None:
    async with agent([], extension()) as (harness, _):
        id = await started(harness, Waiting())
        assert harness.wake() == (False, None)
        assert await harness.signal(id, Approval, "k", True) == "delivered"
        assert (await harness.tasks.wait(id)).result() is True
        assert await harness.signal(id, Approval, "k", True) == "closed"
        assert await harness.signal(77, Approval, "k", True) == "not_found"


@pytest.mark.parametrize("id", ["12", None, True, 1.0, b"1", [1]])
async def test_what_is_no_id_is_a_mistake_of_the_caller(id: Any) -> None:
    async with agent([], extension()) as (harness, _):
        with pytest.raises(InvalidValue, match="whole number"):
            await harness.signal(id, Approval, "k", True)


@pytest.mark.parametrize("id", [0, -1, 2**63, 2**70])
async def test_a_number_that_no_store_could_hold_is_no_task(id: int, tmp_path: Path) -> None:
    async with agent([], extension(), storage=str(tmp_path / "s.db")) as (harness, _):
        assert await harness.signal(id, Approval, "k", True) == "not_found"


async def test_the_name_of_a_signal_is_not_the_signal() -> None:
    async with agent([], extension()) as (harness, _):
        id = await started(harness, Waiting())
        with pytest.raises(InvalidDefinition, match="not a signal"):
            await harness.signal(id, "app.approval", "k", True)  # type: ignore[arg-type]


async def test_raw_json_is_checked_against_the_signal_of_that_name() -> None:
    async with agent([], extension()) as (harness, _):
        id = await started(harness, Waiting())
        assert await harness.signal_json(id, "app.approval", "k", "yes") == "invalid"
        assert await harness.signal_json(id, Approval, "k", {"forged": 1}) == "invalid"
        with pytest.raises(UnknownSignal) as caught:
            await harness.signal_json(id, "app.other", "k", True)
        assert caught.value.code == "unknown_signal"
        assert await harness.signal_json(id, "app.approval", "k", True) == "delivered"
        assert await harness.signal_json(id, "app.approval", "k", False) in ("duplicate", "closed")
        assert (await harness.tasks.wait(id)).result() is True


async def test_a_submission_tells_a_task_in_the_commit_that_settles_it() -> None:
    async with agent(["the answer"], extension()) as (harness, _):
        id = await started(harness, Waiting("settled"))
        root = await harness.root()
        submission = await root.submit("ask", notify=(id, "k"))
        settled: Settled = await submission.settled()
        assert (await harness.tasks.wait(id)).result() == ["done", settled.answer, None]


async def test_it_tells_of_a_withdrawn_one_too_and_nobody_is_no_trouble() -> None:
    async with agent(["never"], extension()) as (harness, _):
        id = await started(harness, Waiting("settled"))
        root = await harness.root()
        first = await root.submit("ask", notify=(TaskId(4711), "k"))
        second = await root.submit("and then", notify=(id, "k"))
        await root.abort()
        assert (await first.settled()).status == "unanswered"
        assert (await second.settled()).reason == "withdrawn"
        assert (await harness.tasks.wait(id)).result() == ["unanswered", None, "withdrawn"]


async def test_who_is_told_is_part_of_the_request() -> None:
    async with agent(["one"], extension()) as (harness, _):
        root = await harness.root()
        await root.submit("ask", request_id="r", notify=(TaskId(5), "k"))
        with pytest.raises(RequestConflict):
            await root.submit("ask", request_id="r", notify=(TaskId(6), "k"))


@pytest.mark.parametrize("notify", [(1,), ("1", "k"), (1, ""), (1, 2), "ab", (True, "k")])
async def test_a_notify_that_names_nobody_is_refused(notify: Any) -> None:
    async with agent([]) as (harness, _):
        with pytest.raises(InvalidValue):
            await (await harness.root()).submit("ask", notify=notify)


def test_two_signals_with_one_name_are_refused() -> None:
    other: Signal[str] = Signal("app.approval", schema=str)
    registry = Registry([extension()])
    with pytest.raises(InvalidDefinition, match=r"signal 'app\.approval' is taken"):
        registry.install(Extension("late", signals=[other]))
    registry.install(Extension("shares", signals=[Approval]))
    with pytest.raises(InvalidDefinition, match="twice"):
        Extension("both", signals=[other, Approval])
    with pytest.raises(InvalidDefinition, match="reserved"):
        Extension("mine", signals=[SubmissionSettled])


async def test_tools_and_hooks_read_the_keys_of_their_call() -> None:
    ext = extension()
    seen: list[Any] = []

    @ext.before_tool
    async def gate(ctx: Any, asked: Any) -> None:
        state = await ctx.read_signal(Approval, "k")
        seen.append(state)

    @ext.tool
    async def look(ctx: Any) -> str:
        """Look."""
        async with ctx.transaction() as tx:
            seen.append(await tx.signal(ctx.task_id, Approval, "k", True))
        state = await ctx.read_signal(Approval, "k")
        seen.append(state.value)
        return "looked"

    async with agent([call("look"), "done"], ext) as (harness, _):
        await (await (await harness.root()).submit("go")).wait()
    assert seen == [None, "delivered", True]
