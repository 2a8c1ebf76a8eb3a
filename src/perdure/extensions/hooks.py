"""Hooks, sections and wraps: how extensions step into what the agent does."""

import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import msgspec

from perdure.base.errors import InvalidDefinition
from perdure.extensions.api import HookContext, SectionContext, ToolContext
from perdure.extensions.signature import signature_of
from perdure.extensions.tool import Tool, check_tool_name

HOOK_POINTS: Final = (
    "before_request",
    "after_response",
    "before_tool",
    "after_tool",
    "on_abort",
    "on_yield",
    "after_tools",
    "after_run",
    "before_compact",
)
TOOL_POINTS: Final = ("before_tool", "after_tool", "on_abort")
"""Hook points that look at one call, and so may be limited to some tools."""

HookFunction = Callable[[HookContext, Any], Awaitable[Any]]
SectionFunction = Callable[[SectionContext], Awaitable[str | None]]
CallNext = Callable[[dict[str, Any]], Awaitable[Any]]
"""Goes on to the tool, or to the next wrap around it, with these arguments."""
WrapFunction = Callable[[ToolContext, dict[str, Any], CallNext], Awaitable[Any]]


class Hook(msgspec.Struct, frozen=True):
    """A function at a hook point. `tools` limits it to calls of these tools."""

    point: str
    function: HookFunction
    tools: frozenset[str] | None = None
    extension: str = ""

    @property
    def name(self) -> str:
        """How reports and reasons call it: the extension, then the function."""
        return f"{self.extension}.{getattr(self.function, '__name__', self.point)}"

    def concerns(self, tool: str) -> bool:
        """Whether it looks at calls of this tool."""
        return self.tools is None or tool in self.tools


class Section(msgspec.Struct, frozen=True):
    """A part of the system prompt, rendered before each request; None leaves it out."""

    name: str
    function: SectionFunction
    extension: str = ""


class Wrap(msgspec.Struct, frozen=True):
    """Decorates whichever tool of this name the conversation ends up with."""

    tool: str
    function: WrapFunction
    extension: str = ""


class SectionWrap(msgspec.Struct, frozen=True):
    """Decorates whichever section of this name the conversation ends up with."""

    section: str
    function: Callable[..., Awaitable[Any]]
    extension: str = ""

    def around(self, wrapped: Section) -> Section:
        """The section with this around it."""
        function = self.function

        async def render(ctx: Any) -> Any:
            return await function(ctx, lambda: wrapped.function(ctx))

        return Section(wrapped.name, render, wrapped.extension)


def check_callback(function: Any, parameters: str, what: str) -> None:
    """Refuse a hook, section or wrap that cannot be called with `parameters`, such as "ctx, call"."""
    if not callable(function):
        raise InvalidDefinition(f"{what}: not a function: {function!r}")
    if not inspect.iscoroutinefunction(function):
        raise InvalidDefinition(f"{what}: make it an async function")
    try:
        signature_of(function).bind(*parameters.split(", "))
    except TypeError as error:
        raise InvalidDefinition(f"{what}: it is called as ({parameters}): {error}") from error


def tool_filter(point: str, tools: Any, where: str) -> frozenset[str] | None:
    """The tools that a hook looks at, None for all. Tools may stand for their names."""
    if tools is None:
        return None
    if point not in TOOL_POINTS:
        raise InvalidDefinition(f"{where}: only {', '.join(TOOL_POINTS)} can be limited to tools")
    if isinstance(tools, str) or not isinstance(tools, Iterable):
        raise InvalidDefinition(f"{where}: tools is a list of names, not {tools!r}", hint=f"tools=[{tools!r}]")
    names = frozenset(tool_name(tool, where) for tool in tools)
    if not names:
        raise InvalidDefinition(f"{where}: tools is empty, so it would never be asked", hint="leave it out for all")
    return names


def tool_name(tool: Any, where: str) -> str:
    """The name of a tool that is given by name or as itself."""
    name = tool.name if isinstance(tool, Tool) else tool
    try:
        check_tool_name(name)
    except InvalidDefinition as error:
        raise InvalidDefinition(f"{where}: {error.what}", hint=error.hint) from error
    return str(name)
