"""Answers that a provider puts off: nothing runs meanwhile, nothing is lost, and nobody pays twice."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from perdure import Extension, Harness, Registry, RetrySettings, Settings, ToolContext
from perdure.models.errors import DeferredLost, ModelError, Overloaded, QuotaExhausted
from perdure.models.messages import UserMessage
from perdure.models.protocol import Deferred, DeferringModel, Event, ModelRequest
from perdure.storage.memory import MemoryStorage
from perdure.testing.clock import FakeClock, settle
from perdure.testing.scripted_model import ScriptedModel, call, later, say
from tests.agent.kit import MODEL, agent, ask, attempts, reports, until


async def test_a_deferred_answer_is_asked_for_when_it_is_worth_asking() -> None:
    clock = FakeClock()
    model = ScriptedModel([later(600, say("by night"), 300)], clock=clock)
    async with agent(model, clock=clock) as (harness, root):
        begun = clock.now()
        submission = await root.submit("no hurry")
        await settle()
        assert harness.wake() == (False, begun + 600)  # a row: nothing runs
        assert (await root.live())["deferred"] == {"since": begun, "until": begun + 600}
        assert (await root.usage())["requests"] == 0
        await clock.advance(600)
        assert harness.wake() == (False, begun + 900)
        await clock.advance(300)
        assert (await submission.wait()).text == "by night"
        assert await attempts(root) == ["stop"]
        assert (await root.usage())["requests"] == 1
        assert (await root.live()).get("deferred") is None
    assert len(model.requests) == 1
    assert len(model.polls) == 2


async def test_it_survives_the_process_and_is_not_requested_again(tmp_path: Path) -> None:
    clock = FakeClock()
    due = clock.now() + 3600
    asked = []
    for part in range(3):
        model = ScriptedModel([later(3600, say("in the morning"))], clock=clock)
        async with Harness.open(tmp_path / "a.db", registry=Registry(), models=model, clock=clock) as harness:
            root = await harness.root(model=MODEL)
            submission = await root.submit("think well", request_id="one")
            await until(lambda harness=harness: harness.wake() == (False, due))
            await clock.advance((1700, 1800, 100)[part])
            if part == 2:
                assert (await submission.wait()).text == "in the morning"
        asked.append((len(model.requests), len(model.polls)))
    assert asked == [(1, 0), (0, 0), (0, 1)]


async def test_tools_follow_a_deferred_answer_and_an_input_waits_for_its_boundary() -> None:
    ext, clock = Extension("desk"), FakeClock()

    @ext.tool(replay="safe")
    async def look(ctx: ToolContext) -> str:
        """Look."""
        return "here"

    model = ScriptedModel([later(60, call("look")), later(60, say("found"))], clock=clock)
    async with agent(model, ext, clock=clock) as (_, root):
        submission = await root.submit("find it")
        await settle()
        steer = await root.submit("quickly", when_busy="steer")
        await clock.advance(60)
        assert await steer.status() == "placed"
        await clock.advance(60)
        assert (await submission.wait()).text == "found"
        assert (await steer.wait()).text == "found"
    assert [len(request.messages) for request in model.requests] == [1, 4]


async def test_an_abort_cancels_it_at_the_provider() -> None:
    clock = FakeClock()
    model = ScriptedModel([later(600, say("never")), say("fine")], clock=clock)
    async with agent(model, clock=clock) as (_, root):
        submission = await root.submit("go")
        await settle()
        await root.abort()
        assert (await submission.settled()).reason == "aborted"
        assert len(model.cancelled) == 1
        assert (await root.live()).get("deferred") is None
        assert await ask(root, "and now?") == "fine"


async def test_an_abort_goes_on_when_the_provider_cannot_be_told() -> None:
    clock = FakeClock()
    model = Stubborn(clock, [Overloaded("no")])
    async with agent(model, clock=clock) as (harness, root):
        submission = await root.submit("go")
        await settle()
        await root.abort()
        assert (await submission.settled()).reason == "aborted"
        assert reports(harness) == ["cancelling a deferred answer"]


class Stubborn(ScriptedModel):
    """Puts one answer off, and fails in these ways when it is asked for it; cancelling fails too."""

    def __init__(self, clock: FakeClock, errors: list[ModelError]) -> None:
        super().__init__([later(60, say("at last")), say("anew")], clock=clock)
        self.errors = errors

    def poll(self, handle: Any, request: ModelRequest) -> AsyncGenerator[Event]:
        if self.errors:
            raise self.errors.pop(0)
        return super().poll(handle, request)

    async def cancel(self, handle: Any) -> None:
        raise Overloaded("cannot cancel")


async def test_a_question_that_fails_in_passing_is_put_again_with_growing_pauses() -> None:
    clock = FakeClock()
    model = Stubborn(clock, [Overloaded("busy")] * 7)
    settings = Settings(retry=RetrySettings(attempts=2, first_delay=10, factor=2, longest_delay=40))
    async with agent(model, clock=clock, settings=settings) as (harness, root):
        submission = await root.submit("go")
        await settle()
        await clock.advance(60)
        for pause in (10, 20, 40, 40, 40, 40, 40):  # longer than a request would be tried: the answer is being made
            assert harness.wake().at == clock.now() + pause
            await clock.advance(pause)
        assert (await submission.wait()).text == "at last"
        assert await attempts(root) == ["stop"]
    assert len(model.requests) == 1


async def test_an_answer_that_the_provider_lost_is_requested_anew() -> None:
    clock = FakeClock()
    model = Stubborn(clock, [DeferredLost("it expired")])
    async with agent(model, clock=clock, settings=Settings(retry=RetrySettings(first_delay=5))) as (_, root):
        submission = await root.submit("go")
        await settle()
        await clock.advance(60)
        await clock.advance(5)
        assert (await submission.wait()).text == "anew"
        assert await attempts(root) == ["error", "stop"]
    assert len(model.requests) == 2


async def test_a_lasting_failure_ends_the_run() -> None:
    clock = FakeClock()
    model = Stubborn(clock, [QuotaExhausted("no money")])
    async with agent(model, clock=clock) as (_, root):
        submission = await root.submit("go")
        await settle()
        await clock.advance(60)
        settled = await submission.settled()
        assert (settled.reason, settled.detail) == ("failed", "quota_exhausted: no money")
        assert (await root.live()).get("deferred") is None


async def test_beyond_the_limit_the_provider_is_told_and_the_run_fails() -> None:
    clock = FakeClock()
    model = ScriptedModel([later(50, say("never"), 50, 50, 50)], clock=clock)
    async with agent(model, clock=clock, settings=Settings(deferred_limit=120)) as (_, root):
        submission = await root.submit("go")
        await settle()
        for _ in range(3):
            await clock.advance(50)
        settled = await submission.settled()
        assert settled.detail is not None
        assert settled.detail.startswith("not_answered")
        assert len(model.cancelled) == 1


@pytest.mark.parametrize("handle", [object(), float("nan"), "x" * 70_000], ids=["object", "nan", "huge"])
async def test_a_handle_that_cannot_be_stored_fails_the_run(handle: Any) -> None:
    class Odd(ScriptedModel):
        async def stream_as(self, name: str, request: ModelRequest) -> AsyncGenerator[Event]:
            yield Deferred(handle, 1.0)

    async with agent(Odd([])) as (_, root):
        settled = await (await root.submit("go")).settled()
        assert str(settled.detail).startswith("bad_request: the handle of a deferred answer")


async def test_a_model_that_can_no_longer_be_asked_fails_with_its_name() -> None:
    clock, storage = FakeClock(), MemoryStorage()
    async with agent(ScriptedModel([later(60, say("x"))], clock=clock), clock=clock, storage=storage) as (_, root):
        submission = await root.submit("go", request_id="one")
        await settle()

    class Plain:
        name, context_window, system_updates = MODEL, None, False

        def model(self, name: str) -> "Plain":
            return self

        def stream(self, request: ModelRequest) -> Any:
            raise AssertionError

        def cost(self, name: str, message: Any) -> None:
            return None

    registry = Registry()
    async with Harness.open(storage, registry=registry, models=Plain(), clock=clock) as harness:
        root = await harness.root()
        submission = await root.submit("go", request_id="one")
        await clock.advance(60)
        assert f"{MODEL} put an answer off" in str((await submission.settled()).detail)


async def test_whoever_cannot_wait_is_answered_at_once() -> None:
    model = ScriptedModel([later(60, say("now"))])
    assert isinstance(model, DeferringModel)
    events = [event async for event in model.stream(ModelRequest([UserMessage("hi")]))]
    assert not any(isinstance(event, Deferred) for event in events)
