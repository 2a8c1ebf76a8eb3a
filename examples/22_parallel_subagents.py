"""Several subagents at once, each in a conversation of its own; and what stopping does to those that are at work."""

import asyncio
from typing import Any

from perdure import Extension, Harness, Registry, ToolContext, configure
from perdure.models.protocol import ModelRequest
from perdure.testing.scripted_model import ScriptedModel, call, say

team = Extension("team")
at_work = asyncio.Semaphore(0)


@team.tool(replay="safe")
async def research(ctx: ToolContext, topics: list[str]) -> str:
    """Look into several topics, all at the same time."""
    async with ctx.transaction() as tx:
        mine = [one.id for one in await tx.scan_conversations(owner=ctx.task_id)]
        if not mine:
            mine = [tx.create_conversation(owner=ctx.task_id) for _ in topics]
            for child in mine:
                await configure(tx, child, model="scripted:small", tools=[], instructions="Look into it.")
    await ctx.details({"conversations": mine})

    async def one(child: Any, topic: str) -> str:
        submission = await ctx.conversation(child).submit(topic, request_id="research")
        found: str = (await submission.wait()).text
        return found

    return "\n".join(await asyncio.gather(*(one(*pair) for pair in zip(mine, topics, strict=True))))


def turn(request: ModelRequest) -> Any:
    last = request.messages[-1].text
    if not request.tools:
        at_work.release()
        return say(f"{last}: found").held_by(asyncio.Event()) if last == "for ever" else say(f"{last}: found")
    match last:
        case "Go on":
            return call("research", {"topics": ["for ever", "for ever"]})
        case "Begin":
            return call("research", {"topics": ["trains", "hotels", "museums"]})
    return say(f"All is there:\n{last}")


async def main() -> None:
    async with Harness.open("memory:", registry=Registry([team]), models=ScriptedModel(turn)) as harness:
        root = await harness.root(model="scripted:large")
        print((await (await root.submit("Begin")).wait()).text)
        for _ in range(3):
            await at_work.acquire()

        stopped = await root.submit("Go on")
        for _ in range(2):
            await at_work.acquire()
        await root.abort()  # reaches what the call owns, the deepest first
        print("stopped:", (await stopped.settled()).reason)
        async with harness.session.transaction() as tx:
            children = [one.id for one in await tx.scan_conversations() if one.id != root.id]
        for id in children[-2:]:
            child = await harness.conversation(id)
            print("subagent: stopped with it, and its transcript is kept:", [m.text for m in await child.messages()])
        print("still running:", harness.wake().active)


asyncio.run(main())
