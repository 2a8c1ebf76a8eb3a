"""One generation of a call, from admission to its seal."""

import contextlib
import os
from typing import Any, Final

from perdure import InvalidValue, Next, StorageError, TaskRun, TaskTransaction, phase, task
from perdure.subagents import rows
from perdure.subagents.engine import admission
from perdure.subagents.engine.call_steps import (
    FENCE_RETRY,
    account,
    admitted,
    asks,
    cwd_of,
    failed,
    launch_of,
    line_up,
    model_for,
    not_started,
    provider_after,
    result_of,
    unconfirmed,
    undead,
    wakes,
)
from perdure.subagents.engine.connecting import connected
from perdure.subagents.engine.context import Orchestration, of
from perdure.subagents.engine.gates import gate_of, run_gate
from perdure.subagents.engine.generations import runs_generations
from perdure.subagents.engine.judge import judge
from perdure.subagents.engine.outputs import publish, record_output
from perdure.subagents.engine.processes import fence, spawn_host
from perdure.subagents.engine.retiring import retire
from perdure.subagents.engine.sealing import seal
from perdure.subagents.engine.watching import Watcher
from perdure.subagents.evidence import read_evidence
from perdure.subagents.host.link import HostGone, HostRefused
from perdure.subagents.intake.send import settle_deliveries
from perdure.subagents.names import call_of, generation_of
from perdure.subagents.notices import resolve_notices
from perdure.subagents.pokes import next_poke
from perdure.subagents.processes import boot_id, is_running
from perdure.subagents.protocol import Evidence
from perdure.subagents.state import Call, CallDoc, Execution, ExecutionDoc, Fence, PinsDoc, ResultDoc, Waiting, Workflow
from perdure.subagents.waiting import moves

CUT: Final = ("process-died", "orchestrator-crash", "restart-force")
"""Ends of an execution that were no end of its work."""
FORGIVEN: Final = ("held", "exhausted", "orchestrator-crash", "restart-force")
"""Ends that are not the call's loss."""


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
        config, memory = orchestration.config.current, orchestration.memory()
        async with run.transaction() as tx:
            workflow, call = await self._rows(tx)
            if await rows.read(tx, ResultDoc, self._name) is not None:
                return tx.complete("sealed")
            if workflow.budget_reached:
                return tx.goto(self.seal, failed("workflow budget reached"))
            if workflow.held or (call.hibernated and not wakes(call)):
                call.held, call.phase = workflow.held, "asking" if call.hibernated else "queued"
                left, call.queued = call.queued, 0
                key = next_poke(call)
                await rows.put_call(tx, call)
                if left:
                    await admission.wake_queue(tx, config, call.queued_for)  # it was its turn, perhaps
                return tx.sleep(self.admit, [key])
            call.held = False
            pins = await rows.need(tx, PinsDoc, f"{self.wid}@{call.revision}")
            try:
                model = model_for(config, call, pins)
            except InvalidValue as error:
                problem = orchestration.config.problem
                if not problem:
                    return tx.goto(self.seal, failed(str(error)))
                waiting = Waiting(reason="slot", detail=f"settings are not in effect: {problem}", since=run.now())
                key = next_poke(call)
                await line_up(tx, workflow, call, "", waiting)
                return tx.sleep(self.admit, [key])
            blocked = await admission.obstacle(tx, config, call, model, memory)
            if blocked is not None:
                waiting, until = blocked
                key = next_poke(call)
                await line_up(tx, workflow, call, model.provider, waiting)
                return tx.sleep(self.admit, [key], until)
            execution = await admitted(tx, orchestration, workflow, call, model)
            return tx.goto(self.launch, execution.exec)

    @phase
    async def launch(self, run: TaskRun, exec: str) -> Next[str]:
        """Start the host, or find the one that an earlier orchestrator started, and open its gate."""
        orchestration = of(run)
        session = orchestration.harness.session
        execution = await rows.read(session, ExecutionDoc, exec)
        if execution is None:
            return run.goto(self.admit)
        workflow, call = await self._rows(session)
        pins = await rows.need(session, PinsDoc, f"{self.wid}@{call.revision}")
        if run.cut:
            alive = execution.pid is not None and is_running(execution.pid, execution.started or "")
            link = await connected(orchestration.root, execution) if alive else None
            if link is None:  # whether it ran is told by what it left
                return run.goto(self.settle, exec, "orchestrator-crash")
        else:
            try:
                pid, started = spawn_host(orchestration.root, execution, cwd_of(workflow, call))
            except OSError as error:
                async with run.transaction() as tx:
                    return tx.sleep(self.launch, (), await not_started(tx, *await self._rows(tx), error), exec)
            async with run.transaction() as tx:
                execution.pid, execution.started, execution.boot, execution.state = pid, started, boot_id(), "spawned"
                await rows.write(tx, ExecutionDoc, exec, execution)
            link = await connected(orchestration.root, execution)
        if link is None:
            return run.goto(self.settle, exec, "process-died")
        try:
            said = await link.begin(launch_of(workflow, call, execution, pins), execution.nonce)
        except HostRefused as error:
            return run.goto(self.refused, exec, str(error))
        except HostGone:
            return run.goto(self.settle, exec, "process-died")
        finally:
            await link.disconnect()
        if said != "begun":
            return run.goto(self.settle, exec, "process-died")
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
            return run.goto(self.settle, exec, "orchestrator-crash" if run.cut else "process-died")
        watcher = Watcher(orchestration, run, link, self.wid, self.key, execution)
        try:
            why = await watcher.watch()
        finally:
            orchestration.forget(call_of(self.wid, self.key))
        return run.goto(self.settle, exec, why)

    @phase
    async def settle(self, run: TaskRun, exec: str, why: str) -> Next[str]:
        """Prove the execution gone, read what it left, and decide how the generation goes on."""
        return await self._fenced(run, exec, why, None)

    async def _fenced(self, run: TaskRun, exec: str, why: str, result: dict[str, Any] | None) -> Next[str]:
        orchestration = of(run)
        session = orchestration.harness.session
        execution = await rows.read(session, ExecutionDoc, exec)
        evidence = await self._left(orchestration, exec, None if execution is None else execution.pid)
        if isinstance(evidence, str):
            async with run.transaction() as tx:
                until = await unconfirmed(tx, *await self._rows(tx), evidence)
                return tx.sleep(self.settle if result is None else self.refused, (), until, exec, why)
        async with run.transaction() as tx:
            workflow, call = await self._rows(tx)
            call.exec = None
            await moves(tx, workflow, call)
            await resolve_notices(tx, self.wid, "ended", key=self.key, kinds=("unknown",), detail="fence")
            await resolve_notices(tx, self.wid, "ended", key=self.key, kinds=("stall",))
            await account(tx, workflow, call, evidence)
            await settle_deliveries(tx, call, evidence.taken)
            await rows.put_call(tx, call)
            await rows.put_workflow(tx, workflow)
            if result is not None:
                return tx.goto(self.seal, result, exec)
            return await self._decide(tx, orchestration, workflow, call, evidence, execution, exec, why)

    async def _left(self, orchestration: Orchestration, exec: str, pid: int | None) -> Evidence | str:
        """Prove an execution gone; what it left, or why that is not known."""
        survivors = await fence(exec, pid)
        if survivors:
            return undead(survivors)
        with contextlib.suppress(OSError):
            os.unlink(orchestration.root.host_socket(exec))
        try:
            return await read_evidence(orchestration.store_of(self.wid, self.key), exec, self.generation)
        except (OSError, StorageError) as error:
            return f"its session cannot be read: {error}"

    async def _decide(
        self,
        tx: TaskTransaction,
        orchestration: Orchestration,
        workflow: Workflow,
        call: Call,
        evidence: Evidence,
        execution: Execution | None,
        exec: str,
        why: str,
    ) -> Next[str]:
        config = orchestration.config.current
        verdict = judge(
            evidence,
            timed_out=why == "timeout",
            schema=call.spec.get("schema") is not None,
            once=bool(call.spec.get("once")),
            forgiven=why in FORGIVEN,
            losses=call.losses,
            launches=call.launch,
            loss_bound=config.k.loss_bound,
        )
        if why in CUT and not evidence.settled and evidence.marker and verdict.outcome != "asking":
            call.last_fence = Fence(at=tx.now_millis / 1000, exec=exec, reason=why)
        call.losses += verdict.loss
        if verdict.outcome == "asking":
            await asks(tx, workflow, call, evidence)
            call.hibernated, call.phase = True, "asking"
        elif verdict.outcome == "again":
            call.phase, call.hibernated = "queued", False
            if verdict.loss:
                call.attempt += 1
                call.launch = 0
        await rows.put_call(tx, call)
        await provider_after(tx, orchestration, call, execution, evidence, verdict)
        if verdict.outcome == "sealed":
            after = self.gate if verdict.status == "ok" and call.spec.get("gate") is not None else self.seal
            return tx.goto(after, result_of(verdict), exec)  # its slot is held until the seal
        if execution is not None:
            await admission.release(tx, config, execution)
        return tx.goto(self.admit)

    @phase
    async def gate(self, run: TaskRun, result: dict[str, Any], exec: str) -> Next[str]:
        """Run the gate, once; a cut one is not run again. It is an execution of its own, which holds no slot."""
        orchestration = of(run)
        async with run.transaction() as tx:
            workflow, call = await self._rows(tx)
            if call.gate == "begun":
                unknown = {**result, "status": "unknown", "error": "its gate was cut off, and is not run again"}
                return tx.goto(self.gated, unknown)
            call.gate = "begun"
            host = await rows.read(tx, ExecutionDoc, exec)
            gate = Execution(
                exec=self._gate, wid=self.wid, key=self.key, generation=self.generation, nonce="", provider="",
                model="", kind="gate", state="begun", admitted=tx.now_millis / 1000, begun=tx.now_millis / 1000,
                boot=boot_id(), session=workflow.origin,
            )  # fmt: skip
            call.exec = self._gate
            await rows.write(tx, ExecutionDoc, self._gate, gate)
            await rows.put_call(tx, call)
            if host is not None:
                await admission.release(tx, orchestration.config.current, host)
        given = gate_of(call, result, tag=self._gate, cwd=cwd_of(workflow, call), name=self._name)
        before = run.now()
        judged = await run_gate(orchestration.root, given)
        async with run.transaction() as tx:
            workflow, call = await self._rows(tx)
            call.gate = "passed" if judged["status"] == "ok" else "failed"
            call.active_ms += max(0, int((tx.now_millis / 1000 - before) * 1000))
            await rows.put_call(tx, call)
            return tx.goto(self.gated, judged)

    @phase
    async def gated(self, run: TaskRun, result: dict[str, Any]) -> Next[str]:
        """What the gate left running ends before the seal."""
        survivors = await fence(self._gate, None)
        async with run.transaction() as tx:
            workflow, call = await self._rows(tx)
            if survivors:
                until = await unconfirmed(tx, workflow, call, undead(survivors))
                return tx.sleep(self.gated, (), until, result)
            await resolve_notices(tx, self.wid, "ended", key=self.key, kinds=("unknown",), detail="fence")
            return tx.goto(self.seal, result, self._gate)

    @phase
    async def seal(self, run: TaskRun, result: dict[str, Any], exec: str = "") -> Next[str]:
        """Publish the output, then store the result, once, and let go of what was held for it."""
        orchestration = of(run)
        workflow, call = await self._rows(orchestration.harness.session)
        published = await publish(orchestration.harness.session, orchestration.root, workflow, call, result)
        async with run.transaction() as tx:
            await record_output(tx, workflow, call, published)
            sealed = await seal(tx, self.wid, self.key, self.generation, {**result, **published.draft})
            await self._let_go(tx, orchestration, call, exec)
            return tx.complete(sealed)

    async def _let_go(self, tx: TaskTransaction, orchestration: Orchestration, before: Call, exec: str) -> None:
        """Release what the generation held, its place in the queue too; `before` is its row before the seal."""
        config = orchestration.config.current
        execution = await rows.read(tx, ExecutionDoc, exec) if exec else None
        if execution is not None:
            await admission.release(tx, config, execution)
        await admission.free_probe(tx, config, call_of(self.wid, self.key))
        if before.queued:
            await admission.wake_queue(tx, config, before.queued_for)

    async def abort(self, run: TaskRun) -> Next[str]:
        """Stopped, or retired by a revision: end what runs; a stopped one is sealed as that."""
        orchestration = of(run)
        session = orchestration.harness.session
        for execution in await admission.executions(session):
            if (execution.wid, execution.key) == (self.wid, self.key):
                await self._end(run, execution)
        async with run.transaction() as tx:
            workflow, call = await self._rows(tx)
            await resolve_notices(tx, self.wid, "ended", key=self.key, kinds=("unknown",), detail="fence")
            if call.generation == self.generation and call.retiring:
                await retire(tx, workflow, call)
            elif call.generation == self.generation:
                await seal(tx, self.wid, self.key, self.generation, {"status": "stopped", "error": "stopped"})
            for execution in await admission.executions(tx):
                if (execution.wid, execution.key) == (self.wid, self.key):
                    await admission.release(tx, orchestration.config.current, execution)
            await self._let_go(tx, orchestration, call, "")
            return tx.aborted("stopped")

    async def _end(self, run: TaskRun, execution: Execution) -> None:
        """Prove it gone, however long that takes, and book what it used."""
        orchestration = of(run)
        while isinstance(evidence := await self._left(orchestration, execution.exec, execution.pid), str):
            async with run.transaction() as tx:
                await unconfirmed(tx, *await self._rows(tx), evidence)
            await orchestration.harness.session.clock.sleep(FENCE_RETRY)
        async with run.transaction() as tx:
            workflow, call = await self._rows(tx)
            await account(tx, workflow, call, evidence)
            await settle_deliveries(tx, call, evidence.taken)
            call.exec = None
            await rows.put_call(tx, call)
            await rows.put_workflow(tx, workflow)

    @property
    def _name(self) -> str:
        return generation_of(self.wid, self.key, self.generation)

    @property
    def _gate(self) -> str:
        return f"{self._name}#gate"

    async def _rows(self, reader: rows.Reader) -> tuple[Workflow, Call]:
        workflow = await rows.workflow(reader, self.wid)
        call = await rows.read(reader, CallDoc, call_of(self.wid, self.key))
        assert workflow is not None
        assert call is not None
        return workflow, call
