"""Running a tool's code: wraps around it, whatever it returns or raises as a result."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from perdure.agent.calls import CallSite, error_result
from perdure.agent.foreign import LOST, asked, being_cancelled, close_quietly
from perdure.agent.parking import Park, Resumed
from perdure.agent.tool_context import ToolContext
from perdure.base.errors import Error, InvalidValue
from perdure.base.text import well_formed
from perdure.extensions.results import Sleep, ToolError, ToolResult, Wait, bounded_text, normalized

Next = Callable[[dict[str, Any]], Awaitable[Any]]


async def invoke(site: CallSite, arguments: dict[str, Any], resumed: Resumed | None = None) -> ToolResult | Park:
    """Run the tool once. Everything it does wrong becomes an error result; cancellation passes through."""
    try:
        env = await asked(site.agent.env, site.run.conversation_id)
    except LOST:
        raise
    except Exception as error:
        site.agent.report(f"tool {site.tool.name}", error)
        return error_result("tool_error", f"its environment is not there: {type(error).__name__}: {error}")
    context = ToolContext(site, env, resumed)
    try:
        result = await _result(site, context, arguments)
        await context.end_output()
    finally:
        await close_quietly(site.agent, env)
    if isinstance(result, Sleep | Wait):
        return Park(result, list(map(bounded_text, context.diagnostics)), context.unstored_output())
    if context.diagnostics:
        lines = [*(result.diagnostics or []), *map(bounded_text, context.diagnostics)]
        result = msgspec.structs.replace(result, diagnostics=lines)
    return result


async def cancel_parked(site: CallSite, arguments: dict[str, Any], resumed: Resumed) -> None:
    """Let the tool clean up the external work of a call that had parked. What goes wrong is reported."""
    if site.tool.on_cancel is None:
        return
    try:
        env = await asked(site.agent.env, site.run.conversation_id)
        try:
            context = ToolContext(site, env, resumed)
            await asked(site.tool.clean_up, context, arguments)
            await context.end_output()
        finally:
            await close_quietly(site.agent, env)
    except LOST:
        raise
    except Exception as error:
        site.agent.report(f"tool {site.tool.name}: cancel", error)


async def _result(
    site: CallSite, context: ToolContext, arguments: dict[str, Any]
) -> ToolResult | Sleep[Any] | Wait[Any]:
    made: list[Any] = []
    try:
        returned = await _wrapped(site, context, made, arguments)(arguments)
    except LOST:
        raise
    except ToolError as error:
        return ToolResult(bounded_text(well_formed(error.what)), is_error=True)
    except asyncio.CancelledError:
        if site.run.abort_requested or being_cancelled():
            raise
        return error_result("tool_error", "the tool cancelled itself")
    except Exception as error:
        return _raised(site, error)
    own = any(returned is value for value in made)
    plain = None if type(returned).__module__ == "builtins" else type(returned)
    try:
        result = normalized(returned, site.tool.signature.returns if own else plain)
    except InvalidValue as error:
        return error_result("tool_error", f"the result cannot be stored: {error}")
    except Exception as error:
        return _raised(site, error)
    if isinstance(result, Sleep | Wait) and not any(result is value for value in made):
        return error_result("invalid_park", "a wrap never parks: the tool itself did not return this")
    return result


def _raised(site: CallSite, error: Exception) -> ToolResult:
    """What the model reads of code that raised; the host gets a report."""
    site.agent.report(f"tool {site.tool.name}", error)
    text = error.what if isinstance(error, Error) else str(error)
    return error_result("tool_error", bounded_text(well_formed(f"{type(error).__name__}: {text}")))


def _wrapped(site: CallSite, context: ToolContext, made: list[Any], stored: dict[str, Any]) -> Next:
    """The tool with its wraps around it. What the tool itself returns is noted in `made`: only that is of the type
    which the tool declares, and only that may park. `stored` are the arguments of the intent."""

    async def innermost(arguments: dict[str, Any]) -> Any:
        returned = await site.tool(context, **site.tool.decode(arguments))
        made.append(returned)
        if isinstance(returned, Sleep | Wait):
            _leave(site, stored, Park(returned, context.diagnostics))
        return returned

    call_next: Next = innermost
    for wrap in site.resolved.wraps:
        call_next = _around(wrap.function, context, call_next)
    return call_next


def _leave(site: CallSite, arguments: dict[str, Any], park: Park) -> None:
    """The tool's code is over and its work goes on outside: a stop before the park is stored cleans up with this."""
    with contextlib.suppress(InvalidValue):  # a checkpoint that is no JSON makes no park
        site.agent.left_parks[site.run.task_id] = arguments, park.kept()


def _around(function: Callable[..., Awaitable[Any]], context: ToolContext, inner: Next) -> Next:
    async def call(arguments: dict[str, Any]) -> Any:
        return await function(context, arguments, inner)

    return call
