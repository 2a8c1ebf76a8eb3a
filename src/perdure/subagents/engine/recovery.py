"""What tasks do not look after themselves: executions whose task is no more, and workflows whose task failed.

Recovery is otherwise each task's own: it resumes in the phase it was in, adopts the host that lives, or proves it gone.
"""

import asyncio
import contextlib
from typing import Any

from perdure import TaskId, TaskTransaction
from perdure.subagents import rows
from perdure.subagents.engine import admission
from perdure.subagents.engine.call_steps import FENCE_RETRY, account
from perdure.subagents.engine.context import Orchestration
from perdure.subagents.engine.processes import fence
from perdure.subagents.engine.sealing import end_workflow, seal
from perdure.subagents.evidence import read_evidence
from perdure.subagents.intake.send import settle_deliveries
from perdure.subagents.state import Call, Execution, LiveDoc

GATHER_SECONDS = 0.5
"""Reports that come together are looked into once."""


async def sweep(orchestration: Orchestration) -> None:
    """Look once, and again after each error that was reported; until cancelled. Costs nothing meanwhile."""
    told = asyncio.Event()
    told.set()

    def heard(_: dict[str, Any]) -> None:
        told.set()

    reports = orchestration.harness.reports
    reports.listeners.append(heard)
    left = False
    try:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FENCE_RETRY if left else None):
                    await told.wait()
            told.clear()
            try:
                left = await look(orchestration)
            except Exception as error:
                left = True
                reports.kept.append(
                    {"at": orchestration.harness.session.clock.now(), "where": "sweep", "error": repr(error)}
                )
            await asyncio.sleep(GATHER_SECONDS)
    finally:
        reports.listeners.remove(heard)


async def look(orchestration: Orchestration) -> bool:
    """One pass. Returns whether something is left to be tried again."""
    session = orchestration.harness.session
    left = False
    for execution in await admission.executions(session):
        async with session.transaction() as tx:
            orphaned = not await _looked_after(tx, execution)
        if orphaned:
            left |= not await _end(orchestration, execution)
    for wid in await rows.keys(session, LiveDoc):
        async with session.transaction() as tx:
            await _mend(tx, wid)
    return left


async def _looked_after(tx: TaskTransaction, execution: Execution) -> bool:
    """Whether the task of its call lives, or that of its workflow, which is to replace it."""
    call = await rows.call(tx, execution.wid, execution.key)
    return call is not None and tx.live_task(TaskId(call.task)) is not None


async def _end(orchestration: Orchestration, execution: Execution) -> bool:
    """Prove an execution gone, book what it used, and let go of what it held."""
    if await fence(execution.exec, execution.pid):
        return False
    store = orchestration.store_of(execution.wid, execution.key)
    evidence = await read_evidence(store, execution.exec, execution.generation)
    async with orchestration.harness.session.transaction() as tx:
        workflow, call = await rows.workflow(tx, execution.wid), await rows.call(tx, execution.wid, execution.key)
        if workflow is not None and call is not None and call.generation == execution.generation:
            await account(tx, workflow, call, evidence)
            await settle_deliveries(tx, call, evidence.taken)
            await rows.put_call(tx, call)
            await rows.put_workflow(tx, workflow)
        await admission.release(tx, orchestration.config.current, execution)
    return True


async def _mend(tx: TaskTransaction, wid: str) -> None:
    """A workflow that nobody works on ends; so do its calls."""
    workflow = await rows.workflow(tx, wid)
    if workflow is None:
        return
    if workflow.status == "running" and workflow.task and tx.live_task(TaskId(workflow.task)) is None:
        await end_workflow(tx, workflow, "failed", error="its task failed; the orchestrator's reports say why")
    for key in tuple(workflow.open):
        await seal_lost(tx, wid, key)


async def seal_lost(tx: TaskTransaction, wid: str, key: str) -> None:
    """A call whose task failed is told as failed, unless it is sealed."""
    call: Call | None = await rows.call(tx, wid, key)
    if call is not None and call.phase != "sealed" and tx.live_task(TaskId(call.task)) is None:
        await seal(tx, wid, key, call.generation, LOST)


LOST = {"status": "failed", "error": "its task ended without a result"}
