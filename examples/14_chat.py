"""A chat in the terminal: a line goes in, the answer is printed as it streams. What is said is stored at once.

`python 14_chat.py openai:gpt-5` asks a real model and keeps the conversation in `chat.db`: come back whenever you like.
Without arguments a scripted model answers a person who is scripted too.
"""

import asyncio
import sys
from collections.abc import AsyncIterator

from perdure import Conversation, Harness, Submission
from perdure.events import EventStream, MessageUpdate, Retry, SubmissionChanged
from perdure.testing.scripted_model import ScriptedModel, say


async def show(events: EventStream, submission: Submission) -> None:
    """Print what happens until the submission has its answer, or none."""
    begun = False
    async for event in events:
        match event:
            case MessageUpdate(kind="text", delta=delta):
                print(delta if begun else f"agent: {delta}", end="", flush=True)
                begun = True
            case Retry(error=error) if error:
                print(f"[once more: {error}]")
            case SubmissionChanged(id=submission.id, status="done"):
                print()
                return
            case SubmissionChanged(id=submission.id, status="unanswered"):
                print(f"[no answer: {event.reason}: {event.detail}]")
                return


async def chat(conversation: Conversation, lines: AsyncIterator[str]) -> None:
    async with conversation.events() as events:
        async for line in lines:
            await show(events, await conversation.submit(line))


async def typed() -> AsyncIterator[str]:
    """What a person types, until they end it with Ctrl-D."""
    while True:
        try:
            line = await asyncio.to_thread(input, "you:   ")
        except EOFError:
            return
        if line.strip():
            yield line


async def scripted() -> AsyncIterator[str]:
    for line in ("Where is order 17?", "And order 18?"):
        print("you:  ", line)
        yield line


async def main() -> None:
    if len(sys.argv) > 1:
        async with Harness.open("chat.db") as harness:
            root = await harness.root()
            await root.configure(model=sys.argv[1])
            await chat(root, typed())
        return
    model = ScriptedModel([say("In the warehouse."), say("On its way to you.")])
    async with Harness.open("memory:", models=model) as harness:
        await chat(await harness.root(model="scripted:model"), scripted())


asyncio.run(main())
