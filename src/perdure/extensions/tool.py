"""Tools: functions that a model may call."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, Final, Literal, TypeVar

import msgspec

from perdure.base import jsonvalue
from perdure.base.errors import InvalidDefinition, InvalidValue
from perdure.extensions.signature import Signature, read_signature, signature_of
from perdure.models.messages import ToolOffer

F = TypeVar("F", bound=Callable[..., Any])
Replay = Literal["safe", "unsafe"]
Kind = inspect.Parameter
Prepare = Callable[[dict[str, Any]], dict[str, Any]]

NAME_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
NAME_LENGTH: Final = 64
"""What all providers accept as a tool's name."""


class Tool:
    """A tool: its function, the schema of its arguments, and how it may be run. Made once, checked whole.

    `replay="safe"`: a call cut off by a crash runs again; "unsafe": it is reported as interrupted and never repeated.
    `blocking`: a sync function that runs in a thread. `sequential`: a round with this tool runs one call at a time.
    `prepare_arguments` repairs what a model wrote, before it is checked; it is pure, and gets a copy.
    Raises `InvalidDefinition` naming tool and parameter.
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
        prepare_arguments: Prepare | None = None,
    ) -> None:
        if not (inspect.isfunction(function) or inspect.ismethod(function)):
            raise InvalidDefinition(f"a tool is a function, not {function!r}", hint="a finished Tool goes into add()")
        self.name: Final = function.__name__ if name is None else name
        check_tool_name(self.name)
        _check_kind(function, self.name, blocking)
        if replay not in ("safe", "unsafe"):
            raise InvalidDefinition(f'tool {self.name}: replay is "safe" or "unsafe", not {replay!r}')
        _check_prepare(prepare_arguments, self.name)
        self.function: Final = function
        self.signature: Final[Signature] = read_signature(function, self.name)
        self.description: Final = self.signature.description if description is None else description
        _check_description(self.description, self.name)
        self.replay: Final[Replay] = replay
        self.blocking: Final = bool(blocking)
        self.sequential: Final = bool(sequential)
        self.prepare_arguments: Final = prepare_arguments
        self.offer: Final = _offer(self.name, self.description, self.signature.schema)
        self.__name__ = self.name
        self.__doc__ = function.__doc__
        self._on_cancel: Callable[..., Any] | None = None
        self._frozen = False

    def __repr__(self) -> str:
        return f"Tool({self.name!r})"

    async def __call__(self, ctx: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Run the tool's code with typed arguments, as a unit test does. A blocking one runs in a thread: a
        cancellation is then seen at once, but the thread goes on to its end."""
        if self.blocking:
            return await asyncio.to_thread(self.function, ctx, *args, **kwargs)
        return await self.function(ctx, *args, **kwargs)

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON Schema of its arguments. The root is a closed object."""
        return self.signature.schema

    @property
    def on_cancel(self) -> Callable[..., Any] | None:
        """What cleans up after a call that parked, if anything does."""
        return self._on_cancel

    async def clean_up(self, ctx: Any, arguments: dict[str, Any]) -> None:
        """Run what `cancel` defined, with typed arguments if it takes them."""
        if self._on_cancel is not None:
            takes = len(signature_of(self._on_cancel).parameters) > 1
            await self._on_cancel(ctx, **(self.decode(arguments) if takes else {}))

    def cancel(self, function: F) -> F:
        """Decorator: cleans up the external work of a call that parked. Takes (ctx, <same parameters>) or (ctx), and is
        given back unchanged.

        It may run after the tool has cleaned up by itself, and more than once: it must be idempotent. Raises
        `InvalidDefinition`, also for a second one and once an extension with the tool is installed.
        """
        where = f"tool {self.name}: cancel"
        if self._frozen:
            raise InvalidDefinition(f"{where} cannot be defined any more: the tool is installed")
        if self._on_cancel is not None:
            raise InvalidDefinition(f"{where} is defined twice")
        if not inspect.iscoroutinefunction(function):
            raise InvalidDefinition(f"{where} is an async function")
        if not _takes(function, tuple(self.signature.parameters)):
            whole = ", ".join(["ctx", *self.signature.parameters])
            raise InvalidDefinition(f"{where} takes ({whole})" + (" or (ctx)" if self.signature.parameters else ""))
        self._on_cancel = function
        return function

    def freeze(self) -> None:
        """Refuse further changes (called when an extension with it is installed)."""
        self._frozen = True

    def decode(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Arguments as typed keyword arguments. Raises `InvalidValue` with the path of what does not fit."""
        return self.signature.decode(arguments)


def check_tool_name(name: Any) -> None:
    """Refuse a name that some provider would refuse."""
    if not isinstance(name, str) or not 0 < len(name) <= NAME_LENGTH or not set(name) <= NAME_CHARACTERS:
        raise InvalidDefinition(f"not a tool name: {ascii(name)[:80]}", hint="1 to 64 letters, digits, _ and -")


def _check_kind(function: Callable[..., Any], name: str, blocking: bool) -> None:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidDefinition(f"tool {name}: a generator has no result", hint="return one; ctx.output streams")
    is_async = inspect.iscoroutinefunction(function)
    if is_async and blocking:
        raise InvalidDefinition(f"tool {name}: an async function is not blocking")
    if not is_async and not blocking:
        raise InvalidDefinition(
            f"tool {name}: a sync function would hold everything up",
            hint="make it async, or pass blocking=True to run it in a thread",
        )


def _check_description(description: Any, name: str) -> None:
    if not isinstance(description, str) or not description.strip():
        raise InvalidDefinition(f"tool {name}: it has no description", hint="write a docstring")


def _check_prepare(prepare: Any, name: str) -> None:
    if prepare is not None and (not callable(prepare) or inspect.iscoroutinefunction(prepare)):
        raise InvalidDefinition(f"tool {name}: prepare_arguments is a sync function of the arguments")


def _takes(function: Callable[..., Any], names: tuple[str, ...]) -> bool:
    """Whether it takes the context alone, or the context and exactly these by name."""
    parameters = list(signature_of(function).parameters.values())
    if not parameters or parameters[0].kind not in (Kind.POSITIONAL_ONLY, Kind.POSITIONAL_OR_KEYWORD):
        return False
    rest = parameters[1:]
    by_name = all(p.kind in (Kind.POSITIONAL_OR_KEYWORD, Kind.KEYWORD_ONLY) for p in rest)
    return by_name and (not rest or {p.name for p in rest} == set(names))


def _offer(name: str, description: str, schema: dict[str, Any]) -> ToolOffer:
    offer = ToolOffer(name, description, schema)
    try:
        jsonvalue.check(msgspec.to_builtins(offer))
    except InvalidValue as error:
        raise InvalidDefinition(f"tool {name}: it cannot be told to a model: {error}") from error
    return offer
