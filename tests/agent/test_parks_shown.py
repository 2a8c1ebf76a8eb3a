"""What people see of a call that parks: its output, its details, how long it took; and at what pace it may wake."""

from typing import Any

import msgspec

from perdure import Extension, HookContext, Signal, Sleep, ToolContext, ToolResult
from perdure.storage.memory import MemoryStorage
from perdure.testing.clock import FakeClock, settle
from perdure.testing.scripted_model import call
from tests.agent.kit import agent, results

Done: Signal[str] = Signal("p.shown", schema=str)
HOUR = 3600.0


def twice(clock: FakeClock) -> Extension:
    """A tool that writes a little, parks, and writes a little more."""
    extension = Extension("twice", signals=[Done])

    @extension.tool(replay="safe")
    async def work(ctx: ToolContext[int]) -> Any:
        """Work twice."""
        if ctx.wake is None:
            await ctx.details({"step": 1})
            ctx.output("triggered\n")
            return Sleep(signals=[Done.key("done")], checkpoint=1)
        ctx.output("reported\n")
        return Sleep(signals=[Done.key("more")], checkpoint=2) if ctx.checkpoint == 1 else ToolResult("ready")

    return extension


async def slot(root: Any) -> dict[str, Any]:
    await settle()
    (found,) = (await root.live())["tools"].values()
    return dict(found)


async def test_what_a_call_wrote_just_before_it_parked_shows_while_it_is_parked() -> None:
    clock = FakeClock()
    async with agent([call("work"), "fine"], twice(clock), clock=clock) as (_, root):
        await root.submit("go")
        seen = await slot(root)
        assert (seen["status"], seen["output"]) == ("sleeping", "triggered\n")


async def test_each_run_begins_with_no_output_and_the_details_stay() -> None:
    clock = FakeClock()
    async with agent([call("work"), "fine"], twice(clock), clock=clock) as (harness, root):
        await root.submit("go")
        await settle()
        (id,) = (await root.live())["tools"]
        await harness.signal(int(id), Done, "done", "x")
        seen = await slot(root)
        assert (seen["status"], seen["output"], seen["details"]) == ("sleeping", "reported\n", {"step": 1})


async def test_the_time_of_a_result_spans_gates_parks_restarts_and_reruns() -> None:
    clock, storage = FakeClock(), MemoryStorage()
    gates = Extension("gates")

    @gates.before_tool
    async def morning(ctx: HookContext, made: Any) -> Any:
        opens = await ctx.memo("opens", ctx.now() + HOUR)
        return Sleep(until=opens) if ctx.now() < opens else None

    async with agent([call("work"), "fine"], twice(clock), gates, clock=clock, storage=storage) as (_, root):
        await root.submit("go", request_id="one")
        await settle()
        await clock.advance(HOUR)
        assert (await slot(root))["output"] == "triggered\n"
        (id,) = (await root.live())["tools"]
    await clock.advance(HOUR)
    async with agent(["fine"], twice(clock), gates, clock=clock, storage=storage) as (harness, root):
        await harness.signal(int(id), Done, "done", "x")
        await clock.advance(HOUR)
        await harness.signal(int(id), Done, "more", "x")
        assert (await (await root.submit("go", request_id="one")).wait()).text == "fine"
        (entry,) = [entry for entry in await root.entries() if entry.kind == "perdure.tool_result"]
        assert msgspec.json.decode(entry.data) == {"seconds": 3 * HOUR}


async def test_the_time_of_a_call_that_is_stopped_or_blocked_is_told_too() -> None:
    clock = FakeClock()
    gates = Extension("gates")

    @gates.before_tool(tools=["work"])
    async def never(ctx: HookContext, made: Any) -> Any:
        raise ValueError("broken")

    async with agent([call("work"), "fine"], twice(clock), gates, clock=clock) as (_, root):
        await (await root.submit("go")).wait()
        (entry,) = [entry for entry in await root.entries() if entry.kind == "perdure.tool_result"]
        assert msgspec.json.decode(entry.data) == {"seconds": 0.0}
    async with agent([call("work"), "fine"], twice(clock), clock=clock) as (_, root):
        await root.submit("go")
        await settle()
        await clock.advance(HOUR)
        await root.abort()
        (entry,) = [entry for entry in await root.entries() if entry.kind == "perdure.tool_result"]
        assert msgspec.json.decode(entry.data) == {"seconds": HOUR}
        assert (await results(root))[0].endswith("Output so far:\ntriggered\n")


async def test_a_tool_that_sleeps_until_now_again_and_again_wakes_at_a_bearable_pace() -> None:
    clock, poll, runs = FakeClock(), Extension("poll"), []

    @poll.tool(replay="safe")
    async def poll_now(ctx: ToolContext) -> Any:
        """Poll without a pause."""
        runs.append(ctx.now())
        return "ready" if len(runs) == 12 else Sleep(until=ctx.now())

    async with agent([call("poll_now"), "fine"], poll, clock=clock) as (_, root):
        submission = await root.submit("go")
        await settle(500)
        assert len(runs) == 2, "the first deadline has passed and wakes at once"
        await clock.advance(1.0)
        assert (await submission.wait()).text == "fine"
        assert [round(at - runs[0], 3) for at in runs] == [0.0, *(n / 10 for n in range(11))]


async def test_a_gate_that_sleeps_until_now_again_and_again_is_asked_at_a_bearable_pace() -> None:
    clock, gates, passes = FakeClock(), Extension("gates"), []

    @gates.before_tool
    async def impatient(ctx: HookContext, made: Any) -> Any:
        passes.append(ctx.now())
        return Sleep(until=ctx.now())

    async with agent([call("work"), "fine"], twice(clock), gates, clock=clock) as (_, root):
        await root.submit("go")
        await settle(500)
        assert len(passes) == 2
        await clock.advance(1.0)
        assert len(passes) == 12
        await root.abort()
