"""A chat in the terminal: a line goes in, the answer is printed as it streams. What is said is stored at once."""

import asyncio

from perdure import Harness
from perdure.events import EventStream, MessageStart, MessageUpdate, RunEnd
from perdure.testing.scripted_model import ScriptedModel, say

LINES = ["Where is order 17?", "And order 18?"]  # what a person would type


async def show(events: EventStream) -> None:
    """Print one run."""
    async for event in events:
        match event:
            case MessageStart(kind="perdure.assistant"):
                print("agent: ", end="")
            case MessageUpdate(kind="text", delta=delta):
                print(delta, end="", flush=True)
            case RunEnd():
                print()
                return


async def main() -> None:
    model = ScriptedModel([say("In the warehouse."), say("On its way to you.")])
    async with Harness.open("memory:", models=model) as harness:
        root = await harness.root(model="scripted:model")
        async with root.events() as events:
            for line in LINES:
                print("you:  ", line)
                await root.submit(line)
                await show(events)


asyncio.run(main())
