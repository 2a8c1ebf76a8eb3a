"""The tasks of one session: opened, scheduled, watched, stopped."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from perdure.base.clock import passed_millis
from perdure.base.errors import Error, InvalidDefinition, NotFound
from perdure.base.ids import ConversationId, TaskId
from perdure.session.publication import Publication
from perdure.session.session import Session
from perdure.storage.records import LiveTask, Task
from perdure.tasks.consequences import DOCUMENTS_MEMO, Consequences
from perdure.tasks.definition import TaskCatalog, TaskDefinition
from perdure.tasks.index import Index
from perdure.tasks.outcomes import Orphaned, Outcome
from perdure.tasks.ownership import Tree
from perdure.tasks.scheduler import LOST, Reporter, Scheduler
from perdure.tasks.signals import asked_again
from perdure.tasks.states import closed, decode_memos, hold, outcome_of, reopened, with_memo
from perdure.tasks.transaction import TaskTransaction

BATCH: Final = 200
"""Tasks taken in one commit when many are due or eligible at once, so that the line stays free for others."""
RESTART_LIMIT: Final = 3
"""Opens that may find a task running without progress before it is faulted: it may be what kills the process."""


class Wake(NamedTuple):
    """Whether anything could run now, and else when. `at` is in seconds since the epoch; None: no alarm is needed."""

    active: bool
    at: float | None


class Tasks:
    """Schedules the tasks of a session. `host` is what its tasks reach as `run.host`."""

    def __init__(
        self,
        session: Session[Any],
        catalog: TaskCatalog,
        *,
        host: Any = None,
        restart_limit: int = RESTART_LIMIT,
        report: Reporter | None = None,
    ) -> None:
        self.session = session
        self.catalog = catalog
        self.host = host
        self.report: Reporter = report or (lambda where, error: None)
        self.index = Index(session.store.working.tasks)
        self.scheduler = Scheduler(self)
        self.restart_limit = restart_limit
        self.orphans: Callable[[], bool] = lambda: False
        """Whether abort-marked tasks whose code is not installed end by themselves; asked at each decision."""
        self._gates_owed = True
        """Calls at gates have not looked again since the open, or since the code changed."""
        self._ends: dict[TaskId, list[asyncio.Future[Outcome]]] = {}
        self._cancel_alarm: Callable[[], None] | None = None
        self._alarm_at: int | None = None
        self._chores: set[asyncio.Task[None]] = set()
        session.tasks = self
        session.rules.append(self._consequences)
        session.adopters.append(self.index.adopt)
        session.listeners.append(self._published)
        session.on_end.append(self._ended)

    # life

    async def open(self, *, recover: bool = True) -> None:
        """Take over what the last process left. With `recover`, tasks found running go back to their checkpoint."""
        conversations = {task.conversation for task in self.session.store.working.tasks.values()}
        self.index.load([c for id in conversations if (c := await self.session.store.conversation(id)) is not None])
        self.session.rules.append(self._reserve)
        if recover:
            await self._recover()

    async def _recover(self) -> None:
        found = sorted(self.index.running)
        for start in range(0, len(found), BATCH):
            async with self.session.transaction() as tx:
                for id in found[start : start + BATCH]:
                    record = await tx.task(id)
                    if record is not None and record.status == "running":
                        tx.put_task(reopened(record, self.restart_limit))

    async def resume(self) -> None:
        """Start scheduling: reserve everything that could run, arm the alarm. Does nothing if it runs already, or once
        a close has begun: what was handed in is stored, and waits for the next open."""
        if self.scheduler.active or self.scheduler.closing:
            return
        self.session.check_usable()
        self.scheduler.active = True
        await self.reserve_pending()
        await self.ask_gates_again()
        if self.orphans():
            await self.orphan_missing()
        self._arm()

    async def close(self, timeout: float) -> list[str]:
        """Stop scheduling, write running tasks back to their checkpoints; name the code that would not stop.

        Of a session that is lost nothing is written back and nothing raised: the next open does the same.
        """
        if self._cancel_alarm is not None:
            self._cancel_alarm()
        stuck = await self.scheduler.stop(timeout)
        for chore in list(self._chores):
            chore.cancel()
        try:
            await self._put_back()
        except LOST as error:
            if self.session.usable:
                raise
            self.report("close", error)
        return stuck

    async def _put_back(self) -> None:
        found = sorted(self.index.running)
        for start in range(0, len(found), BATCH):
            async with self.session.transaction() as tx:
                for id in found[start : start + BATCH]:
                    record = await tx.task(id)
                    if record is not None and record.status == "running":
                        tx.put_task(closed(record))

    # commit rules

    async def _consequences(self, tx: TaskTransaction) -> None:
        with_documents = await self._mark_documents(tx)
        if tx.progress or (not tx.changes.tasks and not tx.changes.conversations and tx.run is None):
            return
        consequences = Consequences(tx, self.index)
        tx.consequences = consequences
        if tx.run is not None:
            await self.scheduler.apply(tx, consequences.tree)
        await consequences.tree.check_new_work()
        await consequences.settle()
        for write in tx.changes.tasks.values():
            if write.task.status == "terminal":
                before = self.known(write.task.id)  # as it was: an end drops the memos
                marked = isinstance(before, Task) and DOCUMENTS_MEMO in decode_memos(before.memos)
                if marked or write.task.id in with_documents:
                    await tx.retire_scope("task", write.task.id)

    async def _mark_documents(self, tx: TaskTransaction) -> list[int]:
        """A task that gets a document is marked, so that the ends of all others need not look for any."""
        created = tx.created_documents("task") if tx.writes_documents else []
        for id in created:
            record = await tx.task(TaskId(id))
            if record is not None and record.status != "terminal":
                marked = with_memo(record, DOCUMENTS_MEMO, True)
                if marked is not record:
                    tx.put_task(marked)
        return created

    async def _reserve(self, tx: TaskTransaction) -> None:
        """The last rule: whatever can run in the candidate state is set running in the same commit."""
        if not tx.changes.tasks:
            return
        consequences = tx.consequences or Consequences(tx, self.index)
        await consequences.reserve(self.scheduler)

    # scheduling

    async def reserve_pending(self) -> None:
        """Try to set running everything that is pending: after a resume, or when code was installed."""
        waiting = list(self.index.pending)
        for start in range(0, len(waiting), BATCH):
            async with self.session.transaction() as tx:
                for id in waiting[start : start + BATCH]:
                    record = await tx.task(id)
                    if record is not None and record.status == "pending":
                        await self.scheduler.reserve(tx, record, Tree(tx, self.index))

    async def ask_gates_again(self) -> None:
        """Wake what sleeps at a gate, without a reason: other gates may stand there now."""
        owed: list[TaskId] | None = None
        self._gates_owed = False
        while owed is None or owed:
            async with self.session.transaction() as tx:
                owed = sorted(self.index.at_gates) if owed is None else owed
                for id in owed[:BATCH]:
                    record = await tx.task(id)
                    if record is not None and record.asks_again:
                        tx.put_task(asked_again(record, tx.now_millis))
            owed = owed[BATCH:]

    async def orphan_missing(self) -> list[TaskId]:
        """End abort-marked tasks whose code is not installed; nobody can clean up after them any more."""
        ended = []
        async with self.session.transaction() as tx:
            for id in list(self.index.pending):
                record = await tx.task(id)
                if record is None or not record.abort_requested or self.catalog.task(record.kind) is not None:
                    continue
                tx.put_task(hold(record, Orphaned(f"no code for task kind {record.kind} is installed")))
                ended.append(id)
        return ended

    def code_changed(self) -> None:
        """The catalog changed: blocked tasks may run now, and calls at gates ask again."""
        self._gates_owed = True
        if self.scheduler.active and self.scheduler.blocked:
            self._chore(self.reserve_pending)
        if self.scheduler.active:
            self._chore(self.ask_gates_again)

    def _published(self, publication: Publication) -> None:
        if self.scheduler.active:
            self.scheduler.published(publication)
            if self.orphans() and any(self._is_stranded(change.after) for change in publication.tasks):
                self._chore(self.orphan_missing)
        for change in publication.tasks:
            if change.after.status == "terminal":
                outcome = None
                for waiting in self._ends.pop(change.after.id, ()):
                    outcome = outcome or outcome_of(change.after)
                    if not waiting.done():
                        waiting.set_result(outcome)
        if self.scheduler.active:
            self._arm()

    def _is_stranded(self, task: Task) -> bool:
        return task.status == "pending" and task.abort_requested and self.catalog.task(task.kind) is None

    def _arm(self) -> None:
        deadline = self.index.next_deadline()
        if deadline == self._alarm_at:
            return
        if self._cancel_alarm is not None:
            self._cancel_alarm()
            self._cancel_alarm = None
        self._alarm_at = deadline
        if deadline is not None:
            self._cancel_alarm = self.session.clock.call_at(deadline / 1000, self._alarm)

    def _alarm(self) -> None:
        self._alarm_at = None
        self._chore(self._wake_due)

    async def _wake_due(self) -> None:
        while self.scheduler.active:
            due = self.index.due(passed_millis(self.session.clock.now()), BATCH)
            if not due:
                break
            async with self.session.transaction() as tx:
                for id in due:
                    record = await tx.task(id)
                    if record is not None and record.status == "sleeping":
                        tx.put_task(record)  # the rule looks at it again and finds its deadline passed
        self._arm()

    def _chore(self, work: Callable[[], Awaitable[Any]]) -> None:
        task = asyncio.get_running_loop().create_task(self._guarded(work))
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)

    async def _guarded(self, work: Callable[[], Awaitable[Any]]) -> None:
        try:
            await work()
        except Error as error:
            self.report("scheduling", error)

    # asking and acting

    def known(self, id: TaskId) -> Task | LiveTask | None:
        """What memory holds of a task that has not ended."""
        return self.session.store.live_task(id)

    def busy_below(self, id: TaskId) -> bool:
        """Whether work is live that the task's end, or its abort handler, waits for."""
        if self.index.children(id):
            return True
        return any(self.index.in_foreground(conversation) for conversation in self.index.owned_conversations(id))

    def check_installed(self, definition: TaskDefinition) -> None:
        """Refuse to create a task whose code is not installed: it could never run."""
        if self.catalog.task(definition.kind) is None:
            raise InvalidDefinition(
                f"task kind {definition.kind} is not installed",
                hint="add its class to an extension (Extension.add) and install that",
            )

    async def mark(self, tx: TaskTransaction, id: TaskId, *, background: bool) -> bool:
        """Mark a task and what is below it for abort, in this transaction. False if it has ended."""
        if tx.live_task(id) is None:
            return False
        await Tree(tx, self.index).mark(id, background=background)
        return True

    async def mark_conversation(self, tx: TaskTransaction, id: ConversationId, *, background: bool) -> list[TaskId]:
        """Mark the conversation's own foreground work for abort, with `background` all of its work; tell which."""
        tree = Tree(tx, self.index)
        own = [task.id for task in tree.of_conversation(id, background=background)]
        for task in own:
            await tree.mark(task, background=background)
        return own

    async def wait(self, id: TaskId) -> Outcome:
        """Wait for a task's end and tell how it ended. Starts scheduling; cancelling the wait changes nothing.

        Raises `NotFound`, and what ended the session if that happens before."""
        if self.known(id) is not None:
            self.session.check_usable()
            await self.resume()
        if self.known(id) is None:
            record = await self.session.store.task(id)
            if record is None:
                raise NotFound(f"no task {id}")
            if record.status == "terminal":
                return outcome_of(record)
        self.session.check_usable()
        ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._ends.setdefault(id, []).append(ended)
        return await ended

    def _ended(self, error: Error) -> None:
        """The session ended: nobody may wait for ever."""
        waiting, self._ends = self._ends, {}
        for futures in waiting.values():
            for future in futures:
                if not future.done():
                    future.set_exception(error)

    def wake(self) -> Wake:
        """Whether anything could run now, else when the next sleep ends."""
        active = any(id not in self.scheduler.blocked and not self._held_back(id) for id in self.index.pending)
        active = active or any(id in self.scheduler.invocations or not self._held_back(id) for id in self.index.running)
        active = active or (self._gates_owed and bool(self.index.at_gates))
        deadline = self.index.next_deadline()
        due = deadline is not None and deadline <= passed_millis(self.session.clock.now())
        return Wake(active or due, None if deadline is None else deadline / 1000)

    def _held_back(self, id: TaskId) -> bool:
        """Whether a task only waits for what is below it to end before its abort handler runs."""
        known = self.known(id)
        return known is not None and known.abort_requested and self.busy_below(id)
