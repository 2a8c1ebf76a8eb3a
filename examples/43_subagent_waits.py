"""A tool waits for a subagent, and the subagent for a person: all is parked then, and the process may end."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any, TypedDict

from perdure import (
    AssistantMessage,
    ConversationId,
    Document,
    Extension,
    Harness,
    Registry,
    Sleep,
    SubmissionSettled,
    ToolContext,
    ToolResultMessage,
    configure,
)
from perdure.models.protocol import ModelRequest
from perdure.testing.scripted_model import ScriptedModel, call, say
from perdure.tools import ask_person


class Delegated(TypedDict):
    conversation: int


Subagent = Document("team.subagent", Delegated, scope="task")
team = Extension("team")
team.add(Subagent)


async def subagent(ctx: ToolContext) -> ConversationId:
    """The call's own conversation, noted in the commit that creates it: a rerun finds it."""
    noted = await ctx.read(Subagent, ctx.task_id)
    if noted is not None:
        return ConversationId(noted["conversation"])
    async with ctx.transaction() as tx:
        made = tx.create_conversation(owner=ctx.task_id)  # stopped with the call
        await configure(tx, made, model=ctx.agent.model, extensions=["ask_person"])
        await tx.set(Subagent, ctx.task_id, {"conversation": made})
    return made


@team.tool(replay="safe")
async def delegate(ctx: ToolContext, job: str) -> str | Sleep:
    """Delegate a job to a subagent and get its answer."""
    state = await ctx.read_signal(SubmissionSettled, "answered")
    if state is None:
        child = await subagent(ctx)
        # the request id makes a rerun find the first submission
        await ctx.conversation(child).submit(job, request_id=f"job-{ctx.task_id}", notify=(ctx.task_id, "answered"))
        return Sleep(signals=[SubmissionSettled.key("answered")])
    if state.value.answer is None:
        return f"the subagent ended without an answer: {state.value.reason}"
    answer = (await ctx.conversation(await subagent(ctx)).messages())[-1]
    return f"the subagent says: {answer.text}" if isinstance(answer, AssistantMessage) else "nothing was said"


def script(request: ModelRequest) -> Any:
    """The subagent asks a person; whoever can delegate does that."""
    last = request.messages[-1]
    if isinstance(last, ToolResultMessage):
        return say(f"So: {last.content}")
    if any(tool.name == "delegate" for tool in request.tools):
        return call("delegate", {"job": "Find out the color"})
    return call("ask_person", {"question": "Which color?"})


def opened(path: Path) -> Any:
    return Harness.open(path, registry=Registry([team, ask_person]), models=ScriptedModel(script))


async def main(path: Path) -> None:
    async with opened(path) as harness:
        root = await harness.root(model="scripted:model", extensions=["team"])
        await root.submit("Paint the fence", request_id="fence")
        while harness.wake().active:
            await asyncio.sleep(0.001)
        print("parked:", sorted(row["kind"] for row in harness.inspect()["tasks"]))
        print("this process may end:", not harness.wake().active)
    async with opened(path) as harness:
        (asked,) = await harness.questions()
        print(f"conversation {asked.conversation_id} asks: {asked.text}")
        print(await harness.answer(asked.id, "blue", by="ana"))
        root = await harness.root()
        answer = await (await root.submit("Paint the fence", request_id="fence")).wait()
        print(answer.text)


with tempfile.TemporaryDirectory() as scratch:
    asyncio.run(main(Path(scratch) / "team.db"))
