"""Phases: methods of a task that a checkpoint can name."""

import inspect
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar, get_args, get_origin, get_type_hints, overload

from perdure.base.errors import InvalidDefinition, InvalidValue
from perdure.tasks.arguments import Argument

P = ParamSpec("P")
S = TypeVar("S")
R_co = TypeVar("R_co", covariant=True)
_RESERVED: Final = frozenset({"on", "policy", "then", "signals", "until"})


class Next(Generic[R_co]):
    """The next step of a task; `R` is the type of the result it may complete with."""

    __slots__ = ()


Code = Callable[..., Awaitable[Next[Any]]]
"""What a phase consists of: an async method that takes the run and the stored arguments."""


class BoundPhase(Generic[P]):
    """A phase of one task's class, as `self.decide` inside it: what `then=` takes."""

    __slots__ = ("instance", "phase")

    def __init__(self, phase: "Phase[Any, P]", instance: Any) -> None:
        self.phase = phase
        self.instance = instance

    @property
    def name(self) -> str:
        return self.phase.name

    async def __call__(self, run: Any, /, *args: P.args, **kwargs: P.kwargs) -> Next[Any]:
        """Call the phase's code, as a unit test does."""
        return await self.phase.function(self.instance, run, *args, **kwargs)


class Phase(Generic[S, P]):
    """The descriptor that `@phase` leaves in the class."""

    def __init__(self, function: Code, *, first: bool) -> None:
        self.function = function
        self.first = first
        self.name = function.__name__
        self.owner = "?"
        self._arguments: dict[str, Argument] | None = None
        self._names: tuple[str, ...] = ()
        self._required: frozenset[str] = frozenset()

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        self.owner = owner.__name__

    @overload
    def __get__(self, instance: None, owner: type) -> "Phase[S, P]": ...
    @overload
    def __get__(self, instance: object, owner: type) -> BoundPhase[P]: ...
    def __get__(self, instance: object | None, owner: type) -> "Phase[S, P] | BoundPhase[P]":
        return self if instance is None else BoundPhase(self, instance)

    def check(self, *, types_now: bool = True) -> None:
        """Refuse a signature that a checkpoint cannot hold. Annotations that name what is defined later in the module
        are looked at when first needed."""
        if not inspect.iscoroutinefunction(self.function):
            raise InvalidDefinition(f"{self.where}: a phase is an async def")
        parameters = list(inspect.signature(self.function).parameters.values())
        if len(parameters) < 2 or not all(map(takes_position, parameters[:2])):
            raise InvalidDefinition(f"{self.where}: a phase takes (self, run, …)")
        for parameter in parameters[2:]:
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
                raise InvalidDefinition(f"{self.where}: the parameter {parameter.name!r} cannot be stored by name")
            if parameter.name in _RESERVED:
                raise InvalidDefinition(
                    f"{self.where}: a parameter may not be named {parameter.name!r}",
                    hint="the decisions goto, wait and sleep use that name",
                )
            if self.first and parameter.default is parameter.empty:
                raise InvalidDefinition(
                    f"{self.where}: the first phase takes no argument without a default, as {parameter.name!r} is",
                    hint="what a task begins with are the fields of its class",
                )
        self._names = tuple(parameter.name for parameter in parameters[2:])
        self._required = frozenset(p.name for p in parameters[2:] if p.default is p.empty)
        if types_now:
            if_known(self.arguments)

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments as the JSON object that a checkpoint stores. Raises `InvalidValue` naming the parameter."""
        arguments = self._arguments if self._arguments is not None else self.arguments()
        if len(args) > len(arguments):
            raise InvalidValue(f"{self.where} takes {len(arguments)} arguments, {len(args)} were given")
        encoded = {name: arguments[name].to_json(value) for name, value in zip(self._names, args, strict=False)}
        for name, value in kwargs.items():
            argument = arguments.get(name)
            if argument is None:
                raise InvalidValue(f"{self.where} has no parameter {name!r}")
            if name in encoded:
                raise InvalidValue(f"{self.where}: the argument {name!r} was given twice")
            encoded[name] = argument.to_json(value)
        if len(encoded) != len(arguments):
            self._check_complete(encoded)
        return encoded

    def decode(self, stored: dict[str, Any]) -> dict[str, Any]:
        """Stored arguments in their types. Raises `InvalidValue` if the phase does not take them, or takes more."""
        arguments = self._arguments if self._arguments is not None else self.arguments()
        if len(stored) != len(arguments):
            self._check_complete(stored)
        decoded = {}
        for name, data in stored.items():
            argument = arguments.get(name)
            if argument is None:
                raise InvalidValue(f"{self.where} has no parameter {name!r}, for which an argument is stored")
            decoded[name] = argument.from_json(data)
        return decoded

    def arguments(self) -> dict[str, Argument]:
        """The parameters that a checkpoint stores. Raises `InvalidDefinition` naming one that JSON cannot hold."""
        if self._arguments is None:
            hints = own_hints(self.function, self._names, self.where)
            self._arguments = {
                name: Argument(name, hints.get(name, Any), where=f"{self.where}({name})") for name in self._names
            }
        return self._arguments

    def result_type(self) -> Any:
        """The R of an annotated `-> Next[R]`; `Any` where none is given, `Never` where the phase does not complete."""
        hint = own_hints(self.function, ("return",), self.where).get("return", Any)
        return get_args(hint)[0] if get_origin(hint) is Next else Any

    def _check_complete(self, given: Collection[str]) -> None:
        missing = [name for name in self._names if name in self._required and name not in given]
        if missing:
            raise InvalidValue(f"{self.where}: missing arguments: {', '.join(missing)}")

    @property
    def where(self) -> str:
        """The phase's place, for messages: class and method."""
        return f"{self.owner}.{self.name}"


def takes_position(parameter: inspect.Parameter) -> bool:
    """Whether exactly one argument can be passed to the parameter by position."""
    return parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)


def if_known(make: Callable[[], object]) -> None:
    """Do it now, unless an annotation names what is not defined yet: then it is done when first needed."""
    try:
        make()
    except InvalidDefinition as error:
        if not isinstance(error.__cause__, NameError):
            raise


def own_hints(function: Any, names: tuple[str, ...], where: str) -> dict[str, Any]:
    """The named annotations, evaluated; others, such as that of `run`, never are."""
    wanted = {name: annotation for name, annotation in function.__annotations__.items() if name in names}
    stand_in = type("stand_in", (), {"__annotations__": wanted, "__module__": function.__module__})
    try:
        return get_type_hints(stand_in, globalns=function.__globals__, include_extras=True)
    except (NameError, TypeError) as error:
        raise InvalidDefinition(
            f"{where}: an annotation cannot be resolved: {error}", hint="types of a task stand at the top of its module"
        ) from error


@overload
def phase(function: Callable[Concatenate[S, Any, P], Awaitable[Next[Any]]], /) -> Phase[S, P]: ...
@overload
def phase(
    *, first: bool = False
) -> Callable[[Callable[Concatenate[S, Any, P], Awaitable[Next[Any]]]], Phase[S, P]]: ...
def phase(function: Any = None, /, *, first: bool = False) -> Any:
    """Mark a method as a phase: `@phase`, and `@phase(first=True)` where the task begins."""
    if function is not None:
        return Phase(function, first=False)
    return lambda decorated: Phase(decorated, first=first)
