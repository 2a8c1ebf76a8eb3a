"""Calls that were woken: stopped in their later runs, with replaced code, with gates that come too late."""

import asyncio
from typing import Any

import pytest

from perdure import (
    Extension,
    Harness,
    HookContext,
    Registry,
    Signal,
    Sleep,
    SubmissionSettled,
    TaskId,
    ToolContext,
    Wait,
)
from perdure.extensions.tool import Tool
from perdure.storage.memory import MemoryStorage
from perdure.testing.clock import settle
from perdure.testing.scripted_model import ScriptedModel, call
from tests.agent.kit import agent, results

Done: Signal[str] = Signal("w.done", schema=str)


async def the_call(harness: Harness) -> TaskId:
    await settle()
    (found,) = [t.id for t in harness.tasks.index.tasks.values() if t.kind == "perdure.tool"]
    return found


def hanging(log: list[Any], at: str, **options: Any) -> Extension:
    """A tool that hangs in its first run, or in the one after its wake."""
    extension = Extension("hanging", signals=[Done])

    @extension.tool(**options)
    async def work(ctx: ToolContext[str]) -> Any:
        """Work."""
        log.append(type(ctx.wake).__name__)
        if at == ("first" if ctx.wake is None else "woken"):
            await asyncio.Event().wait()
        return Sleep(signals=[Done.key("done")], checkpoint="begun") if ctx.wake is None else "ready"

    @work.cancel
    async def clean(ctx: ToolContext[str]) -> None:
        log.append(("cancel", ctx.checkpoint, ctx.abort_requested))
        await asyncio.sleep(0)  # the stop does not cancel the clean-up

    return extension


async def test_a_stop_in_a_first_run_that_never_parked_is_left_to_the_tool() -> None:
    log: list[Any] = []
    async with agent([call("work"), "never"], hanging(log, "first")) as (_, root):
        await root.submit("go")
        await settle()
        await root.abort()
    assert log == ["NoneType"]


async def test_a_stop_in_a_woken_run_reaches_the_tool_and_then_cleans_up() -> None:
    log: list[Any] = []
    async with agent([call("work"), "never"], hanging(log, "woken")) as (harness, root):
        await root.submit("go")
        await harness.signal(await the_call(harness), Done, "done", "x")
        await settle()
        await root.abort()
    assert log == ["NoneType", "Signalled", ("cancel", "begun", True)]


async def test_a_stop_between_the_wake_and_the_run_cleans_up() -> None:
    log: list[Any] = []
    storage = MemoryStorage()
    async with agent([call("work"), "never"], hanging(log, "never"), storage=storage) as (harness, root):
        await root.submit("go")
        id = await the_call(harness)
    registry = Registry([hanging(log, "never")])
    async with (
        asyncio.timeout(30),
        Harness.open(storage, registry=registry, models=ScriptedModel(["never"])) as harness,
    ):
        async with harness.session.transaction() as tx:
            assert await tx.signal(id, Done, "done", "x") == "delivered"
            await tx.abort_task(id)
        root = await harness.root()
        await root.wait_idle()
        assert (await results(root))[0].startswith("aborted: ")
    assert log == ["NoneType", ("cancel", "begun", True)]


@pytest.mark.parametrize(("stored", "now"), [("safe", "unsafe"), ("unsafe", "safe"), ("unsafe", "unsafe")])
async def test_a_woken_run_is_repeated_only_if_it_was_safe_and_still_is(stored: Any, now: Any) -> None:
    log: list[Any] = []
    storage = MemoryStorage()
    async with agent([call("work"), "x"], hanging(log, "woken", replay=stored), storage=storage) as (harness, root):
        await root.submit("go")
        await harness.signal(await the_call(harness), Done, "done", "x")
        await settle()
        left = storage.copy()
    registry = Registry([hanging(log, "never", replay=now)])
    async with asyncio.timeout(30), Harness.open(left, registry=registry, models=ScriptedModel(["x"])) as harness:
        root = await harness.root()
        await root.wait_idle()
        assert (await results(root))[0].startswith("interrupted: ")
    assert log == ["NoneType", "Signalled", ("cancel", "begun", False)]


async def test_a_close_in_a_woken_run_cleans_nothing_up_and_the_same_wake_comes_again() -> None:
    log: list[Any] = []
    storage = MemoryStorage()
    turns: list[Any] = [call("work"), "x"]
    async with agent(turns, hanging(log, "woken", replay="safe"), storage=storage) as (harness, root):
        await root.submit("go")
        await harness.signal(await the_call(harness), Done, "done", "x")
        await settle()
    registry = Registry([hanging(log, "never", replay="safe")])
    async with asyncio.timeout(30), Harness.open(storage, registry=registry, models=ScriptedModel(["x"])) as harness:
        root = await harness.root()
        await root.wait_idle()
        assert await results(root) == ["ready"]
    assert log == ["NoneType", "Signalled", "Signalled"]


async def test_a_gate_that_is_installed_after_the_intent_is_not_asked() -> None:
    log: list[Any] = []
    late, asked = Extension("late"), []

    @late.before_tool
    async def never(ctx: HookContext, made: Any) -> Any:
        asked.append(made)
        return Sleep(until=ctx.now() + 1)

    async with agent([call("work"), "fine"], hanging(log, "never")) as (harness, root):
        submission = await root.submit("go")
        id = await the_call(harness)
        harness.agent.registry.install(late)
        await settle()
        assert log == ["NoneType"], "a change of the code wakes what sleeps at gates only"
        await harness.signal(id, Done, "done", "x")
        await submission.wait()
        assert await results(root) == ["ready"]
    assert asked == []


async def test_the_first_park_may_wait_for_what_has_ended_already() -> None:
    extension = Extension("nest", signals=[Done])

    @extension.tool(replay="safe")
    async def quick(ctx: ToolContext) -> str:
        """Answer at once."""
        return "quick"

    @extension.tool(replay="safe")
    async def slow(ctx: ToolContext) -> Any:
        """Answer never."""
        return Sleep(signals=[Done.key("never")])

    @extension.tool(replay="safe")
    async def first_of_two(ctx: ToolContext) -> Any:
        """Take the first."""
        one, two = await ctx.start_tool(quick, key="q"), await ctx.start_tool(slow, key="s")
        if ctx.wake is not None:
            assert ctx.wake.ended == (one.task_id,)  # type: ignore[union-attr]
            return str((await one.result()).content)
        await one.result()
        return Wait(on=[one.task_id, two.task_id], policy="any")

    async with agent([call("first_of_two"), "fine"], extension) as (harness, root):
        assert (await (await root.submit("go")).wait()).text == "fine"
        assert await results(root) == ["quick"]
        assert harness.inspect()["tasks"] == [], "a call that settles stops the nested calls that nobody reads"


async def test_a_subagent_that_answers_before_the_park_wakes_it_at_once() -> None:
    extension = Extension("subagents")

    async def delegate(ctx: ToolContext) -> Any:
        """Delegate."""
        state = await ctx.read_signal(SubmissionSettled, "answered")
        if state is not None:
            return f"{type(ctx.wake).__name__}: {state.value.status}"
        entry = (await ctx.conversation().entries(limit=1))[0]
        child = await ctx.conversation().fork(entry.id, owner=ctx.task_id, key=f"child of {ctx.task_id}")
        submission = await child.submit("think", request_id="it", notify=(ctx.task_id, "answered"))
        assert (await submission.wait()).text == "thought"
        return Sleep(signals=[SubmissionSettled.key("answered")])

    extension.add(Tool(delegate, name="delegate", replay="safe"))
    async with agent([call("delegate"), "thought", "fine"], extension) as (_, root):
        assert (await (await root.submit("go")).wait()).text == "fine"
        assert await results(root) == ["Signalled: done"]


async def test_a_call_that_was_unsafe_when_it_began_stays_so_in_all_its_runs() -> None:
    log: list[Any] = []
    storage = MemoryStorage()
    async with agent([call("work"), "x"], hanging(log, "woken", replay="unsafe"), storage=storage) as (harness, root):
        await root.submit("go")
        id = await the_call(harness)
    async with agent(["x"], hanging(log, "woken", replay="safe"), storage=storage) as (harness, _):
        await harness.signal(id, Done, "done", "x")
        await settle()
        assert log == ["NoneType", "Signalled"]
        left = storage.copy()
    async with agent(["x"], hanging(log, "never", replay="safe"), storage=left) as (_, root):
        await root.wait_idle()
        assert (await results(root))[0].startswith("interrupted: ")
    assert log[2:] == [("cancel", "begun", False)]
