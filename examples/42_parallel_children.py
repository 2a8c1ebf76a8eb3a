"""Children side by side: a tool starts two calls, parks, and wakes as each of them ends."""

import asyncio
from typing import Any

from perdure import Extension, Harness, Registry, Sleep, TaskId, ToolContext, ToolResultMessage, Wait
from perdure.testing.clock import FakeClock
from perdure.testing.scripted_model import ScriptedModel, call, say
from perdure.wakes import Tasks

clock = FakeClock()
START = clock.now()
desk = Extension("desk")
TAKES = {"tides": 30.0, "winds": 10.0}


@desk.tool(replay="safe")
async def research(ctx: ToolContext[bool], topic: str) -> str | Sleep[bool]:
    """Research a topic."""
    if ctx.checkpoint is None:
        return Sleep(until=ctx.now() + TAKES[topic], checkpoint=True)
    return f"all about {topic}"


@desk.tool(replay="safe")
async def research_both(ctx: ToolContext[list[TaskId]], x: str, y: str) -> str | Wait[list[TaskId]]:
    """Research two topics at once."""
    calls = [await ctx.start_tool(research, {"topic": topic}, key=topic) for topic in (x, y)]  # found again by the key
    done = set(ctx.checkpoint or [])
    if isinstance(ctx.wake, Tasks):
        done.update(ctx.wake.ended)
    names = {made.task_id: topic for made, topic in zip(calls, (x, y), strict=True)}
    print(f"  second {ctx.now() - START:2.0f}: done {sorted(names[id] for id in done)}")
    left = [made.task_id for made in calls if made.task_id not in done]
    if left:
        return Wait(on=left, policy="any", checkpoint=sorted(done))
    return "; ".join([str((await made.result()).content) for made in calls])


async def main() -> None:
    turns: list[Any] = [call("research_both", {"x": "tides", "y": "winds"}), say("Set sail.")]
    model = ScriptedModel(turns, clock=clock)
    async with Harness.open("memory:", registry=Registry([desk]), models=model, clock=clock) as harness:
        root = await harness.root(model="scripted:model")
        submission = await root.submit("Can we sail?")
        await harness.wait_parked()
        print("  all are parked:", not harness.wake().active)
        await clock.advance(60)
        print((await submission.wait()).text)
        print([m.content for m in await root.messages() if isinstance(m, ToolResultMessage)])


asyncio.run(main())
