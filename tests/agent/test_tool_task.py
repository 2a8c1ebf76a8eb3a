"""One call: every kind of result, what hostile tools do, and what a crash makes of it."""

import asyncio
import math
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from perdure import (
    Attachment,
    Extension,
    Harness,
    InvocationEnded,
    Registry,
    Sleep,
    Text,
    ToolError,
    ToolResult,
    Usage,
)
from perdure.base.errors import InvalidDecision
from perdure.extensions.results import RESULT_BYTES
from perdure.models.messages import ToolResultMessage
from perdure.storage.memory import MemoryStorage
from perdure.testing.scripted_model import ScriptedModel, call
from tests.agent.kit import MODEL, Gate, agent, ask, reports, results, until


@dataclass
class Point:
    x: int
    y: int


def giving(value: Any) -> Extension:
    """A tool that returns this, or raises it."""
    extension = Extension("giving")

    @extension.tool
    async def give(ctx: Any) -> Any:
        """Give."""
        if isinstance(value, BaseException):
            raise value
        return value

    return extension


GIVEN: dict[str, tuple[Any, str]] = {
    "text": ("plain", "plain"),
    "nothing": (None, "(no output)"),
    "an object that is not annotated": (Point(1, 2), "tool_error: the result cannot be stored"),
    "a list": ([1, "two", None], '[1,"two",null]'),
    "a result": (ToolResult("said"), "said"),
    "a tool error": (ToolError("exactly this"), "exactly this"),
    "a lone surrogate": ("a\ud800b", "a\ufffdb"),
    "a surrogate in an error": (ValueError("\udfff"), "tool_error: ValueError: \ufffd"),
    "a surrogate in json": (["\ud800"], "tool_error: the result cannot be stored"),
    "not a number": (math.nan, "tool_error: the result cannot be stored"),
    "bytes": (b"raw", "tool_error: the result cannot be stored"),
    "an object": (object(), "tool_error: the result cannot be stored"),
    "details that are no json": (ToolResult("x", details={1: 2}), "tool_error: the result cannot be stored"),
    "content of a wrong type": (ToolResult(5), "tool_error: the result cannot be stored"),  # type: ignore[arg-type]
    "usage of a wrong type": (ToolResult("x", usage="3"), "tool_error"),  # type: ignore[arg-type]
    "usage below nothing": (ToolResult("x", usage=Usage(cost=-1.0)), "tool_error"),
    "a cost that is no number": (ToolResult("x", usage=Usage(cost=math.nan)), "tool_error"),
    "control of a wrong type": (ToolResult("x", control="stop"), "tool_error"),  # type: ignore[arg-type]
    "diagnostics that are one text": (ToolResult("x", diagnostics="abc"), "tool_error"),  # type: ignore[arg-type]
    "an attachment of no text": (ToolResult([Attachment(5, "x")]), "tool_error"),  # type: ignore[arg-type]
    "a sleep without anything": (Sleep(), "invalid_park"),
    "a stray cancellation": (asyncio.CancelledError(), "tool_error: the tool cancelled itself"),
    "an error group": (ExceptionGroup("many", [ValueError("one")]), "tool_error: ExceptionGroup"),
    "a use of an ended call": (InvocationEnded("over"), "tool_error: InvocationEnded"),
}


@pytest.mark.parametrize("name", GIVEN)
async def test_whatever_a_tool_gives_the_run_goes_on(name: str) -> None:
    value, expected = GIVEN[name]
    model = ScriptedModel([call("give"), "end", "again"])
    async with agent(model, giving(value)) as (_, root):
        assert await ask(root) == "end"
        (result,) = await results(root)
        assert result.startswith(expected)
        assert await ask(root) == "again"


async def test_an_error_flag_of_a_wrong_type_does_not_spoil_the_transcript() -> None:
    storage, value = MemoryStorage(), ToolResult("x", is_error="yes")  # type: ignore[arg-type]
    async with agent([call("give"), "end"], giving(value), storage=storage) as (_, root):
        await ask(root)
    async with agent(["again"], storage=storage) as (_, root):
        assert await ask(root) == "again"
        assert [m.is_error for m in await root.messages() if isinstance(m, ToolResultMessage)] == [True]


HUGE = ["é" * 20_000_000, ToolResult([Text("x" * 10_000_000)]), {"rows": ["r" * 99] * 90_000}]


@pytest.mark.parametrize("value", HUGE, ids=["text", "blocks", "json"])
@pytest.mark.slow
async def test_a_huge_result_keeps_its_head_and_tail_and_tells_what_is_missing(value: Any) -> None:
    async with agent([call("give"), "end"], giving(value)) as (_, root):
        assert await ask(root) == "end"
        (result,) = await results(root)
        assert len(result.encode()) < RESULT_BYTES + 500
        assert "bytes of this result were left out" in result
        assert sum(len(e.messages) + len(e.data) for e in await root.entries()) < 2 * RESULT_BYTES


async def test_details_are_for_people_diagnostics_for_the_model_and_usage_is_booked_once() -> None:
    value = ToolResult("said", details={"rows": 3}, diagnostics=["careful", "\ud800"], usage=Usage(input=7, cost=0.25))
    storage = MemoryStorage()
    async with agent([call("give"), "end"], giving(value), storage=storage) as (harness, root):
        await ask(root)
        assert await results(root) == ["said\n\n[diagnostics]\ncareful\n\ufffd"]
        stored = next(e for e in await root.entries() if e.kind == "perdure.tool_result")
        assert msgspec.json.decode(stored.data)["details"] == {"rows": 3}
        before = await harness.usage()
        assert (before["input"], before["cost"]) == (207, 0.25)
    async with agent([], storage=storage) as (harness, _):
        assert await harness.usage() == before


async def test_a_typed_value_is_kept_as_structured() -> None:
    extension = Extension("typed")

    @extension.tool
    async def give(ctx: Any) -> Point:
        """Give."""
        return Point(1, 2)

    async with agent([call("give"), "end"], extension) as (_, root):
        await ask(root)
        assert await results(root) == ['{"x":1,"y":2}']
        stored = next(e for e in await root.entries() if e.kind == "perdure.tool_result")
        assert msgspec.json.decode(stored.data)["structured"] == {"x": 1, "y": 2}


async def test_a_tool_that_changes_its_arguments_does_not_change_what_the_model_wrote() -> None:
    extension = Extension("changing")

    @extension.tool
    async def change(ctx: Any, data: dict[str, Any]) -> str:
        """Change."""
        data["more"] = "x"
        return "changed"

    @extension.before_tool
    async def gate(ctx: Any, made: Any) -> None:
        made.arguments["data"]["gate"] = "y"

    model = ScriptedModel([call("change", {"data": {}}), "end"])
    async with agent(model, extension) as (_, root):
        await ask(root)
        assert '"more"' not in str(await root.messages()).replace("'", '"')
        assert '"gate"' not in str(await root.messages()).replace("'", '"')


POLICIES = [("safe", "safe", 2), ("unsafe", "safe", 1), ("safe", "unsafe", 1)]


@pytest.mark.parametrize(("recorded", "today", "runs"), POLICIES)
@pytest.mark.parametrize("gated", [True, False])
async def test_a_cut_call_runs_again_only_if_it_was_and_is_safe(
    recorded: Any, today: Any, runs: int, gated: bool
) -> None:
    gate, ran = Gate(), list[str]()

    def tool(replay: Any) -> Extension:
        extension = Extension("cut")

        @extension.tool(replay=replay)
        async def work(ctx: Any) -> str:
            """Work."""
            key = await ctx.memo("key", f"key-{len(ran)}")
            ran.append(key)
            ctx.output("half\n")
            await gate.stop()
            return f"worked with {key}"

        if gated:

            @extension.before_tool
            async def allow(ctx: Any, call: Any) -> None:
                return None

        return extension

    storage = MemoryStorage()
    turns: list[Any] = [call("work"), "end"]
    async with agent(ScriptedModel.by_progress(turns), tool(recorded), storage=storage) as (_, root):
        submission = await root.submit("go")
        await gate.reached.wait()
        await until_output(root)
    gate.go.set()
    async with agent(ScriptedModel.by_progress(turns), tool(today), storage=storage) as (harness, root):
        await harness.resume()
        await root.wait_idle()
        assert await type(submission)(harness, root.id, submission.id).status() == "done"
        (result,) = await results(root)
        assert ran == ["key-0"] * runs
        if runs == 2:
            assert result == "worked with key-0"
        else:
            assert result.startswith("interrupted")
            assert result.endswith("Output so far:\nhalf\n")


async def until_output(root: Any) -> None:
    """Wait until a call's output is committed."""
    for _ in range(1000):
        if any(slot.get("output") for slot in (await root.live())["tools"].values()):
            return
        await asyncio.sleep(0.005)
    raise AssertionError("no output came")


async def test_a_cut_call_whose_tool_is_gone_is_interrupted() -> None:
    storage, gate = MemoryStorage(), Gate()
    extension = Extension("gone")

    @extension.tool(replay="safe")
    async def work(ctx: Any) -> str:
        """Work."""
        await gate.stop()
        return "worked"

    turns: list[Any] = [call("work"), "end"]
    async with agent(ScriptedModel.by_progress(turns), extension, storage=storage) as (_, root):
        await root.submit("go")
        await gate.reached.wait()
    async with agent(ScriptedModel.by_progress(turns), storage=storage) as (harness, root):
        await harness.resume()
        await root.wait_idle()
        assert (await results(root))[0].startswith("interrupted")


async def test_an_abort_in_a_tool_gives_an_aborted_result_with_its_output() -> None:
    gate, extension = Gate(), Extension("slow")

    @extension.tool
    async def work(ctx: Any) -> str:
        """Work."""
        ctx.output("half\n")
        await gate.stop()
        return "worked"

    async with agent([call("work"), "again"], extension) as (_, root):
        submission = await root.submit("go")
        await until_output(root)
        await root.abort()
        assert (await submission.settled()).reason == "aborted"
        (result,) = await results(root)
        assert result.startswith("aborted")
        assert result.endswith("half\n")
        assert await ask(root) == "again"


async def test_a_tool_that_swallows_its_cancellation_is_still_aborted() -> None:
    gate, extension = Gate(), Extension("stubborn")

    @extension.tool
    async def work(ctx: Any) -> str:
        """Work."""
        try:
            await gate.stop()
        except asyncio.CancelledError:
            pass
        return "done all the same"

    async with agent([call("work"), "again"], extension) as (_, root):
        submission = await root.submit("go")
        await gate.reached.wait()
        await root.abort()
        assert (await submission.settled()).reason == "aborted"
        assert (await results(root))[0].startswith("aborted")


@pytest.mark.parametrize("where", ["make", "close"])
async def test_an_environment_that_fails_becomes_a_tool_error_or_a_report(where: str) -> None:
    class Broken:
        async def close(self) -> None:
            raise OSError("it hangs")

    def env(conversation: Any, cwd: Any) -> Any:
        if where == "make":
            raise OSError("no such machine")
        return Broken()

    models = ScriptedModel([call("give"), "end"])
    registry = Registry([giving("given")])
    async with Harness.open(MemoryStorage(), registry=registry, models=models, env=env) as harness:
        root = await harness.root(model=MODEL)
        assert await ask(root) == "end"
        (result,) = await results(root)
        assert result.startswith("tool_error: its environment" if where == "make" else "given")
        assert reports(harness)


async def test_a_context_that_is_used_after_its_call_raises() -> None:
    kept: list[Any] = []
    extension = Extension("keeping")

    @extension.tool
    async def keep(ctx: Any) -> str:
        """Keep."""
        kept.append(ctx)
        with pytest.raises(InvalidDecision):
            async with ctx.transaction() as tx:
                tx.complete(1)
        return "kept"

    async with agent([call("keep"), "end"], extension) as (_, root):
        assert await ask(root) == "end"
        assert await results(root) == ["kept"]
        await until(lambda: kept)
        ctx = kept[0]
        for use in (lambda: ctx.output("x"), lambda: ctx.diagnostic("x"), ctx.transaction, ctx.now, ctx.conversation):
            with pytest.raises(InvocationEnded):
                use()
        for act in (ctx.memo("x", 1), ctx.details(1), ctx.wait_task(1), ctx.create_task(1), ctx.read(None)):
            with pytest.raises(InvocationEnded):
                await act
