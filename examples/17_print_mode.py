"""Print mode: one input, its answer, an exit code. For pipes and cron jobs; `perdure ask` does the same."""

import asyncio

from perdure import Harness, Unanswered
from perdure.models.errors import BadRequest
from perdure.testing.scripted_model import ScriptedModel, fail, say


async def ask(model: ScriptedModel, text: str, request_id: str) -> int:
    async with Harness.open("memory:", models=model) as harness:
        root = await harness.root(model="scripted:model")
        submission = await root.submit(text, request_id=request_id)
        try:
            answer = await submission.wait()
        except Unanswered as error:
            print(f"no answer: {error.reason}")
            return 1
        print(answer.text)
        return 0


async def main() -> None:
    print("exit code", await ask(ScriptedModel([say("42")]), "What is the answer?", "job-1"))
    print("exit code", await ask(ScriptedModel([fail(BadRequest("no such thing"))]), "And now?", "job-2"))


asyncio.run(main())
