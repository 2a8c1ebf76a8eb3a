"""An extension's tool replaces an earlier one of the same name: here a bash that runs nothing."""

import asyncio
from typing import Any

from perdure import Extension, Harness, Registry, ToolResult
from perdure.models.messages import ToolResultMessage
from perdure.testing.scripted_model import ScriptedModel, call, say
from perdure.tools import coding_tools

dry = Extension("dry")


@dry.tool(replay="safe")
async def bash(ctx: Any, command: str) -> ToolResult:
    """Tell what a shell command would do. Nothing is run."""
    return ToolResult(f"would run: {command}", details={"dry": True})


async def main() -> None:
    model = ScriptedModel.by_progress([call("bash", {"command": "echo really"}), say("Done.")])
    async with Harness.open("memory:", registry=Registry([coding_tools, dry]), models=model) as harness:
        root = await harness.root(model="scripted:model")
        await (await root.submit("Run it")).wait()
        agent = await root.agent()
        print("one bash, the later extension's:", agent.tools)
        await show("dry run", root)

        fork = await root.fork((await root.entries())[0].id)
        await fork.configure(extensions=["coding"])
        await (await fork.submit("Run it")).wait()
        await show("without it", fork)


async def show(what: str, conversation: Any) -> None:
    for message in await conversation.messages():
        if isinstance(message, ToolResultMessage):
            print(f"{what}: {message.content}")


asyncio.run(main())
