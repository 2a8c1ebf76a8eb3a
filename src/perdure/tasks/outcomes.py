"""How a task ended."""

from typing import Any, TypeVar, overload

import msgspec

from perdure.base import jsonvalue
from perdure.base.errors import Error
from perdure.base.jsonvalue import Json
from perdure.base.typed import codec

T = TypeVar("T")


class NotCompleted(Error):
    """A result was asked of a task that did not complete."""

    code = "not_completed"
    certain_by_default = "stored"


class Outcome(msgspec.Struct, frozen=True, gc=False, tag_field="status", omit_defaults=True):
    """What all ends share. `status`: completed, failed, aborted, faulted or orphaned."""

    @property
    def status(self) -> str:
        """The stable word of this end."""
        return str(self.__struct_config__.tag)

    @property
    def completed(self) -> bool:
        return isinstance(self, Completed)

    @overload
    def result(self, type_: type[T]) -> T: ...
    @overload
    def result(self, type_: Any = Any) -> Any: ...
    def result(self, type_: Any = Any) -> Any:
        """The result in its type, decoded on reading; without a type, as JSON. Raises `NotCompleted` for every other
        end, and `InvalidValue` if the stored result does not fit the type."""
        if isinstance(self, Completed):
            return codec(type_, where="result").from_json(jsonvalue.copied(self.value))
        raise NotCompleted(f"the task ended {self.status}" + (f": {self.why}" if self.why else ""))

    @property
    def why(self) -> str:
        """What went wrong, for people; empty for a completed task."""
        return ""


class Completed(Outcome, frozen=True, gc=False, tag="completed"):
    """The work is done."""

    value: Json = None


class Failed(Outcome, frozen=True, gc=False, tag="failed"):
    """The task says it failed. `error` is a JSON object with at least `message`."""

    error: dict[str, Any]

    @property
    def why(self) -> str:
        return str(self.error.get("message", ""))


class Aborted(Outcome, frozen=True, gc=False, tag="aborted"):
    """The task was stopped."""

    reason: str | None = None

    @property
    def why(self) -> str:
        return self.reason or ""


class Faulted(Outcome, frozen=True, gc=False, tag="faulted"):
    """The task's code raised, or broke the rules of tasks."""

    error: dict[str, Any]

    @property
    def why(self) -> str:
        return str(self.error.get("message", ""))


class Orphaned(Outcome, frozen=True, gc=False, tag="orphaned"):
    """The task was stopped, and its code is gone, so nothing cleaned up after it."""

    reason: str

    @property
    def why(self) -> str:
        return self.reason


AnyOutcome = Completed | Failed | Aborted | Faulted | Orphaned
