"""Sends: steer, notify, follow-up, answer, model. Each is decided by the state that it finds."""

from typing import Any, Final

from perdure import TaskTransaction
from perdure.subagents import rows
from perdure.subagents.events import append_event, text_digest
from perdure.subagents.intake.decision import NotYet, Rejected, Reply, target_call
from perdure.subagents.intake.engine import Engine
from perdure.subagents.names import call_of, generation_of
from perdure.subagents.notices import resolve_notices
from perdure.subagents.pokes import poke
from perdure.subagents.spool import SENDS, Sent
from perdure.subagents.state import Call, CallDoc, Delivery, LiveDoc, Request, RequestDoc, Workflow

NOTES_HEADING: Final = "Notes recorded after your last turn:"


async def decide_send(tx: TaskTransaction, sent: Sent, engine: Engine) -> Reply:
    """Apply a send, or raise `Rejected`. What it replaces is withdrawn first."""
    text = sent.body.get("message", "")
    if sent.kind != "model" and (not isinstance(text, str) or not text.strip()):
        raise Rejected("the message is empty")
    if sent.kind == "answer":
        workflow, call = await _asked(tx, sent.body)
    else:
        workflow, call = await target_call(tx, sent.body.get("to", ""))

    for earlier in sent.body.get("replaces", ()):
        await withdraw(tx, earlier, sent)
    call = await rows.need(tx, CallDoc, call_of(workflow.wid, call.key))  # what was withdrawn is gone from it
    if call.retiring and sent.kind != "notify":
        raise Rejected("retired", detail=f"revision {workflow.revision} takes the place of what runs", call=call.key)
    if sent.kind == "steer":
        return await _steer(tx, sent, workflow, call)
    if sent.kind == "notify":
        return await _notify(tx, sent, call)
    if sent.kind == "follow-up":
        return await _follow_up(tx, sent, workflow, call, engine)
    if sent.kind == "model":
        return await _model(tx, sent, call, engine)
    return await _answer(tx, sent, workflow, call)


async def _steer(tx: TaskTransaction, sent: Sent, workflow: Workflow, call: Call) -> Reply:
    if call.phase == "sealed":
        raise Rejected(
            f"{call_of(call.wid, call.key)} has ended ({call.status}): use follow-up to go on with it",
            status=call.status,
        )
    interrupts = call.question is not None and call.question.answered is None
    _queue(call, sent, tx.now_millis / 1000)
    await poke(tx, call)
    return {"delivery": "interrupts-question" if interrupts else "pending", "call": _generation(call)}


async def _notify(tx: TaskTransaction, sent: Sent, call: Call) -> Reply:
    if call.phase == "sealed":
        call.notes.append(sent.body["message"])
        await rows.put_call(tx, call)
        return {"delivery": "noted", "call": _generation(call)}
    held = call.question is not None and call.question.answered is None
    _queue(call, sent, tx.now_millis / 1000)
    await poke(tx, call)
    return {"delivery": "held-until-answer" if held else "steered", "call": _generation(call)}


async def _follow_up(tx: TaskTransaction, sent: Sent, workflow: Workflow, call: Call, engine: Engine) -> Reply:
    model, more = sent.body.get("model"), {}
    if model is not None:
        model = engine.known_model(model)
        more = {"model": model, "effect": "next-generation"}
    if call.phase != "sealed":
        _queue(call, sent, tx.now_millis / 1000, model=model)  # the model goes with the message, or not at all
        await poke(tx, call)
        return {"delivery": "forwarded", "call": _generation(call), **more}
    if any(one.kind == "notify" for one in call.deliveries):
        raise NotYet("what became of an accepted notify is not known yet")
    opening = opening_text(call, sent.body["message"])
    call.notes, call.deliveries = [], []
    generation = await engine.open_generation(tx, workflow, call, opening=opening, request=sent.request, model=model)
    return {"generation": generation, "call": generation_of(call.wid, call.key, generation), **more}


def opening_text(call: Call, message: str) -> str:
    """What a next generation begins with: the notes, then earlier follow-ups that were not taken, then the message."""
    parts = []
    if call.notes:
        notes = [f"- {note}".replace("\n", "\n  ") for note in call.notes]
        parts.append("\n".join([NOTES_HEADING, *notes]))
    parts += [one.text for one in call.deliveries if one.kind == "follow-up"]
    return "\n\n".join([*parts, message])


async def _model(tx: TaskTransaction, sent: Sent, call: Call, engine: Engine) -> Reply:
    wanted = sent.body.get("model")
    if not isinstance(wanted, str) or not wanted.strip():
        raise Rejected("a model send names a model", hint="provider:model")
    if call.phase == "sealed":
        call.wanted = await engine.reserve_model(tx, call, wanted)
        await rows.put_call(tx, call)
        return {"model": call.wanted, "effect": "next-generation", "call": _generation(call)}
    chosen = await engine.reserve_model(tx, call, wanted)
    fresh = await rows.need(tx, CallDoc, call_of(call.wid, call.key))
    fresh.wanted, fresh.switch_failed = chosen, None
    running = fresh.exec is not None
    if running:
        fresh.deliveries.append(
            Delivery(request=sent.request, kind="model", model=chosen, at=tx.now_millis / 1000, sender=sent.sender)
        )
    await poke(tx, fresh)
    return {"model": chosen, "effect": "next-request" if running else "next-execution", "call": _generation(fresh)}


async def _asked(tx: TaskTransaction, body: dict[str, Any]) -> tuple[Workflow, Call]:
    """The question that an answer means. It may leave out what exactly one open question does not need."""
    qid, rev = body.get("qid"), body.get("rev")
    if body.get("to"):
        workflow, call = await target_call(tx, body["to"])
        _check(call, qid, rev)
        return workflow, call
    found = [
        (workflow, call)
        for workflow, call in await _open_calls(tx)
        if call.question is not None
        and call.question.answered is None
        and (qid is None or call.question.qid == qid)
        and (rev is None or call.question.rev == rev)
    ]
    if len(found) != 1:
        how_many = "no open question matches" if not found else f"{len(found)} questions are open: name one"
        raise Rejected(how_many, open=[_question(call) for _, call in await _open_calls(tx) if _is_open(call)])
    return found[0]


async def _open_calls(tx: TaskTransaction) -> list[tuple[Workflow, Call]]:
    found = []
    for wid in await rows.keys(tx, LiveDoc):
        workflow = await rows.workflow(tx, wid)
        if workflow is None:
            continue
        for key in workflow.open:
            call = await rows.call(tx, wid, key)
            if call is not None:
                found.append((workflow, call))
    return found


def _check(call: Call, qid: str | None, rev: int | None) -> None:
    """Refuse what is no answer to the question that the call waits on."""
    question = call.question
    if call.phase == "sealed":
        raise Rejected("retired", detail=f"{call_of(call.wid, call.key)} has ended ({call.status})")
    if question is None or (qid is not None and question.qid != qid):
        if qid is not None and qid in call.asked:
            raise Rejected("already-answered")
        raise Rejected(f"{call_of(call.wid, call.key)} asks no such question")
    if question.answered is not None:
        raise Rejected("already-answered", by=question.answered)
    if rev is not None and rev != question.rev:
        raise Rejected("stale-rev", rev=question.rev)


async def _answer(tx: TaskTransaction, sent: Sent, workflow: Workflow, call: Call) -> Reply:
    question = call.question
    assert question is not None
    question.answered = sent.request
    _queue(call, sent, tx.now_millis / 1000, qid=question.qid, rev=question.rev)
    await poke(tx, call)
    await resolve_notices(tx, call.wid, "answered", key=call.key, kinds=("question",), detail=question.qid)
    await append_event(
        tx, "answered", workflow=workflow, call=call, by=sent.sender, via=sent.via or None,
        qid=question.qid, rev=question.rev, **text_digest(sent.body["message"]),
    )  # fmt: skip
    return {"call": _generation(call), "qid": question.qid, "rev": question.rev}


def _queue(call: Call, sent: Sent, at: float, **more: Any) -> None:
    kind: Any = sent.kind
    text = sent.body["message"]
    call.deliveries.append(Delivery(request=sent.request, kind=kind, text=text, at=at, sender=sent.sender, **more))


async def withdraw(tx: TaskTransaction, earlier: str, by: Sent) -> None:
    """Take back a send that is not applied yet. One that never came is not applied when it comes."""
    found = await rows.read(tx, RequestDoc, earlier)
    if found is None:
        now = tx.now_millis / 1000
        gone = Request(
            request=earlier, kind="withdrawn", digest="", sender=by.sender, at=now, decided=now, applied=False
        )
        gone.reply = {"reason": "withdrawn", "by": by.request}
        await rows.write(tx, RequestDoc, earlier, gone)
        return
    if found.sender != by.sender:
        raise Rejected(f"{earlier} is another sender's", sender=found.sender)
    if found.kind not in SENDS or not found.applied or found.wid is None or found.key is None:
        return
    call = await rows.read(tx, CallDoc, call_of(found.wid, found.key))
    delivery = None if call is None else next((one for one in call.deliveries if one.request == earlier), None)
    if call is None or delivery is None or (delivery.handed and delivery.kind in ("answer", "model")):
        return  # it has been given, or is being: it stays applied
    delivery.withdrawn = by.request
    if not delivery.handed:
        await drop_withdrawn(tx, call, earlier)
    await rows.put_call(tx, call)


async def drop_withdrawn(tx: TaskTransaction, call: Call, request: str) -> None:
    """What was taken back is gone from the call, and rejected. The caller stores the call's row."""
    for one in call.deliveries:
        if one.request == request and one.withdrawn is not None:
            found = await rows.need(tx, RequestDoc, request)
            found.applied, found.reply = False, {"reason": "withdrawn", "by": one.withdrawn}
            await rows.write(tx, RequestDoc, request, found)
            if one.kind == "model":
                call.wanted = None
    call.deliveries = [one for one in call.deliveries if one.request != request or one.withdrawn is None]


async def settle_deliveries(tx: TaskTransaction, call: Call, taken: list[str]) -> None:
    """An execution is gone: what it took was delivered, and nobody has the rest. The caller stores the call's row."""
    call.deliveries = [one for one in call.deliveries if one.request not in taken]
    for one in list(call.deliveries):
        one.handed = False
        if one.withdrawn is not None:
            await drop_withdrawn(tx, call, one.request)


def _is_open(call: Call) -> bool:
    return call.question is not None and call.question.answered is None


def _question(call: Call) -> dict[str, Any]:
    assert call.question is not None
    asked = call.question
    return {"to": call_of(call.wid, call.key), "qid": asked.qid, "rev": asked.rev, "text": asked.text}


def _generation(call: Call) -> str:
    return generation_of(call.wid, call.key, call.generation)
