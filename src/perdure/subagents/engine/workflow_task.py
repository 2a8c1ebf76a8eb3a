"""A workflow: what is proposed when, and what it ends with. Lists and chains; scripts have `script_task`."""

from typing import Any

from perdure import Next, TaskId, TaskRun, phase, task
from perdure.subagents import rows
from perdure.subagents.engine.proposing import as_shown, propose, proposed_result
from perdure.subagents.engine.recovery import seal_lost
from perdure.subagents.engine.sealing import end_workflow
from perdure.subagents.spec import with_previous
from perdure.subagents.state import Pins, PinsDoc, Result, Workflow


@task("agents.workflow", version=1)
class WorkflowRun:
    """A revision of a workflow."""

    wid: str
    revision: int
    after: tuple[int, ...] = ()
    """Tasks of the revision before, which have to be gone first."""

    @phase(first=True)
    async def begin(self, run: TaskRun) -> Next[str]:
        """Propose what can run at once."""
        async with run.transaction() as tx:
            before = [TaskId(id) for id in self.after if tx.live_task(TaskId(id)) is not None]
            if before:
                return tx.wait(before, "all_settled", self.begin)
            workflow, pins = await self._rows(tx)
            if workflow.form == "chain":
                return tx.goto(self.step, 0, "")
            tasks = []
            for spec in pins.steps:
                call = await propose(tx, workflow, pins, spec, self.revision)
                if call.phase != "sealed":
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
            if call.phase == "sealed":
                return tx.goto(self.stepped, number)
            return tx.wait([TaskId(call.task)], "all_settled", self.stepped, number)

    @phase
    async def stepped(self, run: TaskRun, number: int) -> Next[str]:
        """Go on with the next step, or skip the rest."""
        async with run.transaction() as tx:
            workflow, pins = await self._rows(tx)
            await seal_lost(tx, self.wid, pins.steps[number]["key"])
            result = await proposed_result(tx, workflow, pins.steps[number]["key"])
            if result is not None and result.ok and number + 1 < len(pins.steps):
                return tx.goto(self.step, number + 1, result.output)
            if result is None or not result.ok:
                workflow.skipped = [step["key"] for step in pins.steps[number + 1 :]]
                if workflow.skipped:
                    workflow.emitted = [*workflow.emitted, {"skipped": workflow.skipped}]
                await rows.put_workflow(tx, workflow)
            return tx.goto(self.ended)

    @phase
    async def ended(self, run: TaskRun) -> Next[str]:
        """All has ended: the results, in the order of the steps."""
        async with run.transaction() as tx:
            workflow, pins = await self._rows(tx)
            results: list[Any] = []
            for step in pins.steps:
                await seal_lost(tx, self.wid, step["key"])
                result = await proposed_result(tx, workflow, step["key"])
                if result is None:
                    result = Result(key=step["key"], gen=0, status="skipped")
                results.append(as_shown(result))
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
