"""Tools: what is refused when they are defined, and what they do when called."""

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from perdure.base.errors import InvalidDefinition, InvalidValue
from perdure.extensions.extension import Extension
from perdure.extensions.tool import Tool
from perdure.models.messages import ToolOffer


async def run_ci(ctx: Any, ref: str, deep: bool = False) -> str:
    """Build a ref.

    Args:
        ref: What to build.
    """
    return f"{ctx}: {ref} {deep}"


def run_slow(ctx: Any, ref: str) -> str:
    """Build a ref in a thread."""
    return threading.current_thread().name


def refusal(function: Any, **options: Any) -> str:
    with pytest.raises(InvalidDefinition) as refused:
        Tool(function, **options)
    return str(refused.value)


def test_a_tool_says_what_a_model_needs_to_know() -> None:
    tool = Tool(run_ci, replay="safe")
    assert tool.offer == ToolOffer("run_ci", "Build a ref.", tool.parameters)
    assert tool.parameters == {
        "type": "object",
        "properties": {
            "ref": {"type": "string", "description": "What to build."},
            "deep": {"type": "boolean", "default": False},
        },
        "required": ["ref"],
        "additionalProperties": False,
    }
    assert (tool.replay, tool.blocking, tool.sequential) == ("safe", False, False)
    assert Tool(run_ci).replay == "unsafe"
    assert repr(tool) == "Tool('run_ci')"


async def test_a_tool_can_be_called_in_a_unit_test() -> None:
    assert await Tool(run_ci)("ctx", ref="main") == "ctx: main False"
    assert await Tool(run_ci)("ctx", "main", deep=True) == "ctx: main True"


async def test_a_blocking_tool_runs_in_a_thread() -> None:
    assert await Tool(run_slow, blocking=True)(None, ref="x") != threading.current_thread().name


async def test_a_parameter_may_have_any_name() -> None:
    async def odd(ctx: Any, self: int, function: int, args: int, kwargs: int, name: int) -> int:
        """Add."""
        return self + function + args + kwargs + name

    tool = Tool(odd)
    arguments = {"self": 1, "function": 2, "args": 3, "kwargs": 4, "name": 5}
    assert await tool(None, **tool.decode(arguments)) == 15


async def test_a_method_of_an_object_is_a_tool() -> None:
    class Service:
        async def ask(self, ctx: Any, question: str) -> str:
            """Ask the service."""
            return question.upper()

    tool = Tool(Service().ask)
    assert list(tool.signature.parameters) == ["question"]
    assert await tool(None, question="a") == "A"


def test_name_and_description_can_be_given() -> None:
    tool = Tool(run_ci, name="ci", description="Build.")
    assert (tool.name, tool.description, tool.offer.name) == ("ci", "Build.", "ci")


@pytest.mark.parametrize("name", ["", "a b", "a.b", "ä", "a" * 65, "../x", "a\n"])
def test_a_name_that_some_provider_refuses_is_refused(name: str) -> None:
    assert refusal(run_ci, name=name) == f"not a tool name: {name!a} (1 to 64 letters, digits, _ and -)"


def test_a_lambda_needs_a_name() -> None:
    assert refusal(lambda ctx: None, blocking=True).startswith("not a tool name: '<lambda>'")


def test_what_holds_everything_up_is_refused() -> None:
    assert refusal(run_slow) == (
        "tool run_slow: a sync function would hold everything up "
        "(make it async, or pass blocking=True to run it in a thread)"
    )
    assert refusal(run_ci, blocking=True) == "tool run_ci: an async function is not blocking"


def test_generators_are_refused() -> None:
    async def streams(ctx: Any) -> AsyncIterator[str]:
        """Stream."""
        yield ""

    def yields(ctx: Any) -> Iterator[str]:
        """Stream."""
        yield ""

    assert refusal(streams).startswith("tool streams: a generator has no result")
    assert refusal(yields, blocking=True).startswith("tool yields: a generator has no result")


@pytest.mark.parametrize("thing", [functools.partial(run_ci, ref="x"), Tool(run_ci), "run_ci", int])
def test_only_a_function_becomes_a_tool(thing: Any) -> None:
    assert refusal(thing).startswith("a tool is a function, not ")


def test_a_tool_needs_a_description_that_can_be_sent() -> None:
    async def silent(ctx: Any) -> None: ...

    assert refusal(silent) == "tool silent: it has no description (write a docstring)"
    assert refusal(silent, description="  ").startswith("tool silent: it has no description")
    assert refusal(silent, description="half \ud800") == (
        "tool silent: it cannot be told to a model: text with half a surrogate pair at /description"
    )


def test_an_unknown_replay_policy_is_refused() -> None:
    assert refusal(run_ci, replay="always") == 'tool run_ci: replay is "safe" or "unsafe", not \'always\''


def test_preparing_arguments_is_a_sync_function() -> None:
    async def repair(arguments: dict[str, Any]) -> dict[str, Any]:
        return arguments

    expected = "tool run_ci: prepare_arguments is a sync function of the arguments"
    assert refusal(run_ci, prepare_arguments=repair) == expected
    assert refusal(run_ci, prepare_arguments={}) == expected


def test_arguments_are_typed_and_nothing_is_converted() -> None:
    tool = Tool(run_ci)
    assert tool.decode({"ref": "a", "deep": True}) == {"ref": "a", "deep": True}
    with pytest.raises(InvalidValue) as refused:
        tool.decode({"ref": "a", "deep": "yes"})
    assert refused.value.path == "/deep"


async def both(ctx: Any, ref: str, deep: bool) -> None: ...


async def alone(ctx: Any) -> None: ...


async def by_name(ctx: Any, *, deep: bool, ref: str) -> None: ...


@pytest.mark.parametrize("function", [both, alone, by_name])
def test_cancel_takes_the_parameters_or_the_context_alone_and_comes_back_unchanged(function: Any) -> None:
    tool = Tool(run_ci)
    assert tool.cancel(function) is function
    assert tool.on_cancel is function


async def nothing() -> None: ...


async def some(ctx: Any, ref: str) -> None: ...


async def other(ctx: Any, ref: str, deep: bool, more: int) -> None: ...


async def anything(ctx: Any, **arguments: Any) -> None: ...


async def positional(ctx: Any, ref: str, deep: bool, /) -> None: ...


@pytest.mark.parametrize("function", [nothing, some, other, anything, positional])
def test_a_cancel_that_could_not_be_called_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(InvalidDefinition) as refused:
        Tool(run_ci).cancel(function)
    assert str(refused.value) == "tool run_ci: cancel takes (ctx, ref, deep) or (ctx)"


def test_cancel_is_async_and_there_is_one() -> None:
    tool = Tool(run_ci)
    with pytest.raises(InvalidDefinition, match="cancel is an async function"):
        tool.cancel(run_slow)
    tool.cancel(alone)
    with pytest.raises(InvalidDefinition, match="cancel is defined twice"):
        tool.cancel(both)


def test_an_installed_tool_takes_no_cancel_any_more() -> None:
    ops = Extension("ops")
    tool = ops.tool(run_ci)
    ops.freeze()
    with pytest.raises(InvalidDefinition, match="the tool is installed"):
        tool.cancel(alone)


async def test_a_cancelled_call_of_a_blocking_tool_ends_at_once() -> None:
    go = threading.Event()

    def waits(ctx: Any) -> None:
        """Wait."""
        go.wait(10)

    call = asyncio.ensure_future(Tool(waits, blocking=True)(None))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    go.set()
