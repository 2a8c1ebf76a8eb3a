"""A gate that fails in any way blocks its call, or holds it back; it never lets it through."""

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest

from perdure import Extension, Harness, HookContext, Registry, Settings, ToolCall, ToolContext
from perdure.events import ToolEnd
from perdure.storage.memory import MemoryStorage
from perdure.testing.clock import FakeClock, settle
from perdure.testing.scripted_model import ScriptedModel, call
from perdure.tools import approvals
from tests.agent.kit import agent, reports, results

TURNS: list[Any] = [call("publish"), "fine"]
LATER = 3600.0


def press(ledger: list[str]) -> Extension:
    ext = Extension("press")

    @ext.tool
    async def publish(ctx: ToolContext[Any]) -> str:
        """Publish."""
        ledger.append("published")
        return "published"

    return ext


def guard(answer: Callable[[ToolCall], Any]) -> Extension:
    ext = Extension("guard")

    @ext.before_tool
    async def gate(ctx: HookContext, made: ToolCall) -> Any:
        found = answer(made)
        return await found if asyncio.iscoroutine(found) else found

    return ext


def raises(made: ToolCall) -> Any:
    raise RuntimeError("the policy server is down")


async def cancels_itself(made: ToolCall) -> None:
    raise asyncio.CancelledError


async def asks_a_program_that_is_killed(made: ToolCall) -> Any:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    program = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    out, _ = await program.communicate()
    return {"allow": None}[out.decode()]  # what it would have written


async def hangs(made: ToolCall) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    "answer",
    [
        raises,
        cancels_itself,
        asks_a_program_that_is_killed,
        lambda made: True,
        lambda made: "allow",
        lambda made: {"allow": True},
        lambda made: made.replace(arguments=None),
        lambda made: made.replace(arguments={"force": True}),
        lambda made: made.replace(arguments={"x": float("nan")}),
        lambda made: made.replace(arguments={"x": object()}),
    ],
)
async def test_a_gate_that_fails_or_answers_nonsense_blocks_the_call_and_the_run_goes_on(answer: Any) -> None:
    ledger: list[str] = []
    async with agent(TURNS, press(ledger), guard(answer)) as (_, root):
        assert (await (await root.submit("publish it")).wait()).text == "fine"
        (text,) = await results(root)
    assert ledger == []
    assert text.startswith("blocked: ")
    assert "gate" in text


@pytest.mark.parametrize("answer", [raises, lambda made: True])
async def test_the_failure_names_the_gate_and_is_reported(answer: Any) -> None:
    async with agent(TURNS, press([]), guard(answer)) as (harness, root):
        async with root.events() as events:
            await (await root.submit("publish it")).wait()
            while not isinstance(event := await anext(events), ToolEnd):
                pass
        assert event.is_error
        assert (await results(root))[0].startswith("blocked: gate guard")
        assert reports(harness) == [f"gate {(await results(root))[0].split()[2]}"]


async def test_a_gate_that_does_not_answer_in_time_blocks_the_call() -> None:
    ledger: list[str] = []
    settings = Settings(gate_timeout=0.01)
    async with agent(TURNS, press(ledger), guard(hangs), settings=settings) as (_, root):
        assert (await (await root.submit("publish it")).wait()).text == "fine"
        assert (await results(root))[0].endswith("gave no answer in time")
    assert ledger == []


async def test_without_a_limit_it_holds_the_call_back_for_all_to_see() -> None:
    ledger: list[str] = []
    clock = FakeClock()
    async with agent(TURNS, press(ledger), guard(hangs), clock=clock) as (harness, root):
        submission = await root.submit("publish it")
        await settle()
        await clock.advance(LATER)
        (row,) = [row for row in harness.inspect()["tasks"] if "gate" in row]
        assert row["kind"] == "perdure.tool"
        assert row["gate"]["name"].startswith("guard")
        assert row["gate"]["seconds"] == LATER
        await root.abort()
        assert (await submission.settled()).status == "unanswered"
        assert not any("gate" in row for row in harness.inspect()["tasks"])
    assert ledger == []


async def test_a_restart_while_it_hangs_asks_it_again() -> None:
    ledger: list[str] = []
    asked: list[int] = []

    async def hangs_once(made: ToolCall) -> None:
        asked.append(len(asked))
        if len(asked) == 1:
            await hangs(made)

    storage = MemoryStorage()
    async with agent(TURNS, press(ledger), guard(hangs_once), storage=storage) as (_, root):
        await root.submit("publish it")
        await settle()
        left = storage.copy()
    registry = Registry([press(ledger), guard(hangs_once)])
    async with Harness.open(left, registry=registry, models=ScriptedModel(["fine"])) as harness:
        assert ledger == []
        await harness.resume()
        await (await harness.root()).wait_idle()
    assert asked == [0, 1]
    assert ledger == ["published"]


async def test_a_restart_with_a_gate_that_still_fails_runs_nothing() -> None:
    ledger: list[str] = []
    storage = MemoryStorage()
    async with agent(TURNS, press(ledger), guard(hangs), storage=storage) as (_, root):
        await root.submit("publish it")
        await settle()
        left = storage.copy()
    registry = Registry([press(ledger), guard(raises)])
    async with Harness.open(left, registry=registry, models=ScriptedModel(["fine"])) as harness:
        await harness.resume()
        root = await harness.root()
        await root.wait_idle()
        assert (await results(root))[0].startswith("blocked: gate guard")
    assert ledger == []


async def test_the_approval_gate_fails_closed_too() -> None:
    ledger: list[str] = []
    for answer in (raises, cancels_itself, lambda made: None, lambda made: "", lambda made: 1):
        async with agent(TURNS, press(ledger), approvals(answer)) as (_, root):
            assert (await (await root.submit("publish it")).wait()).text == "fine"
            assert (await results(root))[0].startswith("blocked: gate approvals")
    assert ledger == []
