"""One run: requests, retries, rounds of tools, and how it ends."""

import asyncio
from typing import Any

import pytest

from perdure import Budget, Extension, RetrySettings, Settings, Terminate, Text, ToolCall, ToolResult, Usage
from perdure.models.errors import AuthFailed, CutOff, Overloaded, QuotaExhausted, RateLimited
from perdure.models.messages import AssistantMessage, decode_messages
from perdure.storage.memory import MemoryStorage
from perdure.testing.clock import FakeClock, settle
from perdure.testing.scripted_model import ScriptedModel, Turn, call, cut, fail, say, think
from tests.agent.kit import Gate, agent, ask, attempts, results


def tools() -> Extension:
    extension = Extension("tools")

    @extension.tool
    async def echo(ctx: Any, text: str = "hi") -> str:
        """Say it again."""
        return text

    @extension.tool
    async def stop(ctx: Any) -> ToolResult:
        """End the run."""
        return ToolResult("stopping", control=Terminate())

    return extension


async def test_a_round_goes_back_to_the_model_with_every_result_in_call_order() -> None:
    extension = Extension("slow")
    gates = {"a": asyncio.Event(), "b": asyncio.Event()}

    @extension.tool
    async def wait_for(ctx: Any, name: str) -> str:
        """Wait."""
        await gates[name].wait()
        return name

    async with agent([[call("wait_for", {"name": "a"}), call("wait_for", {"name": "b"})], "end"], extension) as (
        _,
        root,
    ):
        submission = await root.submit("go")
        await settle()
        gates["b"].set()
        await settle()
        gates["a"].set()
        assert (await submission.wait()).text == "end"
        assert await results(root) == ["a", "b"]


@pytest.mark.parametrize("id", ["same", ""])
async def test_calls_with_one_id_keep_their_own_results_whichever_ends_first(id: str) -> None:
    extension = Extension("slow")
    first = asyncio.Event()

    @extension.tool
    async def wait_for(ctx: Any, name: str) -> str:
        """Wait."""
        if name == "a":
            await first.wait()
        return name

    turn = Turn(tuple(ToolCall(id, "wait_for", {"name": name}) for name in "ab"), stop="tool_calls")
    model = ScriptedModel([turn, "end"])
    if not id:
        model._turns = [turn, "end"]  # the script would give them ids
    async with agent(model, extension) as (_, root):
        submission = await root.submit("go")
        await settle()
        first.set()
        assert (await submission.wait()).text == "end"
        assert await results(root) == ["a", "b"]


async def test_a_retryable_failure_is_tried_again_after_a_durable_pause() -> None:
    clock, storage = FakeClock(), MemoryStorage()
    model = ScriptedModel([fail(Overloaded("busy")), fail(Overloaded("busy")), "one"])
    settings = Settings(retry=RetrySettings(first_delay=10, factor=2))
    async with agent(model, storage=storage, settings=settings, clock=clock) as (harness, root):
        submission = await root.submit("a")
        await settle()
        assert harness.wake() == (False, clock.now() + 10)
        assert (await root.live())["retry"]["attempt"] == 1
        await clock.advance(9)
        assert len(model.requests) == 1
        await clock.advance(1)
        assert len(model.requests) == 2
    async with agent(model, storage=storage, settings=settings, clock=clock) as (harness, root):
        await harness.resume()
        await clock.advance(19)
        assert len(model.requests) == 2
        await clock.advance(1)
        await root.wait_idle()
        assert await type(submission)(harness, root.id, submission.id).status() == "done"
        assert model.requests[0].messages == model.requests[2].messages
        assert await attempts(root) == ["error", "error", "stop"]
        assert await root.live() == {"run": None, "partial": None, "retry": None, "tools": {}, "compactions": {}}


@pytest.mark.parametrize(("asked", "waits"), [(2, 10), (300, 300)])
async def test_the_providers_own_pause_counts_when_it_is_longer(asked: float, waits: float) -> None:
    clock = FakeClock()
    model = ScriptedModel([fail(RateLimited("slowly", retry_after=asked)), "one"])
    async with agent(model, settings=Settings(retry=RetrySettings(first_delay=10)), clock=clock) as (harness, root):
        await root.submit("a")
        await settle()
        assert harness.wake().at == clock.now() + waits


@pytest.mark.parametrize(
    "error", [RateLimited("in days", retry_after=16 * 86_400), QuotaExhausted("no"), AuthFailed("no")]
)
async def test_what_no_pause_can_mend_fails_at_once_with_the_providers_words(error: Any) -> None:
    model = ScriptedModel([fail(error)])
    async with agent(model) as (_, root):
        settled = await (await root.submit("a")).settled()
        assert settled.reason == "failed"
        assert settled.detail == f"{error.code}: {error}"
        assert len(model.requests) == 1


async def test_the_last_attempt_fails_the_run() -> None:
    clock = FakeClock()
    model = ScriptedModel([fail(Overloaded("busy"))] * 3)
    async with agent(model, settings=Settings(retry=RetrySettings(attempts=3)), clock=clock) as (_, root):
        submission = await root.submit("a")
        await settle()
        await clock.advance(100)
        assert (await submission.settled()).detail == "overloaded: busy"
        assert len(model.requests) == 3


async def test_an_abort_ends_a_backoff_at_once() -> None:
    clock = FakeClock()
    async with agent([fail(Overloaded("busy")), "two"], clock=clock) as (_, root):
        submission = await root.submit("a")
        await settle()
        await root.abort()
        assert (await submission.settled()).reason == "aborted"
        assert await ask(root, "b") == "two"


async def test_a_cut_stream_is_kept_for_people_and_not_shown_to_the_model() -> None:
    clock = FakeClock()
    model = ScriptedModel([cut(2, say("one two three")), "whole"])
    async with agent(model, clock=clock) as (_, root):
        submission = await root.submit("a")
        await settle()
        await clock.advance(10)
        assert (await submission.wait()).text == "whole"
        stored = [decode_messages(e.messages)[0] for e in await root.entries() if e.kind == "perdure.assistant"]
        assert isinstance(stored[0], AssistantMessage)
        assert (stored[0].stop, stored[0].content) == ("error", [Text("one two three"[:16])])
        assert len(model.requests[1].messages) == 1


@pytest.mark.parametrize("empty", [say(""), say(" \n"), think("hmm"), Turn()])
async def test_an_empty_answer_is_asked_for_once_more(empty: Turn) -> None:
    model = ScriptedModel([empty, "one"])
    async with agent(model) as (_, root):
        assert await ask(root) == "one"
    async with agent([empty, empty, "never"]) as (_, root):
        settled = await (await root.submit("a")).settled()
        assert (settled.status, settled.reason) == ("unanswered", "empty")
        assert await attempts(root) == ["error", "error"]
        assert await ask(root, "b") == "never"


@pytest.mark.parametrize(("stop", "reason"), [("length", "length"), ("refusal", "refused")])
async def test_a_refusal_and_a_length_stop_leave_the_input_unanswered(stop: Any, reason: str) -> None:
    async with agent([say("I will not", stop=stop), "two"]) as (_, root):
        settled = await (await root.submit("a")).settled()
        assert (settled.status, settled.reason) == ("unanswered", reason)
        assert await ask(root, "b") == "two"


async def test_calls_of_an_answer_that_was_cut_at_the_limit_do_not_run_and_the_model_learns_it() -> None:
    model = ScriptedModel([Turn((ToolCall("1", "echo", {"text": "x"}),), stop="length"), "two"])
    async with agent(model, tools()) as (_, root):
        assert (await (await root.submit("a")).settled()).reason == "length"
        assert await ask(root, "b") == "two"
        assert len(found := await results(root)) == 1
        assert "not run" in found[0]


async def test_a_tool_that_was_not_offered_gets_an_error_result_and_no_task() -> None:
    async with agent([[call("nope"), call("echo")], "end"], tools()) as (harness, root):
        kinds: list[str] = []
        harness.session.listeners.append(lambda p: kinds.extend(c.after.kind for c in p.tasks if c.before is None))
        assert await ask(root) == "end"
        assert [text.split(":")[0] for text in await results(root)] == ["tool_unavailable", "hi"]
        assert kinds.count("perdure.tool") == 1


@pytest.mark.parametrize("arguments", ['{"text":', "[1]", '"x"', "null", "7", '{"text": 5}', '{"other": 1}'])
async def test_arguments_that_do_not_fit_become_an_error_that_the_model_can_mend(arguments: str) -> None:
    async with agent([call("echo", arguments), call("echo", {"text": "x"}), "end"], tools()) as (_, root):
        assert await ask(root) == "end"
        assert [text.split(":")[0] for text in await results(root)] == ["invalid_arguments", "x"]


@pytest.mark.parametrize("by_setting", [True, False])
async def test_a_sequential_round_starts_each_call_after_the_one_before(by_setting: bool) -> None:
    extension = Extension("counting")
    running: list[int] = [0, 0]

    @extension.tool(sequential=not by_setting)
    async def work(ctx: Any) -> str:
        """Work."""
        running[0] += 1
        running[1] = max(running)
        await asyncio.sleep(0)
        await settle()
        running[0] -= 1
        return "worked"

    settings = Settings(parallel_tools=not by_setting)
    names = ["work", "nope", "work", "work"]
    async with agent([[call(name) for name in names], "end"], extension, settings=settings) as (_, root):
        assert await ask(root) == "end"
        assert running[1] == 1
        assert [text.split(":")[0] for text in await results(root)] == [
            "worked",
            "tool_unavailable",
            "worked",
            "worked",
        ]


async def test_a_tool_comes_and_goes_while_the_agent_runs() -> None:
    late = Extension("late")

    @late.tool
    async def extra(ctx: Any) -> str:
        """Extra."""
        return "extra"

    gate, gated = Gate(), Extension("gated")

    @gated.tool
    async def work(ctx: Any) -> str:
        """Work."""
        await gate.stop()
        return "worked"

    turns = [call("work"), call("extra"), call("extra"), say("end")]

    def script(request: Any) -> Turn:
        if len(model.requests) == 3:
            harness.agent.registry.uninstall("late")
        return turns[len(model.requests) - 1]

    model = ScriptedModel(script)
    async with agent(model, gated) as (harness, root):
        submission = await root.submit("go")
        await gate.reached.wait()
        harness.agent.registry.install(late)
        gate.go.set()
        assert (await submission.wait()).text == "end"
        offers = [[offer.name for offer in request.tools] for request in model.requests]
        assert offers[0] == ["work"]
        assert offers[1] == offers[2] == ["work", "extra"]
        assert offers[3] == ["work"]
        assert [text.split(":")[0] for text in await results(root)] == ["worked", "extra", "tool_unavailable"]


async def test_the_run_ends_when_every_result_asks_for_it() -> None:
    model = ScriptedModel([[Text("bye"), call("stop"), call("stop")], "two"])
    async with agent(model, tools()) as (_, root):
        assert await ask(root) == "bye"
        assert len(model.requests) == 1
        assert await ask(root, "b") == "two"


@pytest.mark.parametrize("other", ["echo", "nope"])
async def test_the_run_goes_on_when_one_result_does_not_ask_for_its_end(other: str) -> None:
    async with agent([[call("stop"), call(other)], "end"], tools()) as (_, root):
        assert await ask(root) == "end"


@pytest.mark.parametrize("budget", [Budget(max_turns=1), Budget(max_tokens=100), Budget(max_cost=0.5)])
async def test_a_reached_budget_ends_the_run_at_a_boundary_with_what_it_has(budget: Budget) -> None:
    model = ScriptedModel([call("echo"), "never"], price=lambda usage: 0.5)
    async with agent(model, tools(), settings=Settings(budget=budget)) as (harness, root):
        submission = await root.submit("go")
        assert (await submission.settled()).reason == "budget"
        assert await results(root) == ["hi"]
        assert len(model.requests) == 1
        harness.settings.budget = Budget()
        assert await ask(root) == "never"


async def test_without_a_model_nothing_is_asked_and_the_reason_says_what_to_do() -> None:
    async with agent([], model=None) as (harness, root):
        settled = await (await root.submit("a")).settled()
        assert settled.reason == "no_model"
        assert "configure" in (settled.detail or "")
        harness.settings.default_model = "scripted:model"
        harness.agent.models = ScriptedModel(["one"])
        assert await ask(root, "b") == "one"


async def test_a_model_nobody_knows_fails_the_run_and_another_can_be_chosen() -> None:
    model = ScriptedModel(["one"], names=["scripted:model"])
    async with agent(model, model="other:model") as (_, root):
        assert (await (await root.submit("a")).settled()).detail is not None
        await root.configure(model="scripted:model")
        assert await ask(root, "b") == "one"


async def test_a_model_that_breaks_its_contract_fails_the_run_and_not_the_conversation() -> None:
    def script(request: Any) -> Any:
        if len(request.messages) == 1:
            raise ZeroDivisionError("a bug of the adapter")
        return say("two", usage=Usage(input=1))

    async with agent(script) as (harness, root):
        settled = await (await root.submit("a")).settled()
        assert settled.status == "unanswered"
        assert "ZeroDivisionError" in str(harness.inspect()["reports"])
        assert await ask(root, "b") == "two"


async def test_a_stream_without_an_end_is_cut_off() -> None:
    clock = FakeClock()
    model = ScriptedModel([cut(0, say("x"), CutOff("no end")), "one"])
    async with agent(model, clock=clock) as (_, root):
        submission = await root.submit("a")
        await settle()
        await clock.advance(5)
        assert (await submission.wait()).text == "one"
