"""Definitions of tasks: a class is the typed input, its methods are the phases."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import (
    Any,
    Final,
    Generic,
    Never,
    Protocol,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from perdure.base import jsonvalue
from perdure.base.errors import InvalidDefinition, InvalidValue
from perdure.base.jsonvalue import Json
from perdure.base.typed import OURS, Codec, codec
from perdure.tasks.phases import BoundPhase, Phase, if_known, phase, takes_position
from perdure.tasks.states import Checkpoint

R = TypeVar("R")
C = TypeVar("C", bound=type)
_ATTRIBUTE: Final = "__perdure_task__"
_JSON: Final = frozenset({str, int, float, bool, type(None), dict, list})


class Task(Generic[R]):
    """Optional base of a task's class: `class Payment(Task[Receipt])` names the type of its result."""


class StoredTask(msgspec.Struct):
    """What `migrate` gets and gives: the stored input, and where the task stands."""

    input: Json
    phase: str
    arguments: dict[str, Any]


Migrate = Callable[[StoredTask, int], StoredTask]


class TaskDefinition:
    """What is known of a kind of task."""

    def __init__(self, cls: type, kind: str, version: int, phases: dict[str, Phase[Any, Any]]) -> None:
        self.cls = cls
        self.kind = kind
        self.version = version
        self.first_phase = next(name for name, found in phases.items() if found.first)
        self.has_abort = hasattr(cls, "abort")
        self.migrate: Migrate | None = getattr(cls, "migrate", None)
        self._phases = phases
        self._codec: Codec[Any] | None = None
        self._results: tuple[Codec[Any], ...] | None = None

    @property
    def codec(self) -> Codec[Any]:
        """The codec of the input; made when first needed, since annotations may name what is defined later."""
        if self._codec is None:
            self._codec = codec(self.cls, where=f"task {self.kind} ({self.cls.__name__})")
        return self._codec

    @property
    def result_codecs(self) -> tuple[Codec[Any], ...]:
        """Codecs of the results that the task may complete with: the R of `Task[R]`, else those of its phases'
        `-> Next[R]`. Empty: any JSON."""
        if self._results is None:
            types = _result_types(self.cls, self._phases)
            self._results = tuple(codec(type_, where=f"result of task {self.kind}") for type_ in types)
        return self._results

    def encode_result(self, value: Any) -> Json:
        """A result as JSON. Raises `InvalidValue` if it is of no type that the task declares, or not strict JSON."""
        codecs = self.result_codecs
        if not codecs:
            kind: Any = type(value)
            return codec(Any if kind in _JSON else kind, where=f"result of task {self.kind}").to_json(value)
        for found in codecs[:-1]:
            try:
                return found.to_json(value)
            except InvalidValue:
                continue
        return codecs[-1].to_json(value)

    def encode_input(self, instance: Any) -> Json:
        """The input as JSON. Raises `InvalidValue`."""
        return self.codec.to_json(instance)

    def decode_input(self, data: Json) -> Any:
        """The instance of a stored input. Raises `InvalidValue`."""
        return self.codec.from_json(data)

    def decode_input_bytes(self, data: bytes) -> Any:
        """The instance of a stored input's bytes."""
        return self.decode_input(jsonvalue.decode(data))

    def has_phase(self, name: str) -> bool:
        """Whether there is a phase of that name."""
        return name in self._phases

    def phase(self, name: str) -> Phase[Any, Any]:
        """A phase by name. Raises `InvalidDefinition`."""
        found = self._phases.get(name)
        if found is None:
            raise InvalidDefinition(f"task {self.kind} has no phase {name!r}", hint="write migrate for renamed phases")
        return found

    def bind(self, instance: Any, checkpoint: Checkpoint) -> tuple[Callable[..., Any], dict[str, Any]]:
        """The code of a checkpoint and its decoded arguments."""
        found = self.phase(checkpoint.phase)
        return found.function.__get__(instance), found.decode(checkpoint.arguments)

    def checkpoint(self, then: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Checkpoint:
        """The checkpoint of a phase with arguments. Raises `InvalidDefinition` or `InvalidValue`."""
        if not isinstance(then, BoundPhase):
            raise InvalidValue(f"task {self.kind}: not a phase: {then!r}", hint="pass self.<name of a @phase method>")
        if self._phases.get(then.name) is not then.phase:
            raise InvalidValue(f"task {self.kind}: {then.phase.where} is a phase of another task")
        return Checkpoint(then.name, then.phase.encode(args, kwargs))


class TaskCatalog(Protocol):
    """Finds installed task code by kind."""

    def task(self, kind: str) -> TaskDefinition | None: ...


@dataclass_transform(frozen_default=True)
def task(kind: str, *, version: int = 1) -> Callable[[C], C]:
    """Make a class a kind of task: a frozen dataclass of its input, with its `@phase` methods as the states.

    The class is changed in place and checked here. Raises `InvalidDefinition` naming class, method and parameter.
    """
    _check_kind(kind, version)

    types_now = not kind.startswith(OURS)

    def define(cls: C) -> C:
        phases = _phases_of(cls, kind, types_now=types_now)
        _check_methods(cls, kind)
        try:
            dataclasses.dataclass(frozen=True)(cls)
        except (TypeError, ValueError) as error:
            raise InvalidDefinition(f"task {kind} ({cls.__name__}): {error}") from error
        _check_fields(cls, kind, phases, types_now=types_now)
        definition = TaskDefinition(cls, kind, version, phases)
        if types_now:
            if_known(lambda: definition.codec)
            if_known(lambda: definition.result_codecs)
        setattr(cls, _ATTRIBUTE, definition)
        return cls

    return define


def _check_kind(kind: object, version: object) -> None:
    if not isinstance(kind, str) or not kind or "/" in kind:
        raise InvalidDefinition(f"a task kind must be a name without '/': {kind!r}")
    if type(version) is not int or version < 1:
        raise InvalidDefinition(f"task {kind}: versions are whole numbers from 1, not {version!r}")


def _phases_of(cls: type, kind: str, *, types_now: bool) -> dict[str, Phase[Any, Any]]:
    phases = {name: found for name, found in inspect.getmembers_static(cls) if isinstance(found, Phase)}
    firsts = [name for name, found in phases.items() if found.first]
    if len(firsts) != 1:
        found_ones = f": {', '.join(firsts)}" if firsts else ""
        raise InvalidDefinition(
            f"task {kind} ({cls.__name__}) needs exactly one @phase(first=True), it has {len(firsts)}{found_ones}"
        )
    for name, found in phases.items():
        if found.name != name:
            raise InvalidDefinition(f"task {kind} ({cls.__name__}): {name} and {found.name} are the same phase")
        found.check(types_now=types_now)
    return phases


def _check_methods(cls: type, kind: str) -> None:
    where = f"task {kind} ({cls.__name__})"
    abort = inspect.getattr_static(cls, "abort", None)
    if abort is not None and not (inspect.iscoroutinefunction(abort) and _takes_two(abort)):
        raise InvalidDefinition(f"{where}: abort is `async def abort(self, run)`, and no phase")
    migrate = inspect.getattr_static(cls, "migrate", None)
    if migrate is None:
        return
    if not isinstance(migrate, staticmethod) or not _takes_two(migrate.__func__):
        raise InvalidDefinition(f"{where}: migrate is a staticmethod(stored, from_version)")
    if inspect.iscoroutinefunction(migrate.__func__):
        raise InvalidDefinition(f"{where}: migrate is no async def: it only changes what is stored")


def _takes_two(function: Callable[..., Any]) -> bool:
    parameters = list(inspect.signature(function).parameters.values())
    needed = [p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    return len(needed) <= 2 <= len(parameters) and all(map(takes_position, [*parameters[:2], *needed]))


def _check_fields(cls: Any, kind: str, phases: dict[str, Phase[Any, Any]], *, types_now: bool) -> None:
    for field in dataclasses.fields(cls):
        if field.name in phases or field.name in ("abort", "migrate"):
            raise InvalidDefinition(f"task {kind} ({cls.__name__}): {field.name} is a field and a method")
    if not types_now:
        return
    try:
        hints = get_type_hints(cls, include_extras=True)
    except NameError:
        return  # it names what is defined later: looked at when first needed
    except TypeError as error:
        raise InvalidDefinition(f"task {kind} ({cls.__name__}): {error}") from error
    for field in dataclasses.fields(cls):
        codec(hints[field.name], where=f"task {kind} ({cls.__name__}.{field.name})")


def _result_types(cls: Any, phases: dict[str, Phase[Any, Any]]) -> list[Any]:
    for base in getattr(cls, "__orig_bases__", ()):
        if get_origin(base) is Task and not isinstance(get_args(base)[0], TypeVar):
            named = get_args(base)[0]
            return [] if named in (Any, object) else [named]
    found = [type_ for phase in phases.values() if (type_ := phase.result_type()) is not Never]
    return [] if any(type_ in (Any, object) for type_ in found) else list(dict.fromkeys(found))


def task_definition(of: Any) -> TaskDefinition:
    """The definition behind a task's class or one of its instances. Raises `InvalidDefinition` if it is none."""
    found = getattr(of, _ATTRIBUTE, None)
    if not isinstance(found, TaskDefinition):
        raise InvalidDefinition(f"{of!r} is no task", hint='decorate its class with @task("app.name")')
    cls = of if isinstance(of, type) else type(of)
    if found.cls is not cls:
        raise InvalidDefinition(
            f"{cls.__name__} only inherits from task {found.kind}", hint="decorate it with @task too"
        )
    return found


__all__ = ["StoredTask", "Task", "TaskCatalog", "TaskDefinition", "phase", "task", "task_definition"]
