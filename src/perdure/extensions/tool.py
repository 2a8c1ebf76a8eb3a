"""Tools: functions that a model may call."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, Final, Literal

from perdure.base.errors import InvalidDefinition
from perdure.extensions.signature import Signature, read_signature
from perdure.models.messages import ToolOffer

Replay = Literal["safe", "unsafe"]
NAME_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
NAME_LENGTH: Final = 64
"""What all providers accept as a tool's name."""


class Tool:
    """A tool: its function, the schema of its arguments, and how it may be run.

    `replay="safe"`: a call cut off by a crash runs again; "unsafe": it is reported as interrupted and never repeated.
    `blocking`: a sync function that runs in a thread. `sequential`: a round with this tool runs one call at a time.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        replay: Replay = "unsafe",
        blocking: bool = False,
        sequential: bool = False,
        prepare_arguments: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        self.name = name or function.__name__
        check_tool_name(self.name)
        is_async = inspect.iscoroutinefunction(function)
        if is_async and blocking:
            raise InvalidDefinition(f"tool {self.name}: an async function is not blocking")
        if not is_async and not blocking:
            raise InvalidDefinition(
                f"tool {self.name}: a sync function would hold everything up",
                hint="make it async, or pass blocking=True to run it in a thread",
            )
        if replay not in ("safe", "unsafe"):
            raise InvalidDefinition(f'tool {self.name}: replay is "safe" or "unsafe", not {replay!r}')
        self.function = function
        self.signature: Signature = read_signature(function, self.name)
        self.description = description or self.signature.description
        if not self.description:
            raise InvalidDefinition(f"tool {self.name}: it has no description", hint="write a docstring")
        self.replay: Replay = replay
        self.blocking = blocking
        self.sequential = sequential
        self.prepare_arguments = prepare_arguments
        self.on_cancel: Callable[..., Any] | None = None
        self.__name__ = self.name
        self.__doc__ = function.__doc__
        self.offer = ToolOffer(self.name, self.description, self.signature.schema)

    async def __call__(self, ctx: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Run the tool's code, as a unit test does."""
        if self.blocking:
            return await asyncio.to_thread(self.function, ctx, *args, **kwargs)
        return await self.function(ctx, *args, **kwargs)

    def cancel(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: cleans up the external work of a call that parked. Takes (ctx, <same parameters>) or (ctx)."""
        given = list(inspect.signature(function).parameters)[1:]
        if given and set(given) != set(self.signature.parameters):
            raise InvalidDefinition(
                f"tool {self.name}: cancel takes (ctx) or (ctx, {', '.join(self.signature.parameters)})"
            )
        if not inspect.iscoroutinefunction(function):
            raise InvalidDefinition(f"tool {self.name}: cancel is an async function")
        self.on_cancel = function
        return function

    def decode(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Arguments as typed keyword arguments. Raises `InvalidValue`."""
        return self.signature.decode(arguments)


def check_tool_name(name: str) -> None:
    """Refuse a name that some provider would refuse."""
    if not name or len(name) > NAME_LENGTH or not set(name) <= NAME_CHARACTERS:
        raise InvalidDefinition(f"not a tool name: {name!r}", hint="1 to 64 letters, digits, _ and -")
