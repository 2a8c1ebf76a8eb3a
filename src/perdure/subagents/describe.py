"""What became of a request or a workflow, from committed rows alone. Reads start nothing and change nothing."""

from typing import Any

import msgspec

from perdure.subagents import rows, spool
from perdure.subagents.names import call_of, generation_of
from perdure.subagents.paths import StateRoot
from perdure.subagents.state import Call, Request, RequestDoc, ResultDoc, Tombstone, TombstoneDoc, Workflow


async def describe(reader: rows.Reader | None, root: StateRoot, name: str) -> dict[str, Any]:
    """The state of a request id or a wid: absent, pending, rejected, applied, running, asking, sealed or pruned."""
    request = None if reader is None else await rows.read(reader, RequestDoc, name)
    if reader is not None and request is None:
        workflow = await rows.workflow(reader, name)
        if workflow is not None:
            return await _workflow(reader, workflow)
        gone = await rows.read(reader, TombstoneDoc, name)
        if gone is not None:
            return _pruned(gone)
    if request is None or request.decided is None:
        recorded = spool.is_recorded(root, name)
        return {"id": name, "state": "pending" if recorded or request else "absent"}
    if not request.applied:
        return {"id": name, "state": "rejected", **_request(request), **request.reply}
    if request.kind not in ("run", "revise") or request.wid is None:
        return {"id": name, "state": "applied", **_request(request), **request.reply}
    assert reader is not None
    return {**_request(request), **await describe(reader, root, request.wid)}


def _request(request: Request) -> dict[str, Any]:
    return {"request": request.request, "kind": request.kind, "digest": request.digest, "sender": request.sender}


def _pruned(gone: Tombstone) -> dict[str, Any]:
    return {
        "state": "pruned", "wid": gone.wid, "status": gone.status, "ended": gone.ended, "request": gone.request,
        "digest": gone.digest, "labels": gone.labels,
    }  # fmt: skip


async def _workflow(reader: rows.Reader, workflow: Workflow) -> dict[str, Any]:
    calls = [await describe_call(reader, call) for call in await rows.calls(reader, workflow)]
    asks = any(call["phase"] == "asking" for call in calls)
    live = workflow.status in ("running", "parked") or workflow.open
    return {
        "state": "asking" if asks else "running" if live else "sealed",
        **about(workflow),
        "calls": calls,
        "skipped": workflow.skipped,
        **({} if workflow.result is None else {"result": workflow.result}),
        **({} if workflow.error is None else {"error": workflow.error}),
    }


def about(workflow: Workflow) -> dict[str, Any]:
    """A workflow without its calls."""
    found: dict[str, Any] = {
        "wid": workflow.wid, "revision": workflow.revision, "form": workflow.form, "status": workflow.status,
        "request": workflow.request, "digest": workflow.digest, "sender": workflow.sender, "cwd": workflow.cwd,
        "created": workflow.created, "labels": workflow.labels,
    }  # fmt: skip
    for name in ("name", "reason", "ended", "planned", "origin", "listed"):
        if (value := getattr(workflow, name)) is not None:
            found[name] = value
    if workflow.held:
        found["held"] = True
    return found


async def describe_call(reader: rows.Reader, call: Call, generation: int | None = None) -> dict[str, Any]:
    """A call's newest generation, or an earlier one: results whole, questions whole."""
    shown = generation or call.generation
    found: dict[str, Any] = {
        "call": call_of(call.wid, call.key), "key": call.key, "gen": shown, "agent": call.agent,
        "phase": call.phase if shown == call.generation else "sealed",
    }  # fmt: skip
    result = await rows.read(reader, ResultDoc, generation_of(call.wid, call.key, shown))
    if result is not None:
        found.update(msgspec.to_builtins(result))
        found["usage"] = msgspec.to_builtins(result.usage)
    elif shown == call.generation:
        found.update(_live(call))
    if call.last_fence is not None:
        found["lastFence"] = msgspec.to_builtins(call.last_fence)
    if call.notes:
        found["notesPending"] = len(call.notes)
    pending = [{"request": one.request, "kind": one.kind} for one in call.deliveries]
    if pending:
        found["deliveriesPending"] = pending
    return found


def _live(call: Call) -> dict[str, Any]:
    found: dict[str, Any] = {
        "usage": msgspec.to_builtins(call.usage),
        "losses": call.losses,
        "activeMs": call.active_ms,
    }
    for name, value in (("model", call.model), ("switching", call.wanted), ("switchFailed", call.switch_failed)):
        if value is not None:
            found[name] = value
    if call.hibernated:
        found["hibernated"] = True
    if call.held:
        found["paused"] = True
    question = call.question
    if question is not None:
        found["question"] = {
            "to": call_of(call.wid, call.key), "qid": question.qid, "rev": question.rev, "text": question.text,
            "asked": question.asked, "answered": question.answered is not None,
        }  # fmt: skip
    if call.waiting is not None and (question is None or question.answered is not None):
        found["waiting"] = msgspec.to_builtins(call.waiting)
    return found
