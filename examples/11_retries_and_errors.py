"""Retries and errors: a failed request is a durable sleep; what cannot succeed ends the run with the reason."""

import asyncio

from perdure import Harness, RetrySettings, Settings, Unanswered
from perdure.models.errors import AuthFailed, ContextTooLong, Overloaded, RateLimited
from perdure.models.messages import AssistantMessage, decode_messages
from perdure.testing.clock import FakeClock
from perdure.testing.scripted_model import ScriptedModel, cut, fail, say


async def main() -> None:
    clock = FakeClock()
    model = ScriptedModel(
        [
            fail(RateLimited("slow down", retry_after=30)),
            fail(Overloaded("try later")),
            cut(1, say("This is cut off in the middle")),
            say("Here it is."),
            fail(AuthFailed("no such key")),
            fail(ContextTooLong("too many tokens")),
        ],
        clock=clock,
    )
    settings = Settings(retry=RetrySettings(attempts=5, first_delay=1, factor=2, spread=0))
    async with Harness.open("memory:", models=model, settings=settings, clock=clock) as harness:
        root = await harness.root(model="scripted:model")
        submission = await root.submit("Tell me")
        waits = []
        while await submission.status() == "placed":
            await clock.advance(0)
            at = harness.wake().at
            if at is not None:
                waits.append(round(at - clock.now(), 3))
                await clock.jump_to(at)
        print("answer:", (await submission.wait()).text, "after waits of", waits, "seconds")
        for question in ("Again", "And again"):
            try:
                await (await root.submit(question)).wait()
            except Unanswered as error:
                print("unanswered:", error.reason, "-", error.detail)
        attempts = [
            message
            for entry in await root.entries()
            for message in decode_messages(entry.messages)
            if isinstance(message, AssistantMessage)
        ]
        print("kept attempts:", [attempt.stop for attempt in attempts])
        print("the model sees:", [type(message).__name__ for message in await root.messages()])


asyncio.run(main())
