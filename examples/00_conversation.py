"""A conversation: hand in an input, wait for the answer. A scripted model stands in, so this runs offline."""

import asyncio

from perdure import Harness
from perdure.testing.scripted_model import ScriptedModel, say


async def main() -> None:
    model = ScriptedModel([say("Vienna."), say("About two million.")])
    async with Harness.open("memory:", models=model) as harness:
        root = await harness.root(model="scripted:model", instructions="Answer in one sentence.")
        for question in ("What is the capital of Austria?", "How many people live there?"):
            answer = await (await root.submit(question)).wait()
            print(f"you    {question}")
            print(f"agent  {answer.text}")
        print("model saw", len(model.requests[-1].messages), "messages and the prompt:", model.requests[-1].system)


asyncio.run(main())
