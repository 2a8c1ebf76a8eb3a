"""The inbox: what is handed in while a run is open waits for its place, can be seen there and taken back."""

import asyncio
from typing import Any

from perdure import Extension, Harness, Registry, ToolContext
from perdure.testing.scripted_model import ScriptedModel, call, say

started, go = asyncio.Event(), asyncio.Event()
work = Extension("work")


@work.tool
async def build(ctx: ToolContext) -> str:
    """Build it."""
    started.set()
    await go.wait()
    return "built"


def waiting(view: Any) -> list[str]:
    return [item["how"] for item in view["docs"]["inbox"]["items"]]


async def main() -> None:
    model = ScriptedModel([call("build"), say("Built, quietly."), say("Deployed.")])
    async with Harness.open("memory:", registry=Registry([work]), models=model) as harness:
        root = await harness.root(model="scripted:model")
        first = await root.submit("Build it")
        await started.wait()
        async with root.watch() as watch:
            await root.submit("Quietly, please", when_busy="steer")  # joins this run, after the tool round
            deploy = await root.submit("Then deploy")  # starts the next run
            paint = await root.submit("Then paint it green")
            await paint.abort()
            for _ in range(4):
                await anext(watch)
            print("waits:", waiting(watch.value))
            go.set()
            print(first.id < deploy.id, (await first.wait()).text, "|", (await deploy.wait()).text)
            print("withdrawn:", (await paint.settled()).reason)
        async with root.watch() as watch:
            print("waits:", waiting(watch.value))
        said = [message.text for message in await root.messages() if message.role == "user"]
        print("said:", said)


asyncio.run(main())
