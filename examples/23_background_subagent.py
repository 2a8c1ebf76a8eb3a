"""A subagent that outlives the turn that started it: a background task asks it, and hands in its answer later.

Meanwhile the person goes on talking, and stopping the current work leaves the research alone. While the subagent waits,
the task is a row: the process may end.
"""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from perdure import (
    ConversationId,
    Extension,
    Harness,
    Next,
    Registry,
    SubmissionSettled,
    TaskRun,
    ToolContext,
    configure,
    phase,
    task,
)
from perdure.models.protocol import ModelRequest
from perdure.testing.scripted_model import ScriptedModel, call, say

travel = Extension("travel")


@task("travel.research", version=1)
class Research:
    """Makes the subagent, asks it, and says its answer to the conversation that wanted it."""

    question: str

    @phase(first=True)
    async def begin(self, run: TaskRun) -> Next[None]:
        async with run.transaction() as tx:
            child = tx.create_conversation(owner=run.task_id)
            await configure(tx, child, model="scripted:small", tools=[], instructions="Research.")
            return tx.goto(self.ask, child)

    @phase
    async def ask(self, run: TaskRun, child: ConversationId) -> Next[None]:
        notify = (run.task_id, "answered")
        await run.conversation(child).submit(self.question, request_id="research", notify=notify)
        return run.sleep(self.deliver, [SubmissionSettled.key("answered")], None, child)

    @phase
    async def deliver(self, run: TaskRun, child: ConversationId) -> Next[None]:
        found = (await run.conversation(child).messages())[-1].text
        await run.conversation().submit(f"The research says: {found}", request_id=f"research:{run.task_id}")
        return run.complete(None)


travel.add(Research)


@travel.tool
async def research(ctx: ToolContext, question: str) -> str:
    """Look into something in the background. The answer comes later, as a message."""
    await ctx.create_task(Research(question), conversation=ctx.conversation_id, background=True)
    return "Started."


def model(gate: asyncio.Event, asked: asyncio.Event) -> ScriptedModel:
    def turn(request: ModelRequest) -> Any:
        last = request.messages[-1]
        if not request.tools:
            asked.set()
            return say("the museum is closed on Mondays").held_by(gate)
        if last.role == "tool_result":
            return say("I am looking into it. Which hotel do you like?")
        match last.text:
            case "Plan a weekend in Vienna":
                return call("research", {"question": "What is open?"})
            case "A small one":
                return say("never said").held_by(asyncio.Event())
        return say(f"Good to know: {last.text}")

    return ScriptedModel(turn)


async def main(path: Path) -> None:
    gate, asked = asyncio.Event(), asyncio.Event()
    registry = Registry([travel])
    async with Harness.open(path, registry=registry, models=model(gate, asked)) as harness:
        root = await harness.root(model="scripted:large")
        print("agent:", (await (await root.submit("Plan a weekend in Vienna")).wait()).text)
        await root.wait_idle()  # the turn is over; the research is not
        await asked.wait()
        small = await root.submit("A small one")
        await root.abort()  # stops this answer, and nothing behind the turn
        print("stopped:", (await small.settled()).reason)
        rows = [row for row in harness.inspect()["tasks"] if row["kind"] == "travel.research"]
        print("at work:", [row["kind"] for row in rows])

    gate.set()
    async with Harness.open(path, registry=registry, models=model(gate, asked)) as harness:  # another day
        root = await harness.root()
        await harness.resume()
        await harness.tasks.wait(rows[0]["id"])
        await root.wait_idle()
        print("agent:", (await root.messages())[-1].text)


with tempfile.TemporaryDirectory() as scratch:
    asyncio.run(main(Path(scratch) / "trip.db"))
