"""Parts of a generation's phases: each runs inside the commit of the phase that calls it."""

import os
from typing import Any

import msgspec

from perdure import TaskTransaction
from perdure.subagents import rows
from perdure.subagents.engine.context import Orchestration
from perdure.subagents.engine.judge import Verdict
from perdure.subagents.events import append_event, counters
from perdure.subagents.model_names import ModelName
from perdure.subagents.names import call_of, execution_id
from perdure.subagents.notices import put_notice
from perdure.subagents.protocol import Evidence, Launch
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


def failed(error: str) -> dict[str, Any]:
    """The draft of a result for what cannot run."""
    return {"status": "failed", "error": error}


def result_of(verdict: Verdict) -> dict[str, Any]:
    """The draft of a result."""
    found = {"status": verdict.status, "output": verdict.output, "data": verdict.data, "error": verdict.error}
    return {name: value for name, value in found.items() if value is not None}


def wakes(call: Call) -> bool:
    """Whether something was sent that a call must run for which waits on its question."""
    return any(one.kind in ("answer", "steer") for one in call.deliveries)


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
    before = call.waiting
    if before is None or before.reason != waiting.reason:
        await append_event(tx, "waiting", workflow=workflow, call=call, reason=waiting.reason, detail=waiting.detail)
    elif before is not None:
        waiting.since = before.since
    call.waiting = waiting
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
        provider=model.provider, model=model.name, admitted=now, session=workflow.origin,
    )  # fmt: skip
    await rows.write(tx, ExecutionDoc, exec, execution)
    if call.waiting is not None:
        await append_event(tx, "moving", workflow=workflow, call=call, after=call.waiting.reason)
    if call.last_fence is not None and call.started is not None:
        fence = call.last_fence
        await append_event(tx, "fenced", workflow=workflow, call=call, exec=fence.exec, reason=fence.reason)
    if call.started is None:
        call.started = now
        await append_event(tx, "started", workflow=workflow, call=call, model=model.name, agent=call.agent)
    call.exec, call.phase, call.queued, call.waiting, call.hibernated = exec, "running", 0, None, False
    if call.question is not None and call.question.answered is None:
        call.phase = "asking"
    call.held = False
    await rows.put_call(tx, call)
    return execution


async def launch_of(
    orchestration: Orchestration, workflow: Workflow, call: Call, execution: Execution, pins: Pins
) -> Launch:
    """What the host gets."""
    agent = dict(pins.agents.get(call.agent, {}))
    spec = call.spec
    thinking = agent.get("thinking")
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
        await append_event(tx, "budget", workflow=workflow, spent=msgspec.to_builtins(spent))
        await put_notice(tx, workflow, "budget", f"The budget of {workflow.name or workflow.wid} is reached.")


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
    call.question = Question(
        qid=qid, rev=rev, text=text, asked=tx.now_millis / 1000, generation=call.generation, task=parked
    )
    call.asked[qid] = rev
    call.phase = "asking"
    address = call_of(call.wid, call.key)
    await append_event(tx, "asking", workflow=workflow, call=call, qid=qid, rev=rev, text=text, address=address)
    told = f"{address} asks: {text}\nAnswer it with send answer to {address}."
    await put_notice(tx, workflow, "question", told, key=call.key, detail=qid)


async def used_up(tx: TaskTransaction, orchestration: Orchestration, call: Call, error: str) -> None:
    """The provider's usage window is used up: nobody is sent there before its next try."""
    provider = (call.model or "").partition(":")[0]
    if not provider:
        return
    now = tx.now_millis / 1000
    known = await rows.read(tx, ExhaustedDoc, provider)
    since = now if known is None else known.since
    found = Exhausted(
        provider=provider, since=since, error=error, next_try=now + orchestration.config.current.k.probe_ms / 1000
    )
    await rows.write(tx, ExhaustedDoc, provider, found)
