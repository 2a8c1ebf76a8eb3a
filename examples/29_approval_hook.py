"""A gate of one's own: a person is asked before a deployment, once, though the process ends before it has begun.

The hook waits in memory for the chat's answer, which suits one that comes at once. For one that may take days let the
gate return a `Sleep`, or install `perdure.tools.approvals(tools=["deploy"])`: then nothing runs meanwhile.
"""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from perdure import Block, Extension, Harness, HookContext, Registry, ToolCall, ToolContext, ToolResultMessage
from perdure.testing.scripted_model import ScriptedModel, call, say

TURNS: list[Any] = [
    [call("deploy", {"version": "v7"}), call("deploy", {"version": "v8"})],
    say("v7 is live, v8 is not."),
]
PEOPLE_SAY = {"v7": "yes", "v8": "no"}


async def ask_in_chat(question: str, version: str) -> str:
    print("  asked:", question)
    return PEOPLE_SAY[version]


def build(held: asyncio.Semaphore, go_on: asyncio.Event) -> Registry:
    ops, approval, audit = Extension("ops"), Extension("approval"), Extension("audit")

    @ops.tool
    async def deploy(ctx: ToolContext, version: str) -> str:
        """Deploy a version to production."""
        print("  deployed:", version)
        return f"{version} is live"

    @approval.before_tool(tools=[deploy])
    async def approved(ctx: HookContext, made: ToolCall) -> Block | None:
        answer = await ctx.memo("approval.answer")  # the call keeps it: a hook that is asked again finds it
        if answer is None:
            version = made.arguments["version"]
            answer = await ctx.memo("approval.answer", await ask_in_chat(f"deploy {version}?", version))
        return None if answer == "yes" else Block("Nobody approved the deployment.")

    @audit.before_tool(tools=[deploy])
    async def noted(ctx: HookContext, made: ToolCall) -> None:
        held.release()  # the first process ends while a call is held up here
        await go_on.wait()

    return Registry([ops, approval, audit])


async def main(folder: Path) -> None:
    held, never, at_once = asyncio.Semaphore(0), asyncio.Event(), asyncio.Event()
    at_once.set()
    print("first process")
    models = ScriptedModel.by_progress(TURNS)
    async with Harness.open(folder / "ops.db", registry=build(held, never), models=models) as harness:
        root = await harness.root(model="scripted:model")
        await root.submit("Bring v7 and v8 out")
        await held.acquire()
        while not any(entry.kind == "perdure.tool_result" for entry in await root.entries()):
            await asyncio.sleep(0.005)  # until the refusal of v8 is stored

    print("second process")
    models = ScriptedModel.by_progress(TURNS)
    async with Harness.open(folder / "ops.db", registry=build(held, at_once), models=models) as harness:
        await harness.resume()  # whatever was interrupted goes on, whoever had handed it in
        root = await harness.root()
        await root.wait_idle()
        for message in await root.messages():
            if isinstance(message, ToolResultMessage):
                print("  model read:", message.text)
        print("agent:", (await root.messages())[-1].text)


with tempfile.TemporaryDirectory() as scratch:
    asyncio.run(main(Path(scratch)))
