"""A review before an answer stands: it sends the agent back, and a word of the user wins over it."""

import asyncio
from typing import Any

from perdure import (
    Continue,
    Extension,
    Harness,
    HookContext,
    Next,
    Registry,
    RunAnswer,
    Signal,
    TaskRun,
    UserMessage,
    phase,
    task,
)
from perdure.testing.scripted_model import ScriptedModel, say

Verdict: Signal[str] = Signal("office.verdict", version=1, schema=str)


@task("office.review", version=1)
class Review:
    """Waits for a reviewer, as long as it takes; "ok" lets the answer stand."""

    draft: str

    @phase(first=True)
    async def begin(self, run: TaskRun) -> Next[Any]:
        return run.sleep(self.decide, [Verdict.key("verdict")])

    @phase
    async def decide(self, run: TaskRun) -> Next[Any]:
        state = await run.read_signal(Verdict, "verdict")
        if state is None or state.value == "ok":
            return run.complete()
        return run.complete(Continue(f"A reviewer says: {state.value}"))


office = Extension("office", tasks=[Review], signals=[Verdict])


@office.on_yield
async def review(ctx: HookContext, answer: RunAnswer) -> list[Review]:
    return [Review(draft=answer.text)]


async def verdict(harness: Harness, text: str) -> None:
    await harness.wait_parked()
    (row,) = [row for row in harness.inspect()["tasks"] if row["kind"] == "office.review"]
    print(f"  reviewer: {text} ({await harness.signal(row['id'], Verdict, 'verdict', text)})")


async def main() -> None:
    model = ScriptedModel([say("Draft."), say("Better draft."), say("Draft, once more."), say("In French, then.")])
    async with Harness.open("memory:", registry=Registry([office]), models=model) as harness:
        root = await harness.root(model="scripted:model")
        submission = await root.submit("Write it")
        await verdict(harness, "too short")
        await verdict(harness, "ok")
        print("answer:", (await submission.wait()).text)

        submission = await root.submit("Write another")
        await harness.wait_parked()
        await root.submit("Make it French", when_busy="steer")
        await verdict(harness, "too long")  # the user has said something: that comes first
        await verdict(harness, "ok")
        print("answer:", (await submission.wait()).text)
        print([m.content for m in await root.messages() if isinstance(m, UserMessage)])


asyncio.run(main())
