"""Compaction: older messages are summarized while the conversation goes on; a summary can be asked for, with wishes."""

import asyncio

from perdure import CompactionPlan, CompactionSettings, Extension, Harness, Registry, Settings, Summary, Usage
from perdure.models.messages import text_of
from perdure.models.protocol import ModelRequest
from perdure.testing.scripted_model import ScriptedModel, Turn, say

STORY = "The garden had seven doors, and behind each of them was another garden. " * 3


def answer(request: ModelRequest) -> Turn:
    """Stands for a real model: answers, summarizes when that is what it is asked, and counts what it read."""
    read = sum(len(text_of(message)) for message in request.messages) // 4
    summarizing = "taken out of your context" in text_of(request.messages[-1])
    text = "We speak of a garden with seven doors." if summarizing else "Go on, please."
    return say(text).with_usage(Usage(input=read, output=10))


gardener = Extension("gardener")


@gardener.before_compact
async def own_words(ctx: object, plan: CompactionPlan) -> Summary | None:
    """A hook may write the summary itself, or decline; without an answer the conversation's model writes it."""
    print(f"compaction ({plan.cause}) of", "many" if len(plan.messages) > 10 else "few", "messages")
    return Summary("Nothing but gardens.") if plan.instructions == "Be brief" else None


async def main() -> None:
    model = ScriptedModel(answer, context_window=2_000)
    settings = Settings(
        compaction=CompactionSettings(
            reserve_tokens=500,  # past 1,500 tokens the next request waits for a summary
            background_tokens=500,  # from 1,000 on a summary is made beside the conversation
            keep_tokens=300,  # about so much of the newest messages stays as it is
        )
    )
    async with Harness.open("memory:", registry=Registry([gardener]), models=model, settings=settings) as harness:
        root = await harness.root(model="scripted:model")
        for number in range(24):
            await (await root.submit(f"{number}. {STORY}")).wait()
        messages = await root.messages()
        print("of 48 messages the model reads", "half" if len(messages) < 30 else "most", "and before them:")
        print("  ", text_of(messages[0]).replace("\n\n", " "))

        compaction = await root.compact("Be brief")  # also while the agent works
        print("asked for:", (await compaction).status)
        print("  ", text_of((await root.messages())[0]).replace("\n\n", " "))

        said = [entry for entry in await root.entries(limit=1000) if entry.kind == "perdure.user"]
        print("stored are still", len(said), "things that were said")


asyncio.run(main())
