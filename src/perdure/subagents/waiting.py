"""Why a call waits: its row and the event log say the same, because both are written here."""

from perdure import TaskTransaction
from perdure.subagents.events import append_event
from perdure.subagents.state import Call, Waiting, Workflow


async def waits(tx: TaskTransaction, workflow: Workflow, call: Call, waiting: Waiting) -> None:
    """The call waits; it is logged where the reason is another one. The row is the caller's to store."""
    before = call.waiting
    if before is None or before.reason != waiting.reason:
        await append_event(tx, "waiting", workflow=workflow, call=call, reason=waiting.reason, detail=waiting.detail)
    else:
        waiting.since = before.since
    call.waiting = waiting


async def moves(tx: TaskTransaction, workflow: Workflow, call: Call) -> None:
    """The call waits no more, because it goes on or has ended. The row is the caller's to store."""
    if call.waiting is not None:
        await append_event(tx, "moving", workflow=workflow, call=call, after=call.waiting.reason)
        call.waiting = None
