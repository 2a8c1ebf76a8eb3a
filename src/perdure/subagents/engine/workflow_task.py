"""A workflow: what is proposed when, and what it ends with. Lists and chains; scripts go through `scripts`."""

from typing import Any

import msgspec

from perdure import Next, TaskId, TaskRun, TaskTransaction, phase, task
from perdure.subagents import rows
from perdure.subagents.engine.call_task import CallGeneration
from perdure.subagents.engine.sealing import end_workflow
from perdure.subagents.names import generation_of
from perdure.subagents.spec import fingerprint, with_previous
from perdure.subagents.state import Call, Pins, PinsDoc, Result, ResultDoc, Workflow


@task("agents.workflow", version=1)
class WorkflowRun:
    """A revision of a workflow."""

    wid: str
    revision: int

    @phase(first=True)
    async def begin(self, run: TaskRun) -> Next[str]:
        """Propose what can run at once."""
        async with run.transaction() as tx:
            workflow, pins = await self._rows(tx)
            if workflow.form == "chain":
                return tx.goto(self.step, 0, "")
            tasks = []
            for spec in pins.steps:
                call = await propose(tx, workflow, pins, spec, self.revision)
                if call is not None:
                    tasks.append(TaskId(call.task))
            await rows.put_workflow(tx, workflow)
            return tx.wait(tasks, "all_settled", self.ended) if tasks else tx.goto(self.ended)

    @phase
    async def step(self, run: TaskRun, number: int, previous: str) -> Next[str]:
        """Propose a chain's step with the output of the one before."""
        async with run.transaction() as tx:
            workflow, pins = await self._rows(tx)
            spec = dict(pins.steps[number])
            spec["task"] = with_previous(spec["task"], previous)
            call = await propose(tx, workflow, pins, spec, self.revision)
            await rows.put_workflow(tx, workflow)
            if call is None:
                return tx.goto(self.stepped, number)
            return tx.wait([TaskId(call.task)], "all_settled", self.stepped, number)

    @phase
    async def stepped(self, run: TaskRun, number: int) -> Next[str]:
        """Go on with the next step, or skip the rest."""
        async with run.transaction() as tx:
            workflow, pins = await self._rows(tx)
            result = await newest_result(tx, workflow, pins.steps[number]["key"])
            if result is not None and result.ok and number + 1 < len(pins.steps):
                return tx.goto(self.step, number + 1, result.output)
            if result is None or not result.ok:
                workflow.skipped = [step["key"] for step in pins.steps[number + 1 :]]
                await rows.put_workflow(tx, workflow)
            return tx.goto(self.ended)

    @phase
    async def ended(self, run: TaskRun) -> Next[str]:
        """All has ended: the results, in the order of the steps."""
        async with run.transaction() as tx:
            workflow, pins = await self._rows(tx)
            results: list[Any] = []
            for step in pins.steps:
                result = await newest_result(tx, workflow, step["key"])
                if result is None:
                    result = Result(key=step["key"], gen=0, status="skipped")
                results.append(shown(result))
            await end_workflow(tx, workflow, "done", result=results[0] if workflow.form == "single" else results)
            return tx.complete("done")

    async def abort(self, run: TaskRun) -> Next[str]:
        """Its calls are stopped by now: so is it, unless a revision has taken its place."""
        async with run.transaction() as tx:
            workflow = await rows.workflow(tx, self.wid)
            if workflow is not None and workflow.revision == self.revision:
                await end_workflow(tx, workflow, "stopped", error="stopped")
            return tx.aborted("stopped")

    async def _rows(self, reader: rows.Reader) -> tuple[Workflow, Pins]:
        workflow = await rows.workflow(reader, self.wid)
        assert workflow is not None
        return workflow, await rows.need(reader, PinsDoc, f"{self.wid}@{self.revision}")


async def propose(
    tx: TaskTransaction, workflow: Workflow, pins: Pins, spec: dict[str, Any], revision: int
) -> Call | None:
    """Record a call and create its task, or find that its result stands; None if there is nothing to wait for."""
    key = spec["key"]
    print_ = fingerprint(spec, pins.agents.get(spec["agent"]))
    call = await rows.call(tx, workflow.wid, key)
    if call is not None and call.fingerprint == print_ and call.phase == "sealed":
        call.revision = revision
        await rows.put_call(tx, call)
        return None
    now = tx.now_millis / 1000
    given = {name: value for name, value in spec.items() if name != "key"}
    if call is None:
        call = Call(wid=workflow.wid, key=key, agent=spec["agent"], spec=given, fingerprint=print_, created=now)
        workflow.calls.append(key)
    else:
        call.generation += 1
        call.agent, call.spec, call.fingerprint = spec["agent"], given, print_
        call.phase, call.status, call.started, call.attempt, call.launch, call.losses = "queued", None, None, 1, 0, 0
    call.revision = revision
    call.opening, call.opening_request = spec["task"], f"task:{call.generation}"
    call.task = tx.create_task(CallGeneration(workflow.wid, key, call.generation))
    if key not in workflow.open:
        workflow.open.append(key)
    await rows.put_call(tx, call)
    return call


async def newest_result(reader: rows.Reader, workflow: Workflow, key: str) -> Result | None:
    """What the call's newest generation ended with."""
    call = await rows.call(reader, workflow.wid, key)
    if call is None:
        return None
    return await rows.read(reader, ResultDoc, generation_of(workflow.wid, key, call.generation))


def shown(result: Result) -> dict[str, Any]:
    """A result as scripts and replies see it."""
    found: dict[str, Any] = msgspec.to_builtins(result)
    found["ok"] = result.ok
    found.setdefault("output", "")
    return found
