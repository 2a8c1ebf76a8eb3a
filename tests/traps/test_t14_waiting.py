"""T-14, the waiting part: whoever waits for a person is neither late nor gone, however long that takes. The part with
limits on working time and slots is in tests/subagents/test_limits.py."""

import asyncio
from typing import Any

from perdure import HOUR, Harness, Registry, Settings, ToolResultMessage, UserMessage
from perdure.models.protocol import ModelRequest
from perdure.storage.memory import MemoryStorage
from perdure.testing.clock import FakeClock
from perdure.testing.scripted_model import ScriptedModel, call, say
from perdure.tools import ask_person, subagents

ASKS = call("ask_person", {"question": "Which color?", "wait_hours": 24})


def script(requests: list[str]) -> Any:
    """A parent that gives one job; a child that asks and answers; others just talk."""

    def turn(request: ModelRequest) -> Any:
        read = [str(one.content) for one in request.messages if isinstance(one, ToolResultMessage)]
        first = next(str(one.content) for one in request.messages if isinstance(one, UserMessage))
        if first == "meanwhile":
            requests.append("other")
            return say("sure")
        if "Paint" in first:
            requests.append("child")
            return say(f"painted {read[0]}") if read else ASKS
        requests.append("parent")
        return say(read[0]) if read else call("subagent", {"task": "Paint the fence"})

    return turn


def opened(storage: MemoryStorage, clock: FakeClock, requests: list[str]) -> Any:
    registry = Registry([subagents(), ask_person])
    settings = Settings(gate_timeout=2.0)  # how long a gate may think, not a person
    models = ScriptedModel(script(requests))
    return Harness.open(storage, registry=registry, models=models, settings=settings, clock=clock)


async def parked(harness: Harness) -> None:
    wake = await harness.wait_parked()
    assert not wake.active, "an asking call holds no process"


async def test_a_person_who_takes_an_hour_stops_no_subagent_and_starts_no_second_one() -> None:
    clock, storage, requests = FakeClock(), MemoryStorage(), list[str]()
    async with asyncio.timeout(30):
        async with opened(storage, clock, requests) as harness:
            root = await harness.root(model="scripted:model")
            await root.submit("go", request_id="go")
            await parked(harness)
            (asked,) = await harness.questions()
            assert (asked.since, asked.until) == (clock.now(), clock.now() + 24 * HOUR)
            await clock.advance(HOUR / 2)
            await parked(harness)
        await clock.advance(HOUR / 2)
        async with opened(storage, clock, requests) as harness:  # nobody was there meanwhile
            root = await harness.root()
            await parked(harness)
            assert [question.id for question in await harness.questions()] == [asked.id]
            async with harness.session.transaction() as tx:
                id = tx.create_conversation(owner=None)
            other = await harness.conversation(id)
            await other.configure(model="scripted:model")
            assert (await (await other.submit("meanwhile")).wait()).text == "sure", "others are not held up"
            assert await harness.answer(asked.id, "red") == "delivered"
            answer = await (await root.submit("go", request_id="go")).wait()
            assert answer.text == "painted red"
    assert requests == ["parent", "child", "other", "child", "parent"], "the same child went on, and no second one"


async def test_a_question_that_nobody_answers_is_the_models_to_read_and_no_failure_of_the_child() -> None:
    clock, storage, requests = FakeClock(), MemoryStorage(), list[str]()
    async with asyncio.timeout(30), opened(storage, clock, requests) as harness:
        root = await harness.root(model="scripted:model")
        submission = await root.submit("go")
        await parked(harness)
        await clock.advance(24 * HOUR)
        assert (await submission.wait()).text == "painted no answer within 1 day"
    assert requests == ["parent", "child", "child", "parent"]
