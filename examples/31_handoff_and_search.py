"""An agent hands over to itself with a note, starts over in an empty context, and looks up what it no longer has."""

import asyncio

from perdure import Harness, Registry, ToolResultMessage, UserMessage
from perdure.models.messages import text_of
from perdure.models.protocol import ModelRequest
from perdure.testing.scripted_model import ScriptedModel, Turn, call, say
from perdure.tools import history_tools

NOTE = (
    "Goal: a poem about the sea. Done: two stanzas. Next: look up which word the person forbade, then write the third."
)


def model_says(request: ModelRequest) -> Turn:
    """Stands for a real model: it hands off when told to go on, and searches before it writes."""
    last = request.messages[-1]
    match text_of(last):
        case "Write the third stanza.":
            return call("handoff", {"note": NOTE})
        case "Continue.":
            return call("search_history", {"text": "never use"})
        case found if isinstance(last, ToolResultMessage) and "blue" in found:
            return say("The sea at night is grey and wide, it keeps the moon, it moves the tide.")
    return say("Noted.")


async def main() -> None:
    async with Harness.open("memory:", registry=Registry([history_tools]), models=ScriptedModel(model_says)) as harness:
        root = await harness.root(model="scripted:model")
        for said in ("I want a poem about the sea.", "Please never use the word blue.", "Two stanzas are fine so far."):
            await (await root.submit(said)).wait()

        settled = await (await root.submit("Write the third stanza.")).settled()
        print("this run ended:", settled.reason)
        await root.wait_idle()

        for message in await root.messages():
            if isinstance(message, UserMessage):
                print("context:", message.content)
            elif isinstance(message, ToolResultMessage):
                print("found:  ", text_of(message).splitlines()[0].partition(" ")[2])
        print("answer: ", text_of((await root.messages())[-1]))
        print("stored: ", len([e for e in await root.entries(limit=500) if e.kind == "perdure.user"]), "things said")

        await root.reset()  # a person can do the same: with a note, or with nothing
        print("after a reset the model reads", len(await root.messages()), "messages")


asyncio.run(main())
