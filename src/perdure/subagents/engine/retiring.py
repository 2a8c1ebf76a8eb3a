"""What a revision leaves behind of calls that ran: no result, and nothing that still runs."""

from perdure import TaskTransaction
from perdure.subagents import rows
from perdure.subagents.notices import resolve_notices
from perdure.subagents.state import Call, LiveDoc, Workflow
from perdure.subagents.waiting import moves


async def retire(tx: TaskTransaction, workflow: Workflow, call: Call) -> None:
    """The generation ends without a seal. What was sent to it is dropped, but for what was
    only to be known, and for follow-ups: the next generation takes them."""
    await moves(tx, workflow, call)
    call.phase, call.status, call.exec = "sealed", None, None
    call.question, call.hibernated, call.held, call.queued, call.retiring = None, False, False, 0, False
    call.notes += [one.text for one in call.deliveries if one.kind == "notify"]
    call.deliveries = [one for one in call.deliveries if one.kind == "follow-up"]
    workflow.open = [key for key in workflow.open if key != call.key]
    await rows.put_call(tx, call)
    await rows.put_workflow(tx, workflow)
    await resolve_notices(tx, call.wid, "retired", key=call.key, kinds=("question", "stall", "conflict", "shared"))
    if not workflow.open and workflow.status not in ("running", "parked"):
        await tx.retire(LiveDoc, key=workflow.wid)
