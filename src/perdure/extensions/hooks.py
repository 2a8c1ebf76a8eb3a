"""Hooks, sections and wraps: how extensions step into what the agent does."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from perdure.base.errors import InvalidDefinition

HOOK_POINTS: Final = (
    "before_request",
    "after_response",
    "on_yield",
    "after_tools",
    "after_run",
    "before_tool",
    "after_tool",
    "on_abort",
    "before_compact",
)


@dataclass(frozen=True)
class Hook:
    """A function at a hook point. `tools` limits it to calls of these tools."""

    point: str
    function: Callable[..., Any]
    tools: frozenset[str] | None = None
    extension: str = ""

    @property
    def name(self) -> str:
        return f"{self.extension}.{getattr(self.function, '__name__', self.point)}"

    def concerns(self, tool: str) -> bool:
        """Whether it looks at calls of this tool."""
        return self.tools is None or tool in self.tools


@dataclass(frozen=True)
class Section:
    """A part of the system prompt, rendered before each request; None leaves it out."""

    name: str
    function: Callable[..., Any]
    extension: str = ""


@dataclass(frozen=True)
class Wrap:
    """Decorates whichever tool of this name the conversation ends up with."""

    tool: str
    function: Callable[..., Any]
    extension: str = ""


def check_callback(function: Any, arity: int, what: str) -> None:
    """Refuse a hook, section or wrap that cannot be called as it will be."""
    if not callable(function):
        raise InvalidDefinition(f"{what}: not a function")
    if not inspect.iscoroutinefunction(function):
        raise InvalidDefinition(f"{what}: make it an async function")
    parameters = inspect.signature(function).parameters.values()
    required = [
        p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    accepted = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(required) > arity or len(accepted) < arity:
        raise InvalidDefinition(f"{what}: it is called with {arity} arguments")
