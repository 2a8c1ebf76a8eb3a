"""Parts of a generation's phases: each runs inside the commit of the phase that calls it."""

import os
from typing import Any, Final

import msgspec

from perdure import InvalidValue, TaskTransaction
from perdure.subagents import rows
from perdure.subagents.config import AgentsConfig
from perdure.subagents.engine.admission import free_probe, wake_queue
from perdure.subagents.engine.context import Orchestration
from perdure.subagents.engine.judge import Verdict
from perdure.subagents.events import append_event, counters
from perdure.subagents.model_names import ModelName, parse_model
from perdure.subagents.names import call_of, execution_id
from perdure.subagents.notices import put_notice
from perdure.subagents.pokes import poke
from perdure.subagents.protocol import Evidence, Launch
from perdure.subagents.spec import NO_POOLS
from perdure.subagents.state import (
    Call,
    Execution,
    ExecutionDoc,
    Exhausted,
    ExhaustedDoc,
    Pins,
    Question,
    Usage,
    Waiting,
    Workflow,
)
from perdure.subagents.waiting import moves, waits

FENCE_RETRY: Final = 30.0
"""Seconds until processes that would not end are tried again."""
START_RETRY: Final = 5.0
"""Seconds until a host is tried again that the machine could not start."""


def failed(error: str) -> dict[str, Any]:
    """The draft of a result for what cannot run."""
    return {"status": "failed", "error": error}


def result_of(verdict: Verdict) -> dict[str, Any]:
    """The draft of a result."""
    found = {"status": verdict.status, "output": verdict.output, "data": verdict.data, "error": verdict.error}
    return {name: value for name, value in found.items() if value is not None}


def wakes(call: Call) -> bool:
    """Whether something was sent that a call must run for which waits on its question."""
    return any(
        one.kind == "answer" or (one.kind == "steer" and not one.handed and one.withdrawn is None)
        for one in call.deliveries
    )


def cwd_of(workflow: Workflow, call: Call) -> str:
    """Where a call works."""
    return os.path.abspath(os.path.join(workflow.cwd, str(call.spec.get("cwd", "."))))


async def line_up(tx: TaskTransaction, workflow: Workflow, call: Call, provider: str, waiting: Waiting) -> None:
    """Note why the call waits, and its place in the order of waiting."""
    call.phase = "asking" if call.hibernated else "queued"
    if not call.queued:
        count = await counters(tx)
        count["queue"] += 1
        call.queued = count["queue"]
    call.queued_for = provider
    await waits(tx, workflow, call, waiting)
    await rows.put_call(tx, call)


async def admitted(
    tx: TaskTransaction, orchestration: Orchestration, workflow: Workflow, call: Call, model: ModelName
) -> Execution:
    """Store the execution: from here on it holds its slot, until it is proven gone."""
    call.launch += 1
    exec = execution_id(call.wid, call.revision, call.key, call.generation, call.attempt, call.launch)
    now = tx.now_millis / 1000
    execution = Execution(
        exec=exec, wid=call.wid, key=call.key, generation=call.generation, nonce=orchestration.nonce(),
        provider=model.provider, model=model.name, thinking=model.thinking, admitted=now, session=workflow.origin,
    )  # fmt: skip
    await rows.write(tx, ExecutionDoc, exec, execution)
    await moves(tx, workflow, call)
    if call.last_fence is not None and not call.last_fence.told:
        fence = call.last_fence
        fence.told = True
        await append_event(
            tx, "fenced", workflow=workflow, call=call, exec=fence.exec, reason=fence.reason, at=fence.at
        )
    if call.started is None:
        call.started = now
        await append_event(tx, "started", workflow=workflow, call=call, model=model.name, agent=call.agent)
    call.exec, call.phase, call.queued, call.hibernated = exec, "running", 0, False
    if call.question is not None and call.question.answered is None:
        call.phase = "asking"
    call.held = False
    await rows.put_call(tx, call)
    return execution


def model_for(config: AgentsConfig, call: Call, pins: Pins) -> ModelName:
    """What the next execution asks: a model that was sent for, else that of the conversation, else as specs, agents
    and settings say. Raises `InvalidValue` where there is none."""
    agent = pins.agents.get(call.agent, {})
    named = (call.spec.get("model"), agent.get("model"), config.default_model)
    for name in (call.wanted, call.model, *named):
        if name in config.pools:
            raise InvalidValue(f"{name} is a pool: {NO_POOLS}")
        if name:
            found = parse_model(name)
            thinking = next((level for one in named if one and (level := _thinking(one, found.name))), None)
            return found._replace(thinking=found.thinking or thinking)
    raise InvalidValue("no model", hint="name one in the spec or the agent's file, or set defaultModel in config.json")


def _thinking(name: str, model: str) -> str | None:
    """How much a name says that this model is to think."""
    try:
        found = parse_model(name)
    except InvalidValue:
        return None
    return found.thinking if found.name == model else None


def launch_of(workflow: Workflow, call: Call, execution: Execution, pins: Pins) -> Launch:
    """What the host gets."""
    agent = dict(pins.agents.get(call.agent, {}))
    spec = call.spec
    thinking = execution.thinking or agent.get("thinking")
    return Launch(
        exec=execution.exec, wid=call.wid, key=call.key, generation=call.generation, cwd=cwd_of(workflow, call),
        model=execution.model, task=call.opening, task_id=call.opening_request, agent=agent,
        tools=spec.get("tools", agent.get("tools")), skills=list(spec.get("skills") or agent.get("skills") or []),
        schema=spec.get("schema"), once=bool(spec.get("once")), budget=dict(spec.get("budget", {})),
        thinking=str(thinking) if thinking else None, resumed=call.attempt > 1 or call.launch > 1,
    )  # fmt: skip


async def account(tx: TaskTransaction, workflow: Workflow, call: Call, evidence: Evidence) -> None:
    """Book what the generation used so far, and note a budget of the workflow that is reached."""
    if evidence.usage:
        call.usage = Usage(
            input=int(evidence.usage["input"]), output=int(evidence.usage["output"]),
            cost_usd=float(evidence.usage["costUsd"]),
        )  # fmt: skip
    if not workflow.budget or workflow.budget_reached:
        return
    spent = await spent_by(tx, workflow, call)
    tokens = workflow.budget.get("tokens", float("inf"))
    if spent.input + spent.output >= tokens or spent.cost_usd >= workflow.budget.get("costUsd", float("inf")):
        workflow.budget_reached = True
        await _wake_waiting(tx, workflow, call)
        await append_event(tx, "budget", workflow=workflow, spent=msgspec.to_builtins(spent))
        await put_notice(tx, workflow, "budget", f"The budget of {workflow.name or workflow.wid} is reached.")


async def _wake_waiting(tx: TaskTransaction, workflow: Workflow, but: Call) -> None:
    """Whoever does not run learns that it will not."""
    for key in workflow.open:
        call = None if key == but.key else await rows.call(tx, workflow.wid, key)
        if call is not None and call.exec is None:
            await poke(tx, call)


async def spent_by(reader: rows.Reader, workflow: Workflow, fresh: Call | None = None) -> Usage:
    """What all calls of a workflow used, through all generations; `fresh` counts in place of its stored row."""
    total = Usage()
    for call in await rows.calls(reader, workflow):
        if fresh is not None and call.key == fresh.key:
            call = fresh
        for used in (call.spent, call.usage):
            total.input += used.input
            total.output += used.output
            total.cost_usd = round(total.cost_usd + used.cost_usd, 10)
    return total


async def asks(tx: TaskTransaction, workflow: Workflow, call: Call, evidence: Evidence) -> None:
    """Take up the question that the call waits on, if its row does not show it yet."""
    assert evidence.question is not None
    found = evidence.question
    await ask(tx, workflow, call, str(found["qid"]), int(found["rev"]), str(found["text"]), int(found["task"]))


async def ask(tx: TaskTransaction, workflow: Workflow, call: Call, qid: str, rev: int, text: str, parked: int) -> None:
    """A question is open: show it, log it, and tell the parent. Repeating it changes nothing."""
    known = call.question
    if known is not None and (known.qid, known.rev) == (qid, rev):
        if known.answered is None:
            call.phase = "asking"
        return
    answer = next((one.request for one in call.deliveries if one.kind == "answer" and one.qid == qid), None)
    call.question = Question(
        qid=qid, rev=rev, text=text, asked=tx.now_millis / 1000, generation=call.generation, task=parked,
        answered=answer,
    )  # fmt: skip
    call.asked[qid] = rev
    call.phase = "asking"
    if answer is not None:
        return  # given while nobody waited on it: it is on its way
    address = call_of(call.wid, call.key)
    await append_event(tx, "asking", workflow=workflow, call=call, qid=qid, rev=rev, text=text, address=address)
    told = f"{address} asks: {text}\nAnswer it with send answer to {address}."
    await put_notice(tx, workflow, "question", told, key=call.key, detail=qid)


async def used_up(
    tx: TaskTransaction, orchestration: Orchestration, call: Call, execution: Execution, error: str
) -> None:
    """The provider's usage window is used up: nobody is sent there before its next try. Known windows are recorded
    once; only a refused probe moves the next try."""
    provider, now = execution.provider, tx.now_millis / 1000
    known = await rows.read(tx, ExhaustedDoc, provider)
    if known is not None and known.probe != call_of(call.wid, call.key):
        return
    found = Exhausted(
        provider=provider, since=now if known is None else known.since, error=error,
        next_try=now + orchestration.config.current.k.probe_ms / 1000,
    )  # fmt: skip
    await rows.write(tx, ExhaustedDoc, provider, found)
    await wake_queue(tx, orchestration.config.current, provider)


async def provider_after(
    tx: TaskTransaction,
    orchestration: Orchestration,
    call: Call,
    execution: Execution | None,
    evidence: Evidence,
    verdict: Verdict,
) -> None:
    """What an execution's end says of its provider: used up, not used up any more, or nothing."""
    if execution is None:
        return
    me = call_of(call.wid, call.key)
    if verdict.exhausted:
        await used_up(tx, orchestration, call, execution, verdict.error or "")
    elif evidence.settled and evidence.error is None:
        known = await rows.read(tx, ExhaustedDoc, execution.provider)
        if known is not None and known.probe == me:
            await tx.retire(ExhaustedDoc, key=execution.provider)
            await wake_queue(tx, orchestration.config.current, execution.provider)
    await free_probe(tx, orchestration.config.current, me)


async def unconfirmed(tx: TaskTransaction, workflow: Workflow, call: Call, detail: str) -> float:
    """It is not proven that an execution is gone, or not known what it left: the call waits and holds what it holds.
    Told once; returns when to try again."""
    now = tx.now_millis / 1000
    if call.waiting is None or call.waiting.reason != "unconfirmed-stop":
        await waits(tx, workflow, call, Waiting(reason="unconfirmed-stop", detail=detail, since=now))
        await rows.put_call(tx, call)
        await put_notice(
            tx, workflow, "unknown", f"{call_of(call.wid, call.key)}: {detail}", key=call.key, detail="fence"
        )
        execution = None if call.exec is None else await rows.read(tx, ExecutionDoc, call.exec)
        if execution is not None:
            execution.state, execution.fence_failed = "fencing", now
            await rows.write(tx, ExecutionDoc, execution.exec, execution)
    return now + FENCE_RETRY


async def not_started(tx: TaskTransaction, workflow: Workflow, call: Call, error: OSError) -> float:
    """The machine cannot start a host now: that is nothing that the call did. Returns when to try again."""
    now = tx.now_millis / 1000
    detail = f"a process cannot be started: {error}"
    if call.waiting is None or call.waiting.detail != detail:
        await waits(tx, workflow, call, Waiting(reason="slot", detail=detail, since=now))
        await rows.put_call(tx, call)
    return now + START_RETRY


def undead(survivors: tuple[str, ...]) -> str:
    """What is told of processes that were killed and live."""
    return f"these processes do not end: {', '.join(survivors)}"
