"""Phases: methods of a task that a checkpoint can name."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar, get_type_hints, overload

from perdure.base.errors import InvalidDefinition, InvalidValue
from perdure.base.typed import Codec, codec

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
_RESERVED: Final = frozenset({"on", "policy", "then", "signals", "until"})


class BoundPhase(Generic[P]):
    """A phase of one task's class, as `self.decide` inside it: what `then=` takes."""

    __slots__ = ("instance", "phase")

    def __init__(self, phase: "Phase[Any, P]", instance: Any) -> None:
        self.phase = phase
        self.instance = instance

    @property
    def name(self) -> str:
        return self.phase.name

    async def __call__(self, run: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call the phase's code, as a unit test does."""
        return await self.phase.function(self.instance, run, *args, **kwargs)


class Phase(Generic[S, P]):
    """The descriptor that `@phase` leaves in the class."""

    def __init__(self, function: Callable[..., Awaitable[Any]], *, first: bool) -> None:
        self.function = function
        self.first = first
        self.name = function.__name__
        self.owner = "?"
        self._codecs: dict[str, Codec[Any]] | None = None
        self._defaults: dict[str, Any] = {}
        self._names: tuple[str, ...] = ()

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        self.owner = owner.__name__

    @overload
    def __get__(self, instance: None, owner: type) -> "Phase[S, P]": ...
    @overload
    def __get__(self, instance: object, owner: type) -> BoundPhase[P]: ...
    def __get__(self, instance: object | None, owner: type) -> "Phase[S, P] | BoundPhase[P]":
        return self if instance is None else BoundPhase(self, instance)

    def check(self) -> None:
        """Refuse a signature that a checkpoint cannot hold."""
        if not inspect.iscoroutinefunction(self.function):
            raise InvalidDefinition(f"{self._where}: a phase is an async def")
        parameters = list(inspect.signature(self.function).parameters.values())
        if len(parameters) < 2:
            raise InvalidDefinition(f"{self._where}: a phase takes (self, run, …)")
        for parameter in parameters[2:]:
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
                raise InvalidDefinition(f"{self._where}: the parameter {parameter} cannot be stored by name")
            if parameter.name in _RESERVED:
                raise InvalidDefinition(
                    f"{self._where}: a parameter may not be named {parameter.name!r}",
                    hint="the decisions goto, wait and sleep use that name",
                )
            if self.first and parameter.default is parameter.empty:
                raise InvalidDefinition(f"{self._where}: the first phase takes no argument without a default")
        self._names = tuple(parameter.name for parameter in parameters[2:])
        self._defaults = {p.name: p.default for p in parameters[2:] if p.default is not p.empty}

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments as the JSON object that a checkpoint stores. Raises `InvalidValue` naming the parameter."""
        codecs = self._parameter_codecs()
        if len(args) > len(self._names):
            raise InvalidValue(f"{self._where} takes {len(self._names)} arguments, {len(args)} were given")
        given = dict(zip(self._names, args, strict=False))
        for name, value in kwargs.items():
            if name not in codecs or name in given:
                raise InvalidValue(f"{self._where}: no such argument, or given twice: {name!r}")
            given[name] = value
        missing = [name for name in self._names if name not in given and name not in self._defaults]
        if missing:
            raise InvalidValue(f"{self._where}: missing arguments: {', '.join(missing)}")
        return {name: codecs[name].to_json(value) for name, value in given.items()}

    def decode(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Stored arguments in their types."""
        if not arguments:
            return arguments
        codecs = self._parameter_codecs()
        unknown = arguments.keys() - codecs.keys()
        if unknown:
            raise InvalidValue(f"{self._where}: stored arguments that the phase does not take: {', '.join(sorted(unknown))}")
        return {name: codecs[name].from_json(value) for name, value in arguments.items()}

    def _parameter_codecs(self) -> dict[str, Codec[Any]]:
        if self._codecs is None:  # annotations may name classes that are defined later in the module
            hints = _hints(self.function, self._names, self._where)
            self._codecs = {name: codec(hints.get(name, Any), where=f"{self._where}({name})") for name in self._names}
        return self._codecs

    @property
    def _where(self) -> str:
        return f"{self.owner}.{self.name}"


def _hints(function: Any, names: tuple[str, ...], where: str) -> dict[str, Any]:
    """Annotations of the phase's own parameters; that of `run` is never evaluated."""
    wanted = {name: annotation for name, annotation in function.__annotations__.items() if name in names}
    stand_in = type("stand_in", (), {"__annotations__": wanted, "__module__": function.__module__})
    try:
        return get_type_hints(stand_in, globalns=function.__globals__, include_extras=True)
    except (NameError, TypeError) as error:
        raise InvalidDefinition(f"{where}: an annotation cannot be resolved: {error}") from error


@overload
def phase(function: Callable[Concatenate[S, Any, P], Awaitable[Any]], /) -> Phase[S, P]: ...
@overload
def phase(*, first: bool = False) -> Callable[[Callable[Concatenate[S, Any, P], Awaitable[Any]]], Phase[S, P]]: ...
def phase(function: Any = None, /, *, first: bool = False) -> Any:
    """Mark a method as a phase: `@phase`, and `@phase(first=True)` where the task begins."""
    if function is not None:
        return Phase(function, first=False)
    return lambda decorated: Phase(decorated, first=first)
