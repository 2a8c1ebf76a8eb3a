"""The rows of what is handed to a host: a mark before it may have it, and its end once it was given."""

from perdure import TaskRun, TaskTransaction
from perdure.subagents import rows
from perdure.subagents.engine.admission import wake_queue
from perdure.subagents.engine.context import Orchestration
from perdure.subagents.events import append_event
from perdure.subagents.intake.send import drop_withdrawn
from perdure.subagents.names import call_of
from perdure.subagents.state import CallDoc, Delivery, Execution, ExecutionDoc, WorkflowDoc


async def mark_handed(run: TaskRun, execution: Execution, delivery: Delivery) -> bool:
    """From now on the host may have it: what is withdrawn later is taken back from it. False if that was before."""
    if delivery.handed:
        return True
    async with run.transaction() as tx:
        call = await rows.need(tx, CallDoc, call_of(execution.wid, execution.key))
        for one in call.deliveries:
            if one.request == delivery.request and one.withdrawn is None:
                one.handed = True
                await rows.put_call(tx, call)
                return True
    return False


async def delivered(
    run: TaskRun, orchestration: Orchestration, execution: Execution, request: str, result: str
) -> None:
    """It has been given: it waits no longer. Repeating it changes nothing."""
    async with run.transaction() as tx:
        workflow = await rows.need(tx, WorkflowDoc, execution.wid)
        call = await rows.need(tx, CallDoc, call_of(execution.wid, execution.key))
        found = next((one for one in call.deliveries if one.request == request), None)
        if found is None:
            return
        call.deliveries = [one for one in call.deliveries if one.request != request]
        if found.kind == "model" and result.startswith("refused"):
            call.wanted, call.switch_failed = None, result
            await _unreserve(tx, orchestration, execution.exec)
        await append_event(tx, "delivered", workflow=workflow, call=call, by=request, kind=found.kind, result=result)
        await rows.put_call(tx, call)


async def _unreserve(tx: TaskTransaction, orchestration: Orchestration, exec: str) -> None:
    execution = await rows.read(tx, ExecutionDoc, exec)
    if execution is not None and execution.reserved is not None:
        provider, execution.reserved, execution.reserved_at = execution.reserved, None, None
        await rows.write(tx, ExecutionDoc, exec, execution)
        await wake_queue(tx, orchestration.config.current, provider)


async def taken_back(run: TaskRun, execution: Execution, request: str) -> None:
    """Its host never gives it."""
    async with run.transaction() as tx:
        call = await rows.need(tx, CallDoc, call_of(execution.wid, execution.key))
        await drop_withdrawn(tx, call, request)
        await rows.put_call(tx, call)
