"""Calls that park: what is kept for the next run, and the sleep or the wait that ends this one."""

from typing import Any, Final

import msgspec

from perdure.base import jsonvalue
from perdure.base.delta import Operation
from perdure.base.errors import InvocationEnded, Refused
from perdure.extensions.results import Sleep, Wait
from perdure.tasks.decisions import Next, SleepFor
from perdure.tasks.phases import BoundPhase
from perdure.tasks.runtime import TaskRun
from perdure.tasks.transaction import TaskTransaction
from perdure.tasks.wakes import WakeReason

UNFIT: Final = (Refused, TypeError, ValueError, OverflowError)
"""What a park that cannot be stored raises; whatever else is raised says nothing about the park."""


class Resumed(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a run of a call that has parked goes on from."""

    checkpoint: Any = None
    """What the call parked with last."""
    diagnostics: list[str] = []
    """Lines for the model of the runs so far."""
    wake: WakeReason | None = None


class Park(msgspec.Struct, frozen=True):
    """A tool wants to park."""

    park: Sleep[Any] | Wait[Any]
    diagnostics: list[str]
    output: list[Operation] = []
    """What of this run's output is not stored yet; it shows while the call is parked."""

    @property
    def status(self) -> str:
        """What its slot shows."""
        return "sleeping" if isinstance(self.park, Sleep) else "waiting"

    def kept(self) -> Resumed:
        """What the next run goes on from. Raises `InvalidValue` for a checkpoint that is no JSON."""
        jsonvalue.check(self.park.checkpoint)
        return Resumed(jsonvalue.copied(self.park.checkpoint), self.diagnostics)


def decide_park(tx: TaskTransaction, park: Sleep[Any] | Wait[Any], then: BoundPhase[Any], *args: Any) -> Next[Any]:
    """Park the call in this commit. What the task may not do is refused here or at the end of the block."""
    if isinstance(park, Sleep):
        return tx.sleep(then, park.signals, park.until, *args)
    return tx.wait(park.on, park.policy, then, *args)


def decide_gate(tx: TaskTransaction, sleep: Sleep[Any], then: BoundPhase[Any], *, again: bool) -> Next[Any]:
    """Hold the call back before its intent. `again`: other code was installed while its gates were asked."""
    decision = tx.sleep(then, sleep.signals, sleep.until)
    assert isinstance(decision, SleepFor)
    decision.gate, decision.again = True, again
    return decision


def is_unfit(error: BaseException) -> bool:
    """Whether an error says that a park cannot be, rather than that the call is over or the session lost."""
    return isinstance(error, UNFIT) and not isinstance(error, InvocationEnded)


def stored_park(run: TaskRun) -> tuple[dict[str, Any], Resumed] | None:
    """The arguments of a call that has parked before and what it parked with last, from where the task stands."""
    stored = run.checkpoint.arguments.get("resumed")
    if stored is None:
        return None
    return run.checkpoint.arguments["arguments"], msgspec.convert(stored, Resumed)
