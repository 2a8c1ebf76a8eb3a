"""Opening generations of calls."""

from typing import Any

from perdure import ROOT, TaskTransaction
from perdure.subagents import rows
from perdure.subagents.state import Call, LiveDoc, Usage, Workflow


async def open_generation(
    tx: TaskTransaction, workflow: Workflow, call: Call, *, opening: str, request: str, model: str | None
) -> int:
    """Open the next generation of a call that has ended, in the same conversation; returns its number."""
    begin_generation(call)
    call.opening, call.opening_request = opening, request
    if model is not None:
        call.wanted = model
    call.task = tx.create_task(generation_task(call), conversation=ROOT, background=True)
    if call.key not in workflow.open:
        workflow.open.append(call.key)
    await rows.put_call(tx, call)
    await rows.put_workflow(tx, workflow)
    await rows.write(tx, LiveDoc, workflow.wid, {})
    return call.generation


def begin_generation(call: Call) -> None:
    """The next number; what counts within a generation counts anew."""
    used = call.usage
    call.spent = Usage(
        input=call.spent.input + used.input, output=call.spent.output + used.output,
        cost_usd=round(call.spent.cost_usd + used.cost_usd, 10),
    )  # fmt: skip
    call.generation += 1
    call.usage, call.status, call.started, call.gate = Usage(), None, None, None
    call.phase, call.attempt, call.launch, call.losses, call.active_ms = "queued", 1, 0, 0, 0
    call.asked, call.question, call.last_fence, call.waiting = {}, None, None, None
    call.hibernated, call.queued, call.retiring = False, 0, False


def generation_task(call: Call) -> Any:
    """The task of the call's newest generation."""
    return _tasks["call"](call.wid, call.key, call.generation)


_tasks: dict[str, Any] = {}


def runs_generations(task: Any) -> Any:
    """Register the kind of task; generations are opened by code below it."""
    _tasks["call"] = task
    return task
