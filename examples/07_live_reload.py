"""Live reload: an extension is replaced while conversations run. A running call finishes on the code it took."""

import asyncio
from typing import Any

from perdure import Extension, Harness, Registry
from perdure.models.messages import ToolResultMessage
from perdure.testing.scripted_model import ScriptedModel, call, say


def build(version: str, started: asyncio.Event, go_on: asyncio.Event) -> Extension:
    ops = Extension("ops")

    @ops.tool(replay="safe")
    async def check(ctx: Any) -> str:
        """Check the service."""
        started.set()
        await go_on.wait()
        return f"checked by version {version}"

    @ops.section("about")
    async def about(ctx: Any) -> str:
        return f"You run ops {version}."

    return ops


async def main() -> None:
    started, go_on = asyncio.Event(), asyncio.Event()
    registry = Registry([build("1", started, go_on)])
    model = ScriptedModel([call("check"), call("check"), call("check"), say("fine")])
    async with Harness.open("memory:", registry=registry, models=model) as harness:
        root = await harness.root(model="scripted:model")
        submission = await root.submit("Check three times")
        await started.wait()
        registry.install(build("2", started, go_on))  # while the first call runs
        go_on.set()
        while len(model.requests) < 3:
            await asyncio.sleep(0)
        registry.uninstall("ops")
        await submission.wait()
        for message in await root.messages():
            if isinstance(message, ToolResultMessage):
                print(message.content)
        print("prompts the model saw:", [request.system for request in model.requests])


asyncio.run(main())
