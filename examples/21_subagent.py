"""A subagent in a few lines: a tool creates a conversation that its call owns, gives it a smaller model, and asks it.

The process ends while the subagent works. The tool is safe to run again: it finds the same conversation and the same
submission, so nothing is asked twice.
"""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from perdure import Extension, Harness, Registry, ToolContext, configure
from perdure.models.protocol import ModelRequest
from perdure.testing.scripted_model import ScriptedModel, call, say

desk = Extension("desk")
runs: list[str] = []


@desk.tool(replay="safe")
async def triage(ctx: ToolContext, issue: str) -> str:
    """Label an incoming issue as bug, feature or question."""
    runs.append("triage")
    async with ctx.transaction() as tx:
        mine = await tx.scan_conversations(owner=ctx.task_id, limit=1)
        child = mine[0].id if mine else tx.create_conversation(owner=ctx.task_id)
        if not mine:  # it begins with a copy of this conversation's agent
            await configure(
                tx, child, model="scripted:small", tools=[], instructions="One word: bug, feature, question."
            )
    await ctx.details({"conversation": child})  # so that a user interface can show it below the call
    submission = await ctx.conversation(child).submit(issue, request_id="triage")
    label: str = (await submission.wait()).text
    return label


def model(asked: asyncio.Event | None = None) -> ScriptedModel:
    """Two agents, one script: the small one has no tools. With `asked` its first answer never comes."""

    def turn(request: ModelRequest) -> Any:
        if not request.tools:
            if asked is None:
                return say("bug")
            asked.set()
            return say("bug").held_by(asyncio.Event())
        return call("triage", {"issue": "The login fails"}) if len(request.messages) == 1 else say("It is a bug.")

    return ScriptedModel(turn)


async def main(folder: Path) -> None:
    asked = asyncio.Event()
    async with Harness.open(folder / "desk.db", registry=Registry([desk]), models=model(asked)) as harness:
        root = await harness.root(model="scripted:large")
        await root.submit("Look at the new issue", request_id="issue-1")
        await asked.wait()
    print("the first process has ended while the subagent was asked")

    async with Harness.open(folder / "desk.db", registry=Registry([desk]), models=model()) as harness:
        root = await harness.root()
        answer = await (await root.submit("Look at the new issue", request_id="issue-1")).wait()
        print("agent:", answer.text)
        async with harness.session.transaction() as tx:
            conversations = await tx.scan_conversations()
        print("conversations:", len(conversations), "- the tool ran", len(runs), "times")
        child = await harness.conversation(conversations[-1].id)
        for message in await child.messages():
            print(f"  {message.role}: {message.text}")
        print("used:", (await root.usage())["requests"], "requests here,", (await child.usage())["requests"], "there")


with tempfile.TemporaryDirectory() as scratch:
    asyncio.run(main(Path(scratch)))
