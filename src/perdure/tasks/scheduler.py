"""Runs tasks: reserves them in the commits that make them runnable, invokes their code, stores what it decides."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from perdure.base.errors import (
    Error,
    InvocationEnded,
    Refused,
    SessionClosed,
    SessionPoisoned,
    StorageError,
    StorageRejected,
)
from perdure.base.ids import TaskId
from perdure.session.publication import Publication
from perdure.storage.records import Task
from perdure.tasks.apply import apply_decision, fault
from perdure.tasks.decisions import Next
from perdure.tasks.definition import TaskDefinition
from perdure.tasks.migration import fit
from perdure.tasks.ownership import Tree
from perdure.tasks.runtime import TaskRun
from perdure.tasks.states import closed, hold, reserved, state_of
from perdure.tasks.transaction import TaskTransaction

BoundCode = tuple[Callable[..., Any], dict[str, Any]]
"""A phase's code on its task's input, and the arguments to call it with."""
Reporter = Callable[[str, BaseException], None]

LOST: Final = (SessionClosed, SessionPoisoned, StorageError)
"""Failures of the session itself: the task did nothing wrong and goes on when the session is opened anew."""


class DoesNotFit(Error):
    """Raised by a phase whose code does not understand what is stored: the task is blocked until other code is
    installed, never ended."""

    code = "does_not_fit"
    certain_by_default = "stored"


class Invocation:
    """The code of one task while it runs."""

    def __init__(self, task: "asyncio.Task[None]") -> None:
        self.task = task
        self.run: TaskRun | None = None
        self.owed = False
        """The task was set running again while this invocation was unwinding."""

    @property
    def in_abort(self) -> bool:
        """Whether it has come to the abort handler, which the mark itself must not cancel."""
        return self.run is not None and self.run.in_abort


class Scheduler:
    """Invokes running tasks of one session. Only what is stored as running, and flushed, is invoked."""

    def __init__(self, tasks: Any) -> None:
        self._tasks = tasks
        self.active = False
        self.invocations: dict[TaskId, Invocation] = {}
        self.blocked: dict[TaskId, str] = {}
        """Tasks that cannot run here: why."""
        self._definitions: dict[TaskId, TaskDefinition] = {}
        self._unfit: dict[TaskId, tuple[TaskDefinition, str]] = {}
        """Code that turned out not to understand what is stored of a task: it is not tried again."""
        self.closing = False

    # reserving: inside a commit

    async def reserve(self, tx: TaskTransaction, task: Task, tree: Tree) -> None:
        """Turn a pending task into a running one in this commit, if its code is here and nothing holds it back."""
        if not self.active or (task.abort_requested and tree.busy_below(task.id)):
            return
        fitted = fit(self._tasks.catalog, task)
        if isinstance(fitted, str):
            self.blocked[task.id] = fitted
            return
        definition, record, input_changed = fitted
        unfit = self._unfit.get(task.id)
        if unfit is not None and unfit[0] is definition:
            self.blocked[task.id] = unfit[1]
            return
        self.blocked.pop(task.id, None)
        self._definitions[task.id] = definition
        tx.put_task(reserved(record), input_changed=input_changed)

    # invoking: after the commit

    def published(self, publication: Publication) -> None:
        """Start what a stored commit set running; cancel what it marked for abort."""
        for change in publication.tasks:
            after = change.after
            before = change.before
            if after.status == "running" and (before is None or before.status != "running"):
                self._start(after.id)
            if after.abort_requested and (before is None or not before.abort_requested):
                invocation = self.invocations.get(after.id)
                if invocation is not None and after.status == "running" and not invocation.in_abort:
                    invocation.task.cancel("aborted")
            if after.status == "terminal":
                self._definitions.pop(after.id, None)
                self.blocked.pop(after.id, None)
                self._unfit.pop(after.id, None)
                self._below_ended(after)

    def _below_ended(self, ended: Task) -> None:
        """An aborted owner whose code has stopped runs its abort handler when nothing below is left."""
        owner = ended.owner
        if owner is None and not ended.background:
            owner = self._tasks.index.owner_of(ended.conversation)
        if owner is not None:
            self._start_abort(owner)

    def _start_abort(self, id: TaskId) -> None:
        known = self._tasks.known(id)
        if known is None or known.status != "running" or not known.abort_requested or id in self.invocations:
            return
        if self.active and not self._tasks.busy_below(id):
            self._start(id)

    def _start(self, id: TaskId) -> None:
        existing = self.invocations.get(id)
        if existing is not None:
            existing.owed = True
            return
        task = asyncio.get_running_loop().create_task(self._drive(id), name=f"perdure task {id}")
        self.invocations[id] = Invocation(task)
        task.add_done_callback(lambda done: self._stopped(id, done))

    def _stopped(self, id: TaskId, done: "asyncio.Task[None]") -> None:
        invocation = self.invocations.pop(id)
        if invocation.run is not None:
            invocation.run.ended = True
        if not done.cancelled() and (error := done.exception()) is not None and not isinstance(error, LOST):
            self._tasks.report(f"task {id}", error)
        if self.closing or not self._tasks.session.usable:
            return  # started again it would fail again, at once and for ever
        if invocation.owed:
            known = self._tasks.known(id)
            if known is not None and known.status == "running":
                self._start(id)
        else:
            self._start_abort(id)

    async def _drive(self, id: TaskId) -> None:
        """Run phase after phase until the task parks or ends."""
        invocation = self.invocations[id]
        instance: Any = None
        shown: TaskDefinition | None = None
        while True:
            record = await self._tasks.session.store.task(id)
            if record is None or record.status != "running" or self.closing:
                return
            if record.abort_requested:
                await self._tasks.session.store.settled()  # nothing is undone for a mark that is not stored
                if self._tasks.busy_below(id):
                    return
            definition = self._definitions[id]
            run = TaskRun(self._tasks, record, definition, state_of(record))
            try:
                if definition is not shown:
                    instance, shown = definition.decode_input_bytes(record.input), definition
                phase = None if record.abort_requested else definition.bind(instance, run.checkpoint)
            except Exception as error:
                await self._set_aside(run, error)
                return
            invocation.run = run
            try:
                goes_on = await self._invoke(run, instance, phase)
            finally:
                run.ended = True
            if not goes_on:
                return

    async def _set_aside(self, run: TaskRun, error: Exception) -> None:
        """Code of the same version that does not understand what is stored never ends a task: it is blocked."""
        self._tasks.report(f"task {run.task_id} ({run.definition.kind})", error)
        reason = f"the installed {run.definition.kind} does not fit what is stored: {error}"
        self._unfit[run.task_id] = (run.definition, reason)
        run.ended = True
        async with self._tasks.session.transaction() as tx:
            record = await tx.task(run.task_id)
            if record is not None and record.status == "running":
                tx.put_task(closed(record))

    async def _invoke(self, run: TaskRun, instance: Any, phase: BoundCode | None) -> bool:
        """One phase, or without one the abort handler. True if the task runs on in this invocation."""
        aborting = phase is None
        try:
            if phase is None:
                decision = await self._call_abort(run, instance)
            else:
                method, arguments = phase
                decision = await method(run, **arguments)
            run.check_returned(decision)
        except asyncio.CancelledError as error:
            if self.closing or (aborting and _cancelled()):
                raise
            if run.abort_requested and not aborting:
                _uncancel()
                return True  # look again: the abort handler is next, once all below has ended
            if _cancelled():
                raise
            return await self._fault(run, error)  # something that the code awaited was cancelled, not the code
        except LOST as error:
            if self.closing or not self._tasks.session.usable:
                raise
            return await self._fault(run, error)  # another store, or a batch that was refused
        except InvocationEnded as error:
            return (run.abort_requested and not aborting) or await self._fault(run, error)
        except DoesNotFit as error:
            await self._set_aside(run, error)
            return False
        except Exception as error:
            return await self._fault(run, error)
        if run.stored is not None:
            return run.runs_on
        return await self._store(run, decision)

    async def _call_abort(self, run: TaskRun, instance: Any) -> Any:
        run.in_abort = True
        if not run.definition.has_abort:
            return run.aborted()
        return await instance.abort(run)

    async def _store(self, run: TaskRun, decision: Next[Any]) -> bool:
        try:
            async with run.transaction() as tx:
                tx.decision = decision
        except InvocationEnded as error:
            return run.abort_requested or await self._fault(run, error)
        except (Refused, StorageRejected) as error:
            return await self._fault(run, error)
        return run.runs_on

    async def _fault(self, run: TaskRun, error: BaseException) -> bool:
        """The code raised: the task ends faulted. Unless its decision was stored before (then breaking the rules of
        decisions faults it, a mere raise does not), or it is being aborted: then its handler cleans up."""
        if run.stored is not None and run.broken is None:
            self._tasks.report(f"task {run.task_id} raised after its decision was stored", error)
            return run.runs_on
        self._tasks.report(f"task {run.task_id} ({run.definition.kind})", error)
        if self.closing:
            return False  # it goes back to its checkpoint: a close never fails a task
        if run.abort_requested and not run.in_abort:
            return True
        async with self._tasks.session.transaction() as tx:
            record = await tx.task(run.task_id)
            if record is None or record.status in ("completing", "terminal"):
                return False
            if record.abort_requested and not run.in_abort:
                return True
            if run.stored is not None or record.status == "running":
                tx.put_task(hold(record, fault(run.broken or error)))
        return False

    # the commit rule for a run's own transaction

    async def apply(self, tx: TaskTransaction, tree: Tree) -> None:
        """Put a run's checkpoint and decision into its transaction."""
        run = tx.run
        if run is None or tx.progress:
            return
        if run.decided and (tx.changes or tx.writes_documents or tx.decision is not None):
            raise run.break_rules("the task has decided; nothing follows a decision")
        record = await tx.task(run.task_id)
        aborting = record is not None and record.abort_requested
        if record is None or record.status != "running" or (aborting and not run.in_abort):
            raise InvocationEnded(f"task {run.task_id} no longer runs this code")
        await apply_decision(tx, tree, record)

    # stopping

    async def stop(self, timeout: float) -> list[str]:
        """Cancel everything that runs and wait for it; name what does not stop."""
        self.active = False
        self.closing = True
        running = [invocation.task for invocation in self.invocations.values()]
        for task in running:
            task.cancel("closing")
        if running:
            await asyncio.wait(running, timeout=timeout)
        stuck = []
        for id, invocation in self.invocations.items():
            if invocation.run is not None:
                invocation.run.ended = True  # whatever it does from now on, it does without the session
                if invocation.run.block is not None:
                    self._tasks.session.cut_off(invocation.run.block)
            known = self._tasks.known(id)
            stuck.append(f"task {id} ({known.kind if known is not None else 'ended'})")
        return stuck


def _cancelled() -> bool:
    """Whether the running code itself was cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _uncancel() -> None:
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()
