"""One generation of a call, from admission to its seal."""

import asyncio
import contextlib
import os
from typing import Any, Final

from perdure import InvalidValue, Next, TaskRun, TaskTransaction, phase, task
from perdure.subagents import rows
from perdure.subagents.engine import admission
from perdure.subagents.engine.call_steps import (
    account,
    admitted,
    asks,
    cwd_of,
    failed,
    launch_of,
    line_up,
    result_of,
    used_up,
    wakes,
)
from perdure.subagents.engine.context import Orchestration, of
from perdure.subagents.engine.gates import run_gate
from perdure.subagents.engine.generations import runs_generations
from perdure.subagents.engine.judge import judge
from perdure.subagents.engine.outputs import publish
from perdure.subagents.engine.processes import fence, spawn_host
from perdure.subagents.engine.sealing import seal
from perdure.subagents.engine.watching import Watcher, connected
from perdure.subagents.events import append_event
from perdure.subagents.evidence import read_evidence
from perdure.subagents.host.link import HostGone, HostRefused
from perdure.subagents.names import call_of, generation_of
from perdure.subagents.notices import put_notice, resolve_notices
from perdure.subagents.pokes import next_poke
from perdure.subagents.processes import boot_id
from perdure.subagents.protocol import Evidence
from perdure.subagents.state import (
    Call,
    CallDoc,
    ExecutionDoc,
    Fence,
    PinsDoc,
    ResultDoc,
    Waiting,
    Workflow,
)

FENCE_RETRY: Final = 30.0
CUT: Final = ("exited", "orchestrator-died", "restart")
"""Ends of an execution that were no end of its work."""


@runs_generations
@task("agents.call", version=1)
class CallGeneration:
    """A generation. Its phases may run again after a crash: each finds from the rows what has been done."""

    wid: str
    key: str
    generation: int

    @phase(first=True)
    async def admit(self, run: TaskRun) -> Next[str]:
        """Wait until it may run, then store the execution; it is launched after that."""
        orchestration = of(run)
        memory = orchestration.memory()
        async with run.transaction() as tx:
            workflow, call = await self._rows(tx)
            if await rows.read(tx, ResultDoc, self._name) is not None:
                return tx.complete("sealed")
            if workflow.held:
                call.held, call.phase = True, "asking" if call.hibernated else "queued"
                await rows.put_call(tx, call)
                return tx.sleep(self.admit, [next_poke(call)])
            call.held = False
            if call.hibernated and not wakes(call):
                await rows.put_call(tx, call)
                return tx.sleep(self.admit, [next_poke(call)])
            if workflow.budget_reached:
                return tx.goto(self.seal, failed("workflow budget reached"))
            pins = await rows.need(tx, PinsDoc, f"{self.wid}@{call.revision}")
            try:
                model = admission.chosen_model(orchestration.config.current, call, pins.agents.get(call.agent, {}))
            except InvalidValue as error:
                return tx.goto(self.seal, failed(str(error)))
            blocked = await admission.obstacle(tx, orchestration.config.current, call, model, memory)
            if blocked is not None:
                waiting, until = blocked
                await line_up(tx, workflow, call, model.provider, waiting)
                return tx.sleep(self.admit, [next_poke(call)], until)
            execution = await admitted(tx, orchestration, workflow, call, model)
            return tx.goto(self.launch, execution.exec)

    @phase
    async def launch(self, run: TaskRun, exec: str) -> Next[str]:
        """Start the host, or find the one that an earlier orchestrator started, and open its gate."""
        orchestration = of(run)
        execution = await rows.read(orchestration.harness.session, ExecutionDoc, exec)
        if execution is None:
            return run.goto(self.admit)
        workflow, call = await self._rows(orchestration.harness.session)
        pins = await rows.need(orchestration.harness.session, PinsDoc, f"{self.wid}@{call.revision}")
        link = await connected(orchestration.root, execution, patience=0.0) if run.cut else None
        if link is None:
            await fence(exec, execution.pid)
            pid, started = spawn_host(orchestration.root, execution, cwd_of(workflow, call))
            async with run.transaction() as tx:
                execution.pid, execution.started, execution.boot, execution.state = pid, started, boot_id(), "spawned"
                await rows.write(tx, ExecutionDoc, exec, execution)
            link = await connected(orchestration.root, execution)
        if link is None:
            return run.goto(self.settle, exec, "exited")
        try:
            launch = await launch_of(orchestration, workflow, call, execution, pins)
            said = await link.begin(launch, execution.nonce)
        except HostRefused as error:
            return run.goto(self.refused, exec, str(error))
        except HostGone:
            return run.goto(self.settle, exec, "exited")
        finally:
            await link.disconnect()
        if said != "begun":
            return run.goto(self.settle, exec, "exited")
        async with run.transaction() as tx:
            execution.state, execution.begun = "begun", tx.now_millis / 1000
            await rows.write(tx, ExecutionDoc, exec, execution)
            return tx.goto(self.watch, exec)

    @phase
    async def refused(self, run: TaskRun, exec: str, why: str) -> Next[str]:
        """The host cannot run it: that is the result."""
        return await self._fenced(run, exec, "refused", failed(why))

    @phase
    async def watch(self, run: TaskRun, exec: str) -> Next[str]:
        """Hand over what is sent to the call and keep its row, until the execution's end or its limit."""
        orchestration = of(run)
        execution = await rows.read(orchestration.harness.session, ExecutionDoc, exec)
        if execution is None:
            return run.goto(self.admit)
        link = await connected(orchestration.root, execution, patience=2.0)
        if link is None:
            return run.goto(self.settle, exec, "exited")
        watcher = Watcher(orchestration, run, link, self.wid, self.key, execution)
        try:
            why = await watcher.watch()
        finally:
            orchestration.forget(call_of(self.wid, self.key))
            await link.disconnect()
        return run.goto(self.settle, exec, why)

    @phase
    async def settle(self, run: TaskRun, exec: str, why: str) -> Next[str]:
        """Prove the execution gone, read what it left, and decide how the generation goes on."""
        return await self._fenced(run, exec, why, None)

    async def _fenced(self, run: TaskRun, exec: str, why: str, result: dict[str, Any] | None) -> Next[str]:
        orchestration = of(run)
        session = orchestration.harness.session
        execution = await rows.read(session, ExecutionDoc, exec)
        survivors = await fence(exec, None if execution is None else execution.pid)
        if survivors:
            return await self._unconfirmed(run, exec, why, survivors)
        with contextlib.suppress(OSError):
            os.unlink(orchestration.root.host_socket(exec))
        evidence = await read_evidence(orchestration.store_of(self.wid, self.key), exec, self.generation)
        async with run.transaction() as tx:
            workflow, call = await self._rows(tx)
            if execution is not None:
                await admission.release(tx, orchestration.config.current, execution)
                call = await rows.need(tx, CallDoc, call_of(self.wid, self.key))
            call.exec, call.waiting = None, None
            await resolve_notices(tx, self.wid, "ended", key=self.key, kinds=("unknown",), detail="fence")
            await account(tx, workflow, call, evidence)
            if result is not None:
                await rows.put_call(tx, call)
                await rows.put_workflow(tx, workflow)
                return tx.goto(self.seal, result)
            return await self._decide(tx, orchestration, workflow, call, evidence, exec, why)

    async def _decide(
        self,
        tx: TaskTransaction,
        orchestration: Orchestration,
        workflow: Workflow,
        call: Call,
        evidence: Evidence,
        exec: str,
        why: str,
    ) -> Next[str]:
        constants = orchestration.config.current.k
        verdict = judge(
            evidence,
            timed_out=why == "timeout",
            schema=call.spec.get("schema") is not None,
            once=bool(call.spec.get("once")),
            losses=call.losses,
            launches=call.launch,
            loss_bound=constants.loss_bound,
        )
        call.deliveries = [one for one in call.deliveries if one.request not in evidence.taken]
        if why in CUT and not evidence.settled and evidence.marker and verdict.outcome != "asking":
            call.last_fence = Fence(at=tx.now_millis / 1000, exec=exec, reason=why)
        call.losses += verdict.loss
        if verdict.outcome == "sealed":
            await rows.put_call(tx, call)
            await rows.put_workflow(tx, workflow)
            return tx.goto(self.gate if verdict.status == "ok" else self.seal, result_of(verdict))
        if verdict.outcome == "asking":
            await asks(tx, workflow, call, evidence)
            call.hibernated, call.phase = True, "asking"
        else:
            call.phase, call.hibernated = "queued", False
            if verdict.loss:
                call.attempt += 1
                call.launch = 0
            if verdict.exhausted:
                await used_up(tx, orchestration, call, verdict.error or "")
        await rows.put_call(tx, call)
        await rows.put_workflow(tx, workflow)
        return tx.goto(self.admit)

    async def _unconfirmed(self, run: TaskRun, exec: str, why: str, survivors: tuple[str, ...]) -> Next[str]:
        """Processes do not die: the call waits, holding what it holds, and is looked at again."""
        async with run.transaction() as tx:
            workflow, call = await self._rows(tx)
            detail = f"these processes do not end: {', '.join(survivors)}"
            now = tx.now_millis / 1000
            if call.waiting is None or call.waiting.reason != "unconfirmed-stop":
                call.waiting = Waiting(reason="unconfirmed-stop", detail=detail, since=now)
                await append_event(
                    tx, "waiting", workflow=workflow, call=call, reason="unconfirmed-stop", detail=detail
                )
                await put_notice(tx, workflow, "unknown", detail, key=self.key, detail="fence")
            await rows.put_call(tx, call)
            return tx.sleep(self.settle, (), now + FENCE_RETRY, exec, why)

    @phase
    async def gate(self, run: TaskRun, result: dict[str, Any]) -> Next[str]:
        """Run the gate, once; a cut one is not run again."""
        orchestration = of(run)
        workflow, call = await self._rows(orchestration.harness.session)
        gate = call.spec.get("gate")
        if gate is None:
            return run.goto(self.seal, result)
        async with run.transaction() as tx:
            workflow, call = await self._rows(tx)
            if call.gate == "begun":
                unknown = {**result, "status": "unknown", "error": "its gate was cut off, and is not run again"}
                return tx.goto(self.seal, unknown)
            call.gate = "begun"
            await rows.put_call(tx, call)
        tag = f"{generation_of(self.wid, self.key, self.generation)}#gate"
        judged = await run_gate(orchestration, gate, result, tag=tag, cwd=cwd_of(workflow, call), call=self._name)
        async with run.transaction() as tx:
            workflow, call = await self._rows(tx)
            call.gate = "passed" if judged["status"] == "ok" else "failed"
            await rows.put_call(tx, call)
            return tx.goto(self.seal, judged)

    @phase
    async def seal(self, run: TaskRun, result: dict[str, Any]) -> Next[str]:
        """Publish the output, then store the result, once."""
        orchestration = of(run)
        workflow, call = await self._rows(orchestration.harness.session)
        published = await asyncio.to_thread(publish, orchestration.root, workflow, call, self.generation, result)
        async with run.transaction() as tx:
            sealed = await seal(tx, self.wid, self.key, self.generation, {**result, **published})
            return tx.complete(sealed)

    async def abort(self, run: TaskRun) -> Next[str]:
        """Stopped, or retired by a revision: end what runs; a stopped one is sealed as that."""
        orchestration = of(run)
        session = orchestration.harness.session
        workflow, call = await self._rows(session)
        for execution in await admission.executions(session):
            if (execution.wid, execution.key) != (self.wid, self.key):
                continue
            while survivors := await fence(execution.exec, execution.pid):
                orchestration.report("stop", RuntimeError(f"these do not end: {survivors}"))
            evidence = await read_evidence(orchestration.store_of(self.wid, self.key), execution.exec, self.generation)
            async with run.transaction() as tx:
                workflow, call = await self._rows(tx)
                await account(tx, workflow, call, evidence)
                call.exec = None
                await rows.put_call(tx, call)
                await rows.put_workflow(tx, workflow)
                await admission.release(tx, orchestration.config.current, execution)
        gate_tag = f"{generation_of(self.wid, self.key, self.generation)}#gate"
        await fence(gate_tag, None)
        async with run.transaction() as tx:
            workflow, call = await self._rows(tx)
            if call.revision == workflow.revision:
                await seal(tx, self.wid, self.key, self.generation, {"status": "stopped", "error": "stopped"})
            return tx.aborted("stopped")

    @property
    def _name(self) -> str:
        return generation_of(self.wid, self.key, self.generation)

    async def _rows(self, reader: rows.Reader) -> tuple[Workflow, Call]:
        workflow = await rows.workflow(reader, self.wid)
        call = await rows.call(reader, self.wid, self.key)
        assert workflow is not None
        assert call is not None
        return workflow, call
