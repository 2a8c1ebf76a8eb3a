"""Waking a call's task: something was decided for it. The decision's commit delivers the signal.

A key takes one value, so pokes are numbered on the call's row. A task that parks reads the row in the commit of the
park and sleeps on the next number: no poke falls between the two.
"""

from typing import Any

from perdure import Signal, SignalKey, TaskId, TaskTransaction
from perdure.subagents.rows import put_call
from perdure.subagents.state import Call

Poked: Signal[Any] = Signal("agents.poked", schema=dict)


def next_poke(call: Call) -> SignalKey[Any]:
    """What the call's task sleeps on next: a poke that has not been given, under a number that no other wait had, since
    a wait may also end by time. The caller stores the row in the commit of the park."""
    call.pokes += 1
    return Poked.key(f"poke-{call.pokes + 1}")


async def poke(tx: TaskTransaction, call: Call) -> None:
    """Store the call's row, and wake its task once this is committed. Harmless where nothing sleeps."""
    call.pokes += 1
    await put_call(tx, call)
    if call.task:
        await tx.signal(TaskId(call.task), Poked, f"poke-{call.pokes}", {})
