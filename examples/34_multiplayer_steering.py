"""Two people and a program on one conversation: all see the same, each may steer, nothing is said twice."""

import asyncio
from typing import Any

from perdure import Conversation, Extension, Harness, Registry, ToolContext
from perdure.events import MessageEnd, RunEnd
from perdure.testing.scripted_model import ScriptedModel, call, say

started, go, attached = asyncio.Event(), asyncio.Event(), asyncio.Semaphore(0)
ops = Extension("ops")


@ops.tool
async def read_logs(ctx: ToolContext, where: str) -> str:
    """Read the logs of a place."""
    if where == "production":
        started.set()
        await go.wait()
    return f"{where}: disk full" if where == "staging" else f"{where}: nothing"


async def person(name: str, thread: Conversation, seen: dict[str, list[Any]]) -> None:
    """Watch until the run is over."""
    seen[name] = []
    async with thread.events() as events:
        attached.release()
        async for event in events:
            if isinstance(event, MessageEnd):
                message = event.entry["messages"][0]
                if message["role"] == "user" or event.entry["kind"] == "perdure.tool_result":
                    seen[name].append(message["content"])
                elif message["role"] == "assistant":
                    seen[name].extend(block["text"] for block in message["content"] if block["type"] == "text")
            if isinstance(event, RunEnd):
                return


async def main() -> None:
    model = ScriptedModel(
        [call("read_logs", {"where": "production"}), call("read_logs", {"where": "staging"}), say("Staging is full.")]
    )
    async with Harness.open("memory:", registry=Registry([ops]), models=model) as harness:
        thread = await harness.root(model="scripted:model")
        seen: dict[str, list[Any]] = {}
        people = [asyncio.create_task(person(name, thread, seen)) for name in ("Ada", "Ben")]
        for _ in people:
            await attached.acquire()
        await thread.submit("Ada: why is the site down?", request_id="ada-1")
        await started.wait()
        # Ben steers; his client lost the first reply and sends the same again
        for _ in range(2):
            await thread.submit("Ben: check staging first", request_id="ben-1", when_busy="steer")
        go.set()
        await asyncio.gather(*people)
        for line in seen["Ada"]:
            print(line)
        print("both saw the same:", seen["Ada"] == seen["Ben"])


asyncio.run(main())
