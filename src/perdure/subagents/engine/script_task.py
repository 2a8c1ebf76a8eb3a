"""A workflow that a script runs: its stretches, what it is shown next, and what it ends with."""

import secrets
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from perdure import Error, Next, Signal, TaskId, TaskRun, TaskTransaction, phase, task
from perdure.subagents import rows
from perdure.subagents.digest import canonical_digest
from perdure.subagents.engine.console import Console
from perdure.subagents.engine.context import Orchestration, of
from perdure.subagents.engine.proposing import Refusal, as_shown, propose, refuse, stands, why_refused
from perdure.subagents.engine.scripts import (
    Begin,
    Emit,
    Evaluator,
    EvaluatorGone,
    Limited,
    Log,
    Mismatch,
    Propose,
    Record,
    Replay,
    Returned,
    Show,
    Threw,
    Used,
    Waiting,
)
from perdure.subagents.engine.sealing import end_workflow, seal
from perdure.subagents.events import append_event
from perdure.subagents.names import generation_of
from perdure.subagents.notices import put_notice
from perdure.subagents.pins import pinned
from perdure.subagents.spec import fingerprint
from perdure.subagents.state import Journal, JournalDoc, Pins, PinsDoc, Result, ResultDoc, Workflow

Released: Signal[Any] = Signal("agents.released", schema=dict)
"""A parked workflow goes on: keys count its parks."""
KEPT_EMITS: Final = 100
DEATHS: Final = 3
"""How often an evaluator may die in a row without a stretch that was stored."""
End = Waiting | Returned | Threw | Limited


@dataclass
class LiveScript:
    """One incarnation, kept while the workflow's task is parked; lost with the process, and then replayed."""

    evaluator: Evaluator
    replay: Replay
    console: Console
    waits: bool = False
    """It has said that it waits, and was shown nothing since."""
    proposals: list[tuple[str, Any, Record]] = field(default_factory=list)
    emitted: list[Any] = field(default_factory=list)
    sealed: dict[str, float] = field(default_factory=dict)


@task("agents.script", version=1)
class ScriptRun:
    """A revision of a workflow that a script runs."""

    wid: str
    revision: int
    after: tuple[int, ...] = ()
    """Tasks of the revision before, which have to be gone first."""

    @phase(first=True)
    async def begin(self, run: TaskRun) -> Next[str]:
        """Wait for the end of what the revision before had running."""
        async with run.transaction() as tx:
            before = [TaskId(id) for id in self.after if tx.live_task(TaskId(id)) is not None]
            if before:
                return tx.wait(before, "all_settled", self.begin)
            return tx.goto(self.evaluate)

    @phase
    async def evaluate(self, run: TaskRun) -> Next[str]:
        """Let the script go on as far as it can."""
        orchestration, deaths = of(run), 0
        while True:
            script: LiveScript | None = orchestration.scripts.get(self._name)
            try:
                if script is None:
                    script = await self._started(run, orchestration)
                return await self._go(run, script)
            except EvaluatorGone as error:
                deaths += 1
                await self._close(orchestration)
                if deaths >= DEATHS:
                    return await self._park(run, f"the script's process ended {deaths} times: {error}")
            except Mismatch as error:
                await self._close(orchestration)
                return await self._park(run, f"the script goes another way than is recorded: {error}")
            except Error as error:
                await self._close(orchestration)
                return run.goto(self.finish, "failed", None, str(error))

    async def _go(self, run: TaskRun, script: LiveScript) -> Next[str]:
        end: End = Waiting()
        while True:
            if not script.waits:
                end = await self._stretch(run, script)
            if isinstance(end, Limited):
                await self._close(of(run))
                return await self._park(run, f"the script took too much: {end.what}")
            if isinstance(end, Waiting) and (stored := script.replay.next_shown()) is not None:
                result = await rows.need(
                    of(run).harness.session, ResultDoc, generation_of(self.wid, stored[1], stored[2])
                )
                show = Show(key=stored[1], result=as_shown(result), now=stored[3], seed=stored[4])
            else:
                if not isinstance(end, Waiting):
                    script.replay.ends()
                decided = await self._store(run, script, end)
                if not isinstance(decided, Show):
                    if not isinstance(end, Waiting):
                        await self._close(of(run))
                    return decided
                show = decided
            await script.evaluator.say(show)
            script.waits = False

    async def _started(self, run: TaskRun, orchestration: Orchestration) -> LiveScript:
        _, pins = await self._rows(orchestration.harness.session)
        evaluator = await orchestration.evaluators.start(pins.language or "python", self.wid)
        try:
            async with run.transaction() as tx:
                journal = await rows.read(tx, JournalDoc, self._name) or Journal()
                journal.incarnations += 1
                await rows.write(tx, JournalDoc, self._name, journal)
            root = orchestration.root
            console = Console(root.console(self.wid), journal.incarnations, orchestration.harness.session.clock.now)
            script = LiveScript(evaluator, Replay([list(record) for record in journal.records]), console)
            first = script.replay.step(["begin", run.now(), secrets.randbits(48)])
            begin = Begin(
                source=pinned(root, pins.script or "").decode("utf-8", "replace"), path=pins.path or "<source>",
                args=pins.args, now=first[1], seed=first[2],
                inputs={name: pinned(root, digest).decode("utf-8", "replace") for name, digest in pins.inputs.items()},
            )  # fmt: skip
            await evaluator.say(begin)
        except BaseException:
            await evaluator.close()
            raise
        orchestration.scripts[self._name] = script
        return script

    async def _stretch(self, run: TaskRun, script: LiveScript) -> End:
        """Hear what the script does, until it ends or waits."""
        _, pins = await self._rows(of(run).harness.session)
        replay = script.replay
        while True:
            said = await script.evaluator.hear()
            match said:
                case Propose(key=key, spec=spec):
                    agent = pins.agents.get(str(spec.get("agent"))) if isinstance(spec, dict) else None
                    was_new = not replay.replaying
                    name = key if isinstance(key, str) else f"{key!r:.200}"
                    record = replay.proposes(name, fingerprint(spec if isinstance(spec, dict) else {"": spec}, agent))
                    if was_new:
                        script.proposals.append((name, spec, record))
                case Used(what=what, value=value):
                    replay.step([what, value])
                case Emit(value=value):
                    if not replay.replaying:
                        script.emitted.append(value)
                    replay.step(["emit", canonical_digest(value)])
                case Log(level=level, text=text):
                    script.console.line(level, text)
                case Waiting():
                    script.waits = True
                    return said
                case Returned() | Threw() | Limited():
                    return said
                case _:
                    raise EvaluatorGone(f"it said what it must not: {said!r:.200}")

    async def _store(self, run: TaskRun, script: LiveScript, end: End) -> Next[str] | Show:
        """One commit: what the stretch proposed, and what is shown next or how it ends."""
        fresh: list[Record] = script.replay.fresh
        show: Show | None = None
        decision: Next[str] | None = None
        async with run.transaction() as tx:
            workflow, pins = await self._rows(tx)
            await self._propose(tx, workflow, pins, script)
            workflow.emitted = [*workflow.emitted, *script.emitted][-KEPT_EMITS:]
            await rows.put_workflow(tx, workflow)
            if isinstance(end, Waiting):
                result, open_tasks = await self._next(tx, script)
                if result is not None:
                    record: Record = ["shown", result.key, result.gen, tx.now_millis / 1000, secrets.randbits(48)]
                    fresh.append(record)
                    show = Show(key=result.key, result=as_shown(result), now=record[3], seed=record[4])
                elif open_tasks:
                    decision = tx.wait(open_tasks, "any", self.evaluate)
                else:
                    decision = tx.goto(self.finish, "failed", None, "the script waits for something that never comes")
            elif isinstance(end, Threw):
                decision = tx.goto(self.finish, "failed", None, end.error)
            else:
                assert isinstance(end, Returned)
                left = [key for key in script.replay.keys if key not in script.replay.shown]
                if left:
                    workflow.reason = f"the script ended without waiting for: {', '.join(left)}"
                    script.console.line("warning", workflow.reason)
                    await rows.put_workflow(tx, workflow)
                decision = tx.goto(self.finish, "done", end.value, None)
            if fresh:
                journal = await rows.need(tx, JournalDoc, self._name)
                journal.records = [*journal.records, *fresh]
                await rows.write(tx, JournalDoc, self._name, journal)
        script.replay.shown |= {one[1] for one in fresh if one[0] == "shown"}
        script.replay.stored(fresh)
        script.proposals, script.emitted = [], []
        return show if show is not None else decision  # type: ignore[return-value]

    async def _propose(self, tx: TaskTransaction, workflow: Workflow, pins: Pins, script: LiveScript) -> None:
        accepted = sum(record[0] == "call" for record in script.replay.records)
        for key, spec, record in script.proposals:
            known = await rows.call(tx, self.wid, key)
            finished = known is not None and await stands(tx, known, record[2])
            reason = None if finished else why_refused(workflow, pins, key, spec, accepted)
            if reason is None:
                call = await propose(tx, workflow, pins, {**spec, "key": key}, self.revision)
                record[0], record[3] = "call", call.proposed
                accepted += 1
            else:
                await refuse(tx, workflow, Refusal(key, spec, record[2], reason), self.revision)
                record[0], record[3] = "refused", 0
            script.replay.keys[key] = record[3]

    async def _next(self, tx: TaskTransaction, script: LiveScript) -> tuple[Result | None, list[TaskId]]:
        """The result that was sealed first of those that were not shown; else the tasks that are to bring one."""
        first: Result | None = None
        tasks: list[TaskId] = []
        for key, generation in script.replay.keys.items():
            if key in script.replay.shown:
                continue
            result = await rows.read(tx, ResultDoc, generation_of(self.wid, key, generation))
            if result is None:
                call = await rows.call(tx, self.wid, key)
                if call is not None and call.generation == generation and tx.live_task(TaskId(call.task)) is not None:
                    tasks.append(TaskId(call.task))
                    continue
                lost = {"status": "failed", "error": "its task ended without a result"}
                await seal(tx, self.wid, key, generation, lost)
                result = await rows.need(tx, ResultDoc, generation_of(self.wid, key, generation))
            assert result is not None
            if first is None or result.sealed < first.sealed:
                first = result
        return first, tasks

    @phase
    async def finish(self, run: TaskRun, status: str, result: Any, error: str | None) -> Next[str]:
        """The script has ended: so does the workflow, once its calls have."""
        await self._close(of(run))
        async with run.transaction() as tx:
            workflow, _ = await self._rows(tx)
            left = [await rows.call(tx, self.wid, key) for key in workflow.open]
            tasks = [
                TaskId(call.task)
                for call in left
                if call is not None and (known := tx.live_task(TaskId(call.task))) is not None
                and known.owner == run.task_id
            ]  # fmt: skip
            if tasks:
                return tx.wait(tasks, "all_settled", self.finish, status, result, error)
            workflow.planned = len(workflow.calls)
            await end_workflow(tx, workflow, status, result=result, error=error)
            return tx.complete(status)

    async def _park(self, run: TaskRun, reason: str) -> Next[str]:
        """Nothing is rerun and nothing is lost: it goes on where it stands when it is resumed."""
        async with run.transaction() as tx:
            workflow, _ = await self._rows(tx)
            workflow.status, workflow.reason, workflow.parks = "parked", reason, workflow.parks + 1
            await rows.put_workflow(tx, workflow)
            await append_event(tx, "workflow-done", workflow=workflow, status="parked", error=reason)
            text = f"Workflow {workflow.name or workflow.wid} ({workflow.wid}) is parked: {reason}"
            await put_notice(tx, workflow, "finished", text)
            return tx.sleep(self.evaluate, [Released.key(f"park-{workflow.parks}")])

    async def abort(self, run: TaskRun) -> Next[str]:
        """Its calls are stopped by now: so is it, unless a revision has taken its place."""
        await self._close(of(run))
        async with run.transaction() as tx:
            workflow, _ = await self._rows(tx)
            if workflow.revision == self.revision:
                await end_workflow(tx, workflow, "stopped", error="stopped")
            return tx.aborted("stopped")

    async def _close(self, orchestration: Orchestration) -> None:
        script = orchestration.scripts.pop(self._name, None)
        if script is not None:
            await script.evaluator.close()

    @property
    def _name(self) -> str:
        return f"{self.wid}@{self.revision}"

    async def _rows(self, reader: rows.Reader) -> tuple[Workflow, Pins]:
        workflow = await rows.workflow(reader, self.wid)
        assert workflow is not None
        return workflow, await rows.need(reader, PinsDoc, self._name)


async def release_script(tx: TaskTransaction, workflow: Workflow) -> None:
    """Let a parked script go on, in the commit that resumes the workflow."""
    await tx.signal(TaskId(workflow.task), Released, f"park-{workflow.parks}", {})


def decoded(line: bytes) -> Any:
    """A line of an evaluator. Raises `msgspec.MsgspecError`."""
    return msgspec.json.decode(line, type=Propose | Used | Emit | Log | Waiting | Returned | Threw | Limited)
