"""After a round of calls a task asks a person what to do: "go on" tells the model more, "stop" ends the run."""

import asyncio
from typing import Any

from perdure import (
    Extension,
    Harness,
    HookContext,
    Next,
    Registry,
    TaskRun,
    Terminate,
    ToolContext,
    ToolRound,
    UserMessage,
    phase,
    task,
)
from perdure.testing.scripted_model import ScriptedModel, call, say
from perdure.tools import PersonAnswer, Question, ask


@task("desk.checkpoint", version=1)
class CheckIn:
    """Asks after a round whether the agent is on the right way."""

    @phase(first=True)
    async def begin(self, run: TaskRun) -> Next[Any]:
        return run.sleep(self.decide, [ask("next", Question("Go on?"))])

    @phase
    async def decide(self, run: TaskRun) -> Next[Any]:
        state = await run.read_signal(PersonAnswer, "next")
        assert state is not None
        if state.value.answer == "stop":
            return run.complete(Terminate())
        request = f"check-in-{run.task_id}"  # a phase may run again
        await run.conversation().submit(state.value.note, when_busy="steer", request_id=request)
        return run.complete()


desk = Extension("desk", tasks=[CheckIn])


@desk.tool(replay="safe")
async def dig(ctx: ToolContext, where: str) -> str:
    """Dig."""
    return f"nothing {where}"


@desk.after_tools
async def check_in(ctx: HookContext, made: ToolRound) -> list[CheckIn]:
    return [CheckIn()]


async def answer(harness: Harness, text: str, note: str = "") -> None:
    await harness.wait_parked()
    (asked,) = await harness.questions()
    print(f"  {asked.text} {text} {note}".rstrip())
    await harness.answer(asked.id, text, note=note)


async def main() -> None:
    turns: list[Any] = [call("dig", {"where": "here"}), call("dig", {"where": "by the tree"}), say("never said")]
    model = ScriptedModel(turns)
    async with Harness.open("memory:", registry=Registry([desk]), models=model) as harness:
        root = await harness.root(model="scripted:model")
        submission = await root.submit("Find the treasure")
        await answer(harness, "go on", "Try by the tree")
        await answer(harness, "stop")
        settled = await submission.settled()
        print("status:", settled.status, "| requests:", len(model.requests))
        print("said:", [m.content for m in await root.messages() if isinstance(m, UserMessage)])


asyncio.run(main())
