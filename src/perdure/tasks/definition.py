"""Definitions of tasks: a class is the typed input, its methods are the phases."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from perdure.base import jsonvalue
from perdure.base.errors import InvalidDefinition, InvalidValue
from perdure.base.jsonvalue import Json
from perdure.base.typed import Codec, codec
from perdure.tasks.phases import BoundPhase, Phase, phase
from perdure.tasks.states import Checkpoint

R = TypeVar("R")
C = TypeVar("C", bound=type)
_ATTRIBUTE: Final = "__perdure_task__"


class Task(Generic[R]):
    """Optional base of a task's class: names the type of its result for type checkers."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()


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
        self.has_abort = "abort" in cls.__dict__ or hasattr(cls, "abort")
        self.migrate: Migrate | None = getattr(cls, "migrate", None)
        self._phases = phases
        self._codec: Codec[Any] | None = None

    @property
    def codec(self) -> Codec[Any]:
        """The codec of the input; made when first needed, since annotations may name what is defined later."""
        if self._codec is None:
            self._codec = codec(self.cls, where=f"task {self.kind}")
        return self._codec

    def encode_input(self, instance: Any) -> Json:
        """The input as JSON. Raises `InvalidValue`."""
        return self.codec.to_json(instance)

    def decode_input(self, data: Json) -> Any:
        """The instance of a stored input. Raises `InvalidValue`."""
        return self.codec.from_json(data)

    def decode_input_bytes(self, data: bytes) -> Any:
        """The instance of a stored input's bytes."""
        return self.decode_input(jsonvalue.decode(data))

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
        if self._phases.get(then.name) is not then.phase and not isinstance(then.instance, self.cls):
            raise InvalidValue(f"task {self.kind}: {then.phase.owner}.{then.name} is a phase of another task")
        return Checkpoint(then.name, then.phase.encode(args, kwargs))


class TaskCatalog(Protocol):
    """Finds installed task code by kind."""

    def task(self, kind: str) -> TaskDefinition | None: ...


def task(kind: str, *, version: int = 1) -> Callable[[C], C]:
    """Make a class a kind of task: a frozen dataclass of its input, with its `@phase` methods as the states."""
    if not isinstance(kind, str) or not kind or "/" in kind:
        raise InvalidDefinition(f"a task kind must be a name without '/': {kind!r}")
    if version < 1:
        raise InvalidDefinition(f"task {kind}: versions begin at 1")

    def define(cls: C) -> C:
        phases = {name: found for name, found in inspect.getmembers_static(cls) if isinstance(found, Phase)}
        firsts = [name for name, found in phases.items() if found.first]
        if len(firsts) != 1:
            raise InvalidDefinition(f"task {kind} ({cls.__name__}) needs exactly one @phase(first=True), it has {len(firsts)}")
        for found in phases.values():
            found.check()
        _check_methods(cls, kind)
        frozen = dataclasses.dataclass(frozen=True)(cls)
        setattr(frozen, _ATTRIBUTE, TaskDefinition(frozen, kind, version, phases))
        return frozen

    return define


def _check_methods(cls: type, kind: str) -> None:
    abort = inspect.getattr_static(cls, "abort", None)
    if abort is not None and not inspect.iscoroutinefunction(abort):
        raise InvalidDefinition(f"task {kind}: abort is `async def abort(self, run)`")
    migrate = inspect.getattr_static(cls, "migrate", None)
    if migrate is not None and not isinstance(migrate, staticmethod):
        raise InvalidDefinition(f"task {kind}: migrate is a staticmethod(stored, from_version)")


def task_definition(of: Any) -> TaskDefinition:
    """The definition behind a task's class or one of its instances. Raises `InvalidDefinition` if it is none."""
    found = getattr(of, _ATTRIBUTE, None)
    if not isinstance(found, TaskDefinition):
        raise InvalidDefinition(f"{of!r} is no task", hint='decorate its class with @task("app.name")')
    return found


__all__ = ["StoredTask", "Task", "TaskCatalog", "TaskDefinition", "phase", "task", "task_definition"]
