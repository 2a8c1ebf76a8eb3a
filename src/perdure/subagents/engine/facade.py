"""What decisions ask of the engine; all of it in the decision's own commit."""

from typing import Any

from perdure import ROOT, InvalidValue, TaskId, TaskTransaction
from perdure.subagents import rows
from perdure.subagents.engine import admission
from perdure.subagents.engine.context import Orchestration
from perdure.subagents.engine.generations import open_generation
from perdure.subagents.engine.script_task import ScriptRun, release_script
from perdure.subagents.engine.workflow_task import WorkflowRun
from perdure.subagents.intake.decision import Rejected
from perdure.subagents.model_names import parse_model
from perdure.subagents.names import call_of
from perdure.subagents.notices import resolve_notices
from perdure.subagents.pokes import poke
from perdure.subagents.spec import NO_POOLS
from perdure.subagents.state import Call, CallDoc, EndedDoc, ExecutionDoc, ExhaustedDoc, LiveDoc, Workflow, recent_key


class EngineFacade:
    """Fills `intake.engine.Engine`."""

    def __init__(self, orchestration: Orchestration) -> None:
        self._orchestration = orchestration

    async def start_workflow(self, tx: TaskTransaction, workflow: Workflow) -> None:
        await self._begin(tx, workflow, ())

    async def _begin(self, tx: TaskTransaction, workflow: Workflow, after: tuple[int, ...]) -> None:
        kind: Any = ScriptRun if workflow.form == "script" else WorkflowRun
        workflow.task = tx.create_task(kind(workflow.wid, workflow.revision, after), conversation=ROOT, background=True)
        await rows.put_workflow(tx, workflow)
        await rows.write(tx, LiveDoc, workflow.wid, {})

    async def open_generation(
        self, tx: TaskTransaction, workflow: Workflow, call: Call, *, opening: str, request: str, model: str | None
    ) -> int:
        name = None if model is None else self._known(model)
        return await open_generation(tx, workflow, call, opening=opening, request=request, model=name)

    async def stop_call(self, tx: TaskTransaction, workflow: Workflow, call: Call) -> None:
        await tx.abort_task(TaskId(call.task), background=True)

    async def stop_workflow(self, tx: TaskTransaction, workflow: Workflow) -> None:
        workflow.stopping = True
        await rows.put_workflow(tx, workflow)
        if workflow.task:
            await tx.abort_task(TaskId(workflow.task), background=True)
        for key in workflow.open:
            call = await rows.call(tx, workflow.wid, key)
            if call is not None and tx.live_task(TaskId(call.task)) is not None:
                await tx.abort_task(TaskId(call.task), background=True)

    async def hold(self, tx: TaskTransaction, workflow: Workflow, *, fence: bool) -> None:
        workflow.held = True
        workflow.paused = workflow.paused or fence
        await rows.put_workflow(tx, workflow)
        await self._poke(tx, workflow)

    async def release(self, tx: TaskTransaction, workflow: Workflow) -> None:
        workflow.held, workflow.paused = False, False
        if workflow.status == "parked":
            workflow.status, workflow.reason = "running", None
            await resolve_notices(tx, workflow.wid, "resumed", kinds=("finished",))
            await release_script(tx, workflow)
        await rows.put_workflow(tx, workflow)
        await self._poke(tx, workflow)

    async def _poke(self, tx: TaskTransaction, workflow: Workflow) -> None:
        for key in workflow.open:
            call = await rows.call(tx, workflow.wid, key)
            if call is not None:
                await poke(tx, call)

    def known_model(self, model: str) -> str:
        if model in self._orchestration.config.current.pools:
            raise Rejected("pool-unavailable", detail=NO_POOLS)
        return self._known(model)

    def _known(self, name: str) -> str:
        try:
            return parse_model(name).name
        except InvalidValue as error:
            raise Rejected(f"unknown-model: {error}") from error

    async def reserve_model(self, tx: TaskTransaction, call: Call, model: str) -> str:
        config = self._orchestration.config.current
        chosen = self.known_model(model)
        if call.exec is None:
            return chosen
        if any(one.kind == "model" for one in call.deliveries) or call.wanted is not None:
            raise Rejected("switch-pending", detail="an earlier switch has not been used yet")
        execution = await rows.need(tx, ExecutionDoc, call.exec)
        if execution.state != "begun":
            raise Rejected("call-starting", detail="ask again once it runs")
        provider = chosen.partition(":")[0]
        if provider != execution.provider:
            limit = config.slots(provider)
            if limit is not None and admission.held(await admission.executions(tx), provider) >= limit:
                raise Rejected("provider-full", detail=f"{provider} has {limit} slots")
            if await rows.read(tx, ExhaustedDoc, provider) is not None:
                raise Rejected("provider-full", detail=f"{provider} is used up")
            execution.reserved, execution.reserved_at = provider, tx.now_millis / 1000
            await rows.write(tx, ExecutionDoc, execution.exec, execution)
        return chosen

    async def revise(self, tx: TaskTransaction, workflow: Workflow, pins: Any) -> None:
        """The new revision's task begins once all that ran of the old one is proven gone."""
        before = {workflow.task} if workflow.task else set()
        for key in workflow.open:
            call = await rows.need(tx, CallDoc, call_of(workflow.wid, key))
            call.retiring = True
            await rows.put_call(tx, call)
            before.add(call.task)
        live = sorted(id for id in before if tx.live_task(TaskId(id)) is not None)
        for id in live:
            await tx.abort_task(TaskId(id), background=True)
        if workflow.ended is not None:
            await tx.retire(EndedDoc, key=recent_key(workflow.ended, workflow.wid))
        workflow.status, workflow.reason, workflow.ended, workflow.result = "running", None, None, None
        workflow.error, workflow.skipped = None, []
        await resolve_notices(tx, workflow.wid, "revised", kinds=("finished",))
        await self._begin(tx, workflow, tuple(live))
