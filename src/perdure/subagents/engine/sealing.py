"""The end of a generation: one result, stored once, with all that follows from it."""

from typing import Any

import msgspec

from perdure import TaskTransaction
from perdure.subagents import rows
from perdure.subagents.engine.call_steps import spent_by
from perdure.subagents.engine.generations import open_generation
from perdure.subagents.events import append_event, inline
from perdure.subagents.intake.send import opening_text
from perdure.subagents.names import generation_of
from perdure.subagents.notices import put_notice, resolve_notices
from perdure.subagents.state import (
    LIVE,
    Call,
    Delivery,
    EndedDoc,
    LiveDoc,
    RequestDoc,
    Result,
    ResultDoc,
    Workflow,
    recent_key,
)
from perdure.subagents.telling import finished_text
from perdure.subagents.waiting import moves


async def seal(tx: TaskTransaction, wid: str, key: str, generation: int, draft: dict[str, Any]) -> str:
    """Store the result of a generation, unless it has one; returns its status."""
    name = generation_of(wid, key, generation)
    known: Result | None = await rows.read(tx, ResultDoc, name)
    if known is not None:
        return known.status
    workflow, call = await rows.workflow(tx, wid), await rows.call(tx, wid, key)
    assert workflow is not None
    assert call is not None
    now = tx.now_millis / 1000
    result = msgspec.convert({"key": key, "gen": generation, **draft}, Result)
    result.ok, result.usage, result.losses, result.sealed = result.status == "ok", call.usage, call.losses, now
    await rows.write(tx, ResultDoc, name, result)
    call.phase, call.status, call.hibernated, call.held = "sealed", result.status, False, False
    await moves(tx, workflow, call)
    call.queued, call.question, call.exec = 0, None, None
    workflow.open = [one for one in workflow.open if one != key]
    await append_event(
        tx, "sealed", workflow=workflow, call=call, status=result.status, error=result.error,
        usage=msgspec.to_builtins(result.usage), **inline(result.data),
    )  # fmt: skip
    await resolve_notices(tx, wid, "ended", key=key, kinds=("question", "stall", "conflict", "shared"))
    if result.status == "unknown":
        await put_notice(tx, workflow, "unknown", f"{name}: {result.error}", key=key, detail=str(generation))
    follow_ups = _left_over(call, result.status)
    await rows.put_call(tx, call)
    await rows.put_workflow(tx, workflow)
    if follow_ups:
        await _reopen(tx, workflow, call, follow_ups)
    else:
        over = workflow.status not in LIVE
        if over or generation != (call.proposed or generation):
            await _end_of_late_work(tx, workflow, call)
        if over and not workflow.open:
            await tx.retire(LiveDoc, key=workflow.wid)
    return result.status


def _left_over(call: Call, status: str) -> list[Delivery]:
    """What was accepted and not taken: notes wait for the next follow-up, and follow-ups open the next generation."""
    call.notes += [one.text for one in call.deliveries if one.kind == "notify"]
    follow_ups = [one for one in call.deliveries if one.kind == "follow-up" and status != "stopped"]
    call.deliveries = []
    return follow_ups


async def _reopen(tx: TaskTransaction, workflow: Workflow, call: Call, follow_ups: list[Delivery]) -> None:
    """The next generation, with follow-ups that this one did not take; whoever asks for them again is told of it."""
    *earlier, last = follow_ups
    call.deliveries = earlier
    opening = opening_text(call, last.text)
    call.notes, call.deliveries = [], []
    models = [one.model for one in follow_ups if one.model is not None]
    model = models[-1] if models else None
    generation = await open_generation(tx, workflow, call, opening=opening, request=last.request, model=model)
    for one in follow_ups:
        request = await rows.read(tx, RequestDoc, one.request)
        if request is not None:
            went = {"generation": generation, "call": generation_of(call.wid, call.key, generation)}
            request.reply = {**request.reply, **went}
            await rows.write(tx, RequestDoc, one.request, request)


async def _end_of_late_work(tx: TaskTransaction, workflow: Workflow, call: Call) -> None:
    """A follow-up's generation, or one on a workflow that had ended before: it has a notice of its own."""
    text = await finished_text(tx, workflow, only=call.key)
    await put_notice(tx, workflow, "finished", text, key=call.key, detail=str(call.generation))


async def end_workflow(
    tx: TaskTransaction, workflow: Workflow, status: Any, *, result: Any = None, error: str | None = None
) -> None:
    """The workflow is over: it leaves the live ones and enters the ended ones, with its event and its notice."""
    if workflow.status not in LIVE:
        return
    now = tx.now_millis / 1000
    workflow.status, workflow.result, workflow.error, workflow.ended = status, result, error, now
    workflow.held = False
    await rows.put_workflow(tx, workflow)
    if not workflow.open:
        await tx.retire(LiveDoc, key=workflow.wid)
    await rows.write(tx, EndedDoc, recent_key(now, workflow.wid), {"wid": workflow.wid})
    usage = msgspec.to_builtins(await spent_by(tx, workflow))
    await append_event(tx, "workflow-done", workflow=workflow, status=status, error=error, usage=usage)
    await put_notice(tx, workflow, "finished", await finished_text(tx, workflow))
