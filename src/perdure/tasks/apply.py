"""From a decision to the record it leaves behind. Pure but for reading who owns whom."""

from typing import Final

from perdure.base.errors import Error, InvalidDecision
from perdure.storage.records import Task
from perdure.tasks.consequences import check_wait
from perdure.tasks.decisions import Abort, Complete, Fail, Goto, SleepFor, WaitFor
from perdure.tasks.outcomes import Aborted, Completed, Failed, Faulted
from perdure.tasks.ownership import Tree
from perdure.tasks.signals import asked_again, check_keys, note_asked
from perdure.tasks.states import Sleeping, Waiting, apply_state, checkpointed, gone_to, hold
from perdure.tasks.transaction import TaskTransaction
from perdure.tasks.wakes import Expired, Time

SHORTEST_SLEEP: Final = 100
"""Milliseconds at the least between a wake by time and the next: each costs a few commits, and a task that always
sleeps until now would take the whole machine."""


async def apply_decision(tx: TaskTransaction, tree: Tree, record: Task) -> None:
    """Write what the running task's transaction checkpointed and decided."""
    before = record
    if tx.checkpoint_to is not None:
        record = checkpointed(record, tx.checkpoint_to)
    match tx.decision:
        case None:
            pass
        case Goto(checkpoint=checkpoint):
            record = gone_to(record, checkpoint)
        case WaitFor(checkpoint=checkpoint, on=on, policy=policy):
            waiting = Waiting(checkpoint, on, policy)
            await check_wait(tx, tree, record, waiting)
            record = apply_state(record, waiting)
        case SleepFor(checkpoint=checkpoint, until=until, signals=signals, gate=gate, again=again):
            if until is None and not signals:
                raise InvalidDecision("a sleep without an end", hint="give until=, signals=, or both")
            check_keys(record, signals)
            if until is not None and isinstance(tx.run.wake, Time | Expired):
                until = max(until, tx.now_millis + SHORTEST_SLEEP)
            record = note_asked(record, signals, tx.now_millis)
            record = apply_state(record, Sleeping(checkpoint, until, signals, gate))
            if again:
                record = asked_again(record, tx.now_millis)
        case Complete(result=result):
            record = hold(record, Completed(result))
        case Fail(error=error):
            record = hold(record, Failed(error))
        case Abort(reason=reason):
            record = hold(record, Aborted(reason))
        case other:
            raise InvalidDecision(f"not a decision: {other!r}")
    if record is not before:
        tx.put_task(record)


def fault(error: BaseException) -> Faulted:
    """The outcome of code that raised."""
    code = error.code if isinstance(error, Error) else type(error).__name__
    return Faulted({"message": str(error) or type(error).__name__, "code": code})
