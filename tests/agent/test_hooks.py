"""What hooks, gates and wraps may do, and what becomes of it when they go wrong."""

import asyncio
from typing import Any, cast

import pytest

from perdure import AssistantMessage, Block, Extension, Settings, Text, ToolCall, ToolResult, UserMessage
from perdure.models.messages import SystemMessage, ToolResultMessage
from perdure.testing.clock import settle
from perdure.testing.scripted_model import ScriptedModel, call
from tests.agent.kit import agent, ask, reports, results


def echoing(ran: list[str] | None = None) -> Extension:
    extension = Extension("echo")

    @extension.tool
    async def echo(ctx: Any, text: str) -> str:
        """Say it again."""
        (ran if ran is not None else []).append(text)
        return text

    @extension.tool
    async def other(ctx: Any) -> str:
        """Another."""
        return "other"

    return extension


async def hang(ctx: Any, made: Any) -> None:
    await asyncio.Event().wait()


def raising(error: BaseException) -> Any:
    async def hook(ctx: Any, subject: Any) -> Any:
        raise error

    return hook


def giving(value: Any) -> Any:
    async def hook(ctx: Any, subject: Any) -> Any:
        return value

    return hook


FAILING: dict[str, Any] = {
    "raises": raising(ValueError("broken")),
    "raises half a character": raising(ValueError("\ud800")),
    "times out by itself": raising(TimeoutError("a socket")),
    "cancels itself": raising(asyncio.CancelledError()),
    "answers yes": giving(True),
    "answers a text": giving("allow"),
    "leaves no object": giving(ToolCall("1", "echo", None)),
    "leaves a number": giving(ToolCall("1", "echo", 5)),
    "leaves a wrong type": giving(ToolCall("1", "echo", {"text": 5})),
    "leaves what is no json": giving(ToolCall("1", "echo", {"text": {1, 2}})),
    "leaves half a character": giving(ToolCall("1", "echo", {"text": "\ud800"})),
    "blocks with half a character": giving(Block("\ud800")),
    "blocks with no text": giving(Block(5)),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", FAILING)
async def test_a_gate_that_fails_in_any_way_blocks_the_call(name: str) -> None:
    ran: list[str] = []
    gates = Extension("gates")
    gates.before_tool(FAILING[name])
    async with agent([call("echo", {"text": "x"}), "end"], echoing(ran), gates) as (_, root):
        assert await ask(root) == "end"
        (result,) = await results(root)
        assert result.startswith("blocked: ")
        assert ran == []


async def test_a_gate_that_gives_no_answer_in_time_blocks_the_call_and_is_named() -> None:
    ran: list[str] = []
    gates = Extension("gates")
    gates.before_tool(hang)
    settings = Settings(gate_timeout=0.01)
    async with agent([call("echo", {"text": "x"}), "end"], echoing(ran), gates, settings=settings) as (_, root):
        assert await ask(root) == "end"
        assert await results(root) == ["blocked: gate gates.hang gave no answer in time"]
        assert ran == []


async def test_an_abort_ends_a_gate_that_hangs() -> None:
    gates = Extension("gates")
    gates.before_tool(hang)
    async with agent([call("echo", {"text": "x"}), "again"], echoing(), gates) as (_, root):
        submission = await root.submit("a")
        await settle()
        await root.abort()
        assert (await submission.settled()).reason == "aborted"
        assert await ask(root, "b") == "again"


async def test_gates_are_asked_in_the_order_of_the_extensions_until_one_blocks() -> None:
    asked: list[str] = []
    first, second, third = Extension("first"), Extension("second"), Extension("third")

    @first.before_tool
    async def change(ctx: Any, made: ToolCall) -> ToolCall:
        asked.append(made.arguments["text"])
        return made.replace(arguments={"text": made.arguments["text"] + "1"})

    @second.before_tool(tools=["echo"])
    async def block(ctx: Any, made: ToolCall) -> Block | None:
        asked.append(made.arguments["text"])
        return Block("no") if made.arguments["text"] == "bad1" else None

    @second.before_tool(tools=["other"])
    async def elsewhere(ctx: Any, made: ToolCall) -> None:
        asked.append("never")

    @third.before_tool
    async def last(ctx: Any, made: ToolCall) -> None:
        asked.append("last " + made.arguments["text"])

    script = [call("echo", {"text": "good"}), call("echo", {"text": "bad"}), "end"]
    async with agent(script, echoing(), first, second, third) as (_, root):
        assert await ask(root) == "end"
        assert await results(root) == ["good1", "blocked: no"]
        assert asked == ["good", "good1", "last good1", "bad", "bad1"]


BAD_RESULTS: list[Any] = [
    raising(ValueError("x")),
    giving("text"),
    giving(ToolResult("x", details={1: 1})),
    giving(ToolResult(cast(Any, 5))),
]


@pytest.mark.parametrize("bad", BAD_RESULTS)
async def test_a_result_hook_that_fails_is_reported_and_passed_over(bad: Any) -> None:
    after = Extension("after")
    after.after_tool(bad)

    @after.after_tool
    async def mark(ctx: Any, result: ToolResult) -> ToolResult:
        return ToolResult(f"{result.content}!")

    async with agent([call("echo", {"text": "x"}), "end"], echoing(), after) as (harness, root):
        assert await ask(root) == "end"
        assert await results(root) == ["x!"]
        assert len(reports(harness)) == 1


async def test_result_hooks_see_every_result_of_a_call_also_blocked_aborted_and_of_a_tool_that_is_gone() -> None:
    seen: list[str] = []
    extension = Extension("watching")

    @extension.after_tool
    async def after(ctx: Any, result: ToolResult) -> None:
        seen.append("after " + str(result.content).split(":")[0])

    @extension.on_abort
    async def aborted(ctx: Any, result: ToolResult) -> ToolResult:
        seen.append("abort")
        return ToolResult("aborted: cleaned up", is_error=True)

    @extension.before_tool(tools=["other"])
    async def no(ctx: Any, made: ToolCall) -> Block:
        return Block("no")

    slow = Extension("slow")

    @slow.tool
    async def wait(ctx: Any) -> str:
        """Wait."""
        await asyncio.Event().wait()
        return "never"

    script = [[call("other"), call("echo", {"text": 5})], call("wait")]
    async with agent(script, echoing(), slow, extension) as (_, root):
        await root.submit("a")
        await settle(200)
        await root.abort()
        assert sorted(seen) == ["abort", "after aborted", "after blocked", "after invalid_arguments"]
        assert (await results(root))[-1] == "aborted: cleaned up"


UNPAIRED: dict[str, Any] = {
    "an orphan": [UserMessage("a"), ToolResultMessage("9", "echo", "x")],
    "a call without result": [UserMessage("a"), AssistantMessage([ToolCall("7", "echo", {})])],
    "a call twice": [UserMessage("a")] + [AssistantMessage([Text("x"), ToolCall("7", "echo", {})])] * 2,
    "an empty message": [UserMessage("")],
    "a system message": [SystemMessage(sections={"x": "y"}), UserMessage("a")],
    "nothing": [],
    "no messages": ["a", 5],
    "no list": "text",
    "half a character": [UserMessage("\ud800")],
    "arguments that are no json": [UserMessage("a"), AssistantMessage([ToolCall("7", "echo", {"x": {1}})])],
}


@pytest.mark.parametrize("name", UNPAIRED)
async def test_what_a_request_hook_gives_never_breaks_the_request(name: str) -> None:
    hooks = Extension("hooks")
    hooks.before_request(giving(UNPAIRED[name]))
    async with agent(["one", "two"], hooks) as (_, root):
        assert await ask(root) == "one"
        assert await ask(root) == "two"


async def test_a_request_hook_changes_this_request_only_and_cannot_change_what_is_stored() -> None:
    hooks, turn = Extension("hooks"), iter((True, False, False))

    @hooks.before_request
    async def add(ctx: Any, messages: list[Any]) -> Any:
        for message in messages:
            if isinstance(message, AssistantMessage):
                message.content.clear()
        return [*messages, UserMessage("hidden")] if next(turn) else None

    model = ScriptedModel(["one", "two", "three"])
    async with agent(model, hooks) as (_, root):
        await ask(root, "a")
        await ask(root, "b")
        assert [len(request.messages) for request in model.requests] == [2, 3]
        assert isinstance(said := model.requests[1].messages[1], AssistantMessage)
        assert said.content == [Text("one")]


@pytest.mark.parametrize("point", ["before_request", "after_response"])
@pytest.mark.parametrize("error", [ValueError("x"), asyncio.CancelledError()])
async def test_an_observer_that_raises_is_reported_and_the_run_goes_on(point: str, error: BaseException) -> None:
    hooks = Extension("hooks")
    hooks.hook(point)(raising(error))
    async with agent(["one"], hooks) as (harness, root):
        assert await ask(root) == "one"
        assert reports(harness) == ["hook hooks.hook"]


async def test_a_response_hook_sees_every_response_and_cannot_change_it() -> None:
    hooks, seen = Extension("hooks"), []

    @hooks.after_response
    async def watch(ctx: Any, message: AssistantMessage) -> None:
        seen.append(message.stop)
        message.content.clear()

    async with agent([call("echo", {"text": "x"}), "end"], echoing(), hooks) as (_, root):
        assert await ask(root) == "end"
        assert seen == ["tool_calls", "stop"]


async def test_wraps_go_around_whichever_tool_wins_in_order_and_are_checked_like_a_tool() -> None:
    first, second = Extension("first"), Extension("second")

    @first.wrap_tool("echo")
    async def inner(ctx: Any, args: dict[str, Any], call_next: Any) -> Any:
        return f"<{await call_next({'text': args['text'] + '1'})}>"

    @second.wrap_tool("echo")
    async def outer(ctx: Any, args: dict[str, Any], call_next: Any) -> Any:
        if args["text"] == "bad":
            return await call_next({"text": 5})
        return f"[{await call_next(args)}]"

    script = [call("echo", {"text": "x"}), call("echo", {"text": "bad"}), "end"]
    async with agent(script, first, second, echoing()) as (_, root):
        assert await ask(root) == "end"
        good, bad = await results(root)
        assert good == "[<x1>]"
        assert bad.startswith("tool_error")


async def test_a_hook_keeps_what_it_decided_in_a_memo() -> None:
    hooks, found = Extension("hooks"), []

    @hooks.before_tool
    async def gate(ctx: Any, made: ToolCall) -> None:
        found.append(await ctx.memo("asked", "yes"))
        found.append(await ctx.memo("asked", "no"))

    async with agent([call("echo", {"text": "x"}), "end"], echoing(), hooks) as (_, root):
        await ask(root)
        assert found == ["yes", "yes"]


async def test_hooks_that_look_at_one_call_may_be_limited_to_some_tools() -> None:
    hooks, seen = Extension("hooks"), list[str]()

    @hooks.after_tool(tools=["other"])
    async def after(ctx: Any, result: ToolResult) -> None:
        seen.append(f"after {result.content}")

    @hooks.on_abort(tools=["other"])
    async def aborted(ctx: Any, result: ToolResult) -> None:
        seen.append("aborted")

    async with agent([[call("echo", {"text": "x"}), call("other")], "end"], echoing(), hooks) as (_, root):
        assert await ask(root) == "end"
        assert seen == ["after other"]


async def test_an_extension_that_a_conversation_did_not_select_is_not_asked() -> None:
    seen: list[str] = []

    def asking(name: str) -> Extension:
        extension = Extension(name)
        for point in ("before_request", "after_response", "before_tool", "after_tool", "after_tools", "on_yield"):

            async def hook(ctx: Any, subject: Any, point: str = point) -> None:
                seen.append(f"{name} {point}")

            extension.hook(point)(hook)
        return extension

    script = [call("echo", {"text": "x"}), "end"]
    extensions = ["second", "echo", "first"]
    async with agent(script, echoing(), *map(asking, ("first", "second", "third")), extensions=extensions) as (_, root):
        assert await ask(root) == "end"
        points = ["before_request", "after_response", "before_tool", "after_tool", "after_tools"]
        points += ["before_request", "after_response", "on_yield"]
        assert seen == [f"{name} {point}" for point in points for name in ("second", "first")]
