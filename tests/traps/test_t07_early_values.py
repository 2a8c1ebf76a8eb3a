"""A value for a live task is kept whenever it comes; the later sleep wakes at once, and once."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from perdure import Extension, Harness, Registry, Signal, Sleep, TaskId, ToolContext
from perdure.storage.memory import MemoryStorage
from perdure.testing.clock import settle
from perdure.testing.scripted_model import ScriptedModel, call
from tests.agent.kit import agent, results

Done: Signal[str] = Signal("t07.done", schema=str)
TURNS: list[Any] = [call("run_ci"), "done"]
Log = list[Any]


def ci(log: Log, triggered: Callable[[TaskId], Awaitable[None]] | None = None) -> Extension:
    ext = Extension("ci", signals=[Done])

    @ext.tool(replay="safe")
    async def run_ci(ctx: ToolContext[Any]) -> Any:
        """Run the build."""
        log.append(type(ctx.wake).__name__)
        state = await ctx.read_signal(Done, "done")
        if state is not None:
            return f"build {state.value}"
        log.append("trigger")
        if triggered is not None:
            await triggered(ctx.task_id)
        return Sleep(signals=[Done.key("done")])

    return ext


async def the_call(harness: Harness) -> TaskId:
    (found,) = [task.id for task in harness.tasks.index.tasks.values() if task.kind == "perdure.tool"]
    return found


async def ends_well(harness: Harness, log: Log, id: TaskId) -> None:
    """The result came once, nothing waits any more, and the key is closed."""
    root = await harness.root()
    await root.wait_idle()
    assert await results(root) == ["build passed"]
    assert log.count("trigger") <= 1
    assert harness.wake() == (False, None)
    assert await harness.signal(id, Done, "done", "late") == "closed"


async def test_a_value_before_the_first_run_of_its_task() -> None:
    log: Log = []
    storage = MemoryStorage()
    async with agent(TURNS, ci(log), storage=storage) as (harness, root):
        at_first: list[Any] = []

        def look(publication: Any) -> None:
            at_first.extend(c.after for c in publication.tasks if c.after.kind == "perdure.tool" and not at_first)
            if at_first and len(at_first) == 1:
                at_first.append(storage.copy())

        harness.session.listeners.append(look)
        await root.submit("go")
        await settle()
    task, left = at_first
    log.clear()
    async with Harness.open(left, registry=Registry([ci(log)]), models=ScriptedModel(["done"])) as harness:
        assert await harness.signal(task.id, Done, "done", "passed") == "delivered"
        await ends_well(harness, log, task.id)
    assert log == ["NoneType"], "it found the value and had nothing to trigger"


async def test_a_value_while_the_tool_runs_and_a_second_copy() -> None:
    log: Log = []
    answers: list[str] = []

    async def at_once(id: TaskId) -> None:
        answers.extend([await holder[0].signal(id, Done, "done", value) for value in ("passed", "failed")])

    holder: list[Harness] = []
    async with agent(TURNS, ci(log, at_once)) as (harness, root):
        holder.append(harness)
        await root.submit("go")
        await settle()
        assert [t.id for t in harness.tasks.index.tasks.values() if t.kind == "perdure.tool"] == [], "woken at once"
        assert answers == ["delivered", "duplicate"]
        await root.wait_idle()
        assert await results(root) == ["build passed"]
        assert harness.wake() == (False, None)
    assert log == ["NoneType", "trigger", "Signalled"]


@pytest.mark.parametrize("turns", range(12))
async def test_a_value_at_any_moment_around_the_park(turns: int) -> None:
    log: Log = []
    running = asyncio.Event()

    async def triggered(id: TaskId) -> None:
        running.set()

    async with agent(TURNS, ci(log, triggered)) as (harness, root):
        await root.submit("go")
        await running.wait()
        id = await the_call(harness)
        for _ in range(turns):
            await asyncio.sleep(0)
        assert await harness.signal(id, Done, "done", "passed") == "delivered"
        assert await harness.signal(id, Done, "done", "failed") in ("duplicate", "closed")
        await ends_well(harness, log, id)
    assert log == ["NoneType", "trigger", "Signalled"]


async def test_a_value_after_a_crash_before_anybody_resumed() -> None:
    log: Log = []
    storage = MemoryStorage()
    async with agent(TURNS, ci(log), storage=storage) as (harness, root):
        await root.submit("go")
        await settle()
        id = await the_call(harness)
        left = storage.copy()
    async with Harness.open(left, registry=Registry([ci(log)]), models=ScriptedModel(["done"])) as harness:
        async with harness.session.transaction() as tx:  # as a program does that only stores it
            assert await tx.signal(id, Done, "done", "passed") == "delivered"
        again = left.copy()
    async with Harness.open(again, registry=Registry([ci(log)]), models=ScriptedModel(["done"])) as harness:
        assert harness.wake() == (True, None)
        assert await harness.signal(id, Done, "done", "failed") == "duplicate"
        await harness.resume()
        await ends_well(harness, log, id)
    assert log == ["NoneType", "trigger", "Signalled"]
