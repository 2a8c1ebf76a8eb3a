"""What a task decides at the end of a phase."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Never, ParamSpec, TypeVar, overload

from perdure.base import jsonvalue
from perdure.base.clock import to_millis, to_seconds
from perdure.base.errors import InvalidDecision, InvalidValue
from perdure.base.ids import TaskId
from perdure.base.jsonvalue import Json
from perdure.tasks.definition import TaskDefinition
from perdure.tasks.phases import BoundPhase, Next
from perdure.tasks.states import Checkpoint, Policy, SignalKey, check_signal_key

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")
D = TypeVar("D", bound=Next[Any])


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

    __slots__ = ("again", "checkpoint", "gate", "signals", "until")

    def __init__(self, checkpoint: Checkpoint, until: int | None, signals: tuple[SignalKey[Any], ...]) -> None:
        self.checkpoint = checkpoint
        self.until = until
        self.signals = signals
        self.gate = False
        """Nothing was done yet: an open and a change of the code wake the task too."""
        self.again = False
        """The code changed while this was decided: it is decided again at once."""


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
        ids = _several(on, "wait(on=)")
        if not ids or not all(type(id) is int for id in ids):
            raise InvalidDecision("wait takes a list of task ids that is not empty", hint="create_task returns ids")
        checkpoint = self._definition.checkpoint(then, args, kwargs)
        return self._decided(WaitFor(checkpoint, tuple(dict.fromkeys(ids)), policy))

    def sleep(
        self,
        then: BoundPhase[P],
        signals: Sequence[SignalKey[Any]] = (),
        until: float | datetime | None = None,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Next[Never]:
        """Park until a time, one of the signals, or whichever comes first. Then go on at `then`."""
        keys = _several(signals, "sleep(signals=)")
        for key in keys:
            check_signal_key(key)
        if until is None and not keys:
            raise InvalidDecision("a sleep without an end", hint="give until=, signals=, or both")
        millis = None if until is None else _deadline(until)
        checkpoint = self._definition.checkpoint(then, args, kwargs)
        return self._decided(SleepFor(checkpoint, millis, tuple({(k.signal, k.key): k for k in keys}.values())))

    @overload
    def complete(self) -> Next[None]: ...
    @overload
    def complete(self, result: T) -> Next[T]: ...
    def complete(self, result: Any = None) -> Next[Any]:
        """End with a result, of the type that the task declares by `Task[R]` or `-> Next[R]`, else any strict JSON (or
        a value of a type that becomes it). Raises `InvalidValue`."""
        return self._decided(Complete(self._definition.encode_result(result)))

    def fail(self, error: str | dict[str, Any]) -> Next[Never]:
        """End as failed. `error` is a message, or an object with at least a `message`; a `code` is a stable word."""
        return self._decided(Fail(_error(error)))

    def aborted(self, reason: str | None = None) -> Next[Never]:
        """End as aborted: what an abort handler returns when it has cleaned up."""
        return self._decided(Abort(_reason(reason)))

    def _decided(self, decision: D) -> D:
        self._decide(decision)
        return decision


def _several(given: Any, what: str) -> tuple[Any, ...]:
    """A list of ids or keys; one of them alone, or a text, is a slip."""
    if not isinstance(given, Iterable) or isinstance(given, str | bytes):
        raise InvalidDecision(f"{what} takes a list, not {given!r}")
    return tuple(given)


def _deadline(until: float | datetime) -> int:
    millis = to_millis(to_seconds(until))
    if abs(millis) > jsonvalue.LARGEST_INTEGER:
        raise InvalidValue(f"no time that could be stored: {until!r}", hint="seconds since the epoch, not milliseconds")
    return millis


def _reason(reason: Any) -> str | None:
    if reason is not None and not (isinstance(reason, str) and jsonvalue.is_strict(reason)):
        raise InvalidValue(f"a reason is a text, not {reason!r}")
    return reason


def _error(error: Any) -> dict[str, Any]:
    value = {"message": error} if isinstance(error, str) else error
    jsonvalue.check(value)
    if not isinstance(value, dict) or not isinstance(value.get("message"), str):
        raise InvalidValue("an error is a message, or an object with a text as `message`")
    if not isinstance(value.get("code", ""), str):
        raise InvalidValue("the `code` of an error is a text", path="/code")
    copied: dict[str, Any] = jsonvalue.copied(value)
    return copied


def decide_checkpoint(
    definition: TaskDefinition, then: BoundPhase[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Checkpoint:
    """The checkpoint that names a phase and its arguments."""
    return definition.checkpoint(then, args, kwargs)


__all__ = [
    "Abort",
    "Complete",
    "Decisions",
    "Fail",
    "Goto",
    "Next",
    "SleepFor",
    "WaitFor",
    "decide_checkpoint",
]
