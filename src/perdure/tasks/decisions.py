"""What a task decides at the end of a phase."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Generic, Never, ParamSpec, TypeVar

from perdure.base import jsonvalue
from perdure.base.clock import to_millis, to_seconds
from perdure.base.errors import InvalidDecision, InvalidValue
from perdure.base.ids import TaskId
from perdure.base.jsonvalue import Json
from perdure.base.typed import codec
from perdure.tasks.definition import TaskDefinition
from perdure.tasks.phases import BoundPhase
from perdure.tasks.states import Checkpoint, Policy, SignalKey

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


class Next(Generic[R_co]):
    """The next step of a task; `R` is the type of the result it may complete with."""

    __slots__ = ()


class Goto(Next[Never]):
    """Go on at another phase."""

    __slots__ = ("checkpoint",)
    __match_args__ = ("checkpoint",)

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint


class WaitFor(Next[Never]):
    """Park until tasks have ended."""

    __slots__ = ("checkpoint", "on", "policy")

    def __init__(self, checkpoint: Checkpoint, on: tuple[TaskId, ...], policy: Policy) -> None:
        self.checkpoint = checkpoint
        self.on = on
        self.policy = policy


class SleepFor(Next[Never]):
    """Park until a time or a signal."""

    __slots__ = ("checkpoint", "signals", "until")

    def __init__(self, checkpoint: Checkpoint, until: int | None, signals: tuple[SignalKey, ...]) -> None:
        self.checkpoint = checkpoint
        self.until = until
        self.signals = signals


class Complete(Next[R_co]):
    """End with a result."""

    __slots__ = ("result",)

    def __init__(self, result: Json) -> None:
        self.result = result


class Fail(Next[Never]):
    """End with an error."""

    __slots__ = ("error",)

    def __init__(self, error: dict[str, Any]) -> None:
        self.error = error


class Abort(Next[Never]):
    """End as aborted."""

    __slots__ = ("reason",)

    def __init__(self, reason: str | None) -> None:
        self.reason = reason


class Decisions:
    """The decisions, for the two places that take them: a run (stored when returned) and a transaction of a run."""

    @property
    def _definition(self) -> TaskDefinition:
        raise NotImplementedError

    def _decide(self, decision: Next[Any]) -> None:
        raise NotImplementedError

    def goto(self, then: BoundPhase[P], *args: P.args, **kwargs: P.kwargs) -> Next[Never]:
        """Go on at another phase with these arguments. The same phase with the same arguments is refused."""
        return self._decided(Goto(self._definition.checkpoint(then, args, kwargs)))

    def wait(
        self, on: Sequence[TaskId], policy: Policy, then: BoundPhase[P], *args: P.args, **kwargs: P.kwargs
    ) -> Next[Never]:
        """Park until the tasks have ended: `all_settled` waits for all, `any` for the first, `fail_fast` for all but
        aborts the rest at the first bad end (only for tasks it owns). Then go on at `then`."""
        if policy not in ("fail_fast", "all_settled", "any"):
            raise InvalidDecision(f'a policy is "fail_fast", "all_settled" or "any", not {policy!r}')
        ids = tuple(dict.fromkeys(on))
        if not all(type(id) is int for id in ids):
            raise InvalidDecision("wait takes task ids", hint="create_task returns them")
        return self._decided(WaitFor(self._definition.checkpoint(then, args, kwargs), ids, policy))

    def sleep(
        self,
        then: BoundPhase[P],
        signals: Sequence[SignalKey] = (),
        until: float | datetime | None = None,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Next[Never]:
        """Park until a time, one of the signals, or whichever comes first. Then go on at `then`."""
        millis = None if until is None else to_millis(to_seconds(until))
        checkpoint = self._definition.checkpoint(then, args, kwargs)
        return self._decided(SleepFor(checkpoint, millis, tuple(signals)))

    def complete(self, result: T = None) -> Next[T]:  # type: ignore[assignment]
        """End with a result (strict JSON, or a value of a type that becomes it)."""
        return self._decided(Complete(codec(Any, where="result").to_json(_builtin(result))))

    def fail(self, error: str | dict[str, Any]) -> Next[Never]:
        """End as failed. `error` is a message, or an object with at least `message`."""
        value = {"message": error} if isinstance(error, str) else error
        jsonvalue.check(value)
        if "message" not in value:
            raise InvalidValue("an error needs a message")
        return self._decided(Fail(value))

    def aborted(self, reason: str | None = None) -> Next[Never]:
        """End as aborted: what an abort handler returns when it has cleaned up."""
        return self._decided(Abort(reason))

    def _decided(self, decision: Any) -> Any:
        self._decide(decision)
        return decision


def _builtin(result: Any) -> Any:
    kind = type(result)
    if kind in (str, int, float, bool, type(None), dict, list):
        return result
    return codec(kind, where="result").to_json(result)


def decide_checkpoint(
    definition: TaskDefinition, then: BoundPhase[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Checkpoint:
    """The checkpoint that names a phase and its arguments."""
    return definition.checkpoint(then, args, kwargs)
