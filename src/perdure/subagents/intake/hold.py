"""Stop, drain, stop-all, pause, resume: what ends work for good, and what only holds it."""

from perdure import TaskTransaction
from perdure.subagents import rows
from perdure.subagents.events import append_event
from perdure.subagents.intake.decision import Rejected, Reply, address_of, target_call, target_workflow
from perdure.subagents.intake.engine import Engine
from perdure.subagents.names import call_of
from perdure.subagents.spool import Sent
from perdure.subagents.state import LiveDoc, Workflow

EDITS_REMAIN = "what it edited stays as it is"


async def decide_stop(tx: TaskTransaction, sent: Sent, engine: Engine) -> Reply:
    """Stop a call, or a workflow with all that is open in it. Final; returns before processes are gone."""
    to = sent.body.get("to", "")
    if not isinstance(to, str) or not to:
        raise Rejected("a stop names a workflow or a call")
    if address_of(to).key is not None:
        workflow, call = await target_call(tx, to)
        if call.phase == "sealed":
            raise Rejected(f"already-sealed:{call.status}", call=call_of(call.wid, call.key))
        await engine.stop_call(tx, workflow, call)
        return {"call": call_of(call.wid, call.key), "note": EDITS_REMAIN}
    workflow = await target_workflow(tx, to)
    if workflow.status not in ("running", "parked") and not workflow.open:
        raise Rejected(f"terminal:{workflow.status}", wid=workflow.wid)
    await engine.stop_workflow(tx, workflow)
    return {"wid": workflow.wid, "note": EDITS_REMAIN}


async def decide_hold(tx: TaskTransaction, sent: Sent, engine: Engine) -> Reply:
    """Hold the workflows that exist now. `stop-all` and `pause` also cut off what runs; nothing is sealed."""
    scope = await _in_scope(tx, sent)
    if sent.body.get("to") and scope[0].status not in ("running", "parked") and not scope[0].open:
        raise Rejected(f"terminal:{scope[0].status}", wid=scope[0].wid)
    found = [one for one in scope if not one.held or sent.kind != "drain"]
    for workflow in found:
        await engine.hold(tx, workflow, fence=sent.kind != "drain")
        await append_event(tx, "held", workflow=workflow, by=sent.sender, how=sent.kind)
    return {"held": [workflow.wid for workflow in found]}


async def decide_resume(tx: TaskTransaction, sent: Sent, engine: Engine) -> Reply:
    """Release what is held, and go on with what is parked, in the same sessions."""
    scope = await _in_scope(tx, sent)
    to = sent.body.get("to")
    released = [one for one in scope if one.held or one.status == "parked"]
    if to and not released:
        (workflow,) = scope
        if workflow.status == "running" or workflow.open:
            raise Rejected("it runs already", wid=workflow.wid)
        raise Rejected(f"terminal:{workflow.status}", wid=workflow.wid, hint="start a new run")
    if not released:
        raise Rejected("nothing to resume", **await _held_elsewhere(tx, sent))
    for workflow in released:
        await engine.release(tx, workflow)
        await append_event(tx, "released", workflow=workflow, by=sent.sender)
    return {"resumed": [workflow.wid for workflow in released]}


async def _in_scope(tx: TaskTransaction, sent: Sent) -> list[Workflow]:
    """One workflow, those of a session, or all that are live."""
    if sent.body.get("to"):
        return [await target_workflow(tx, sent.body["to"])]
    session = sent.body.get("session")
    found = [await rows.workflow(tx, wid) for wid in await rows.keys(tx, LiveDoc)]
    return [one for one in found if one is not None and (session is None or one.origin == session)]


async def _held_elsewhere(tx: TaskTransaction, sent: Sent) -> Reply:
    """For a session that has nothing of its own: what other sessions hold."""
    if sent.body.get("session") is None:
        return {}
    found = [await rows.workflow(tx, wid) for wid in await rows.keys(tx, LiveDoc)]
    held = [one.wid for one in found if one is not None and (one.held or one.status == "parked")]
    return {"held_by_others": held} if held else {}
