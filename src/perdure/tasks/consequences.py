"""What follows from a transaction's own writes, in the same commit: ends, wakes, aborts, reservations."""

from collections import deque
from typing import Protocol

from perdure.base.errors import InvalidDecision
from perdure.base.ids import TaskId
from perdure.storage.records import LiveTask, Task
from perdure.tasks.index import Index
from perdure.tasks.outcomes import Completed
from perdure.tasks.ownership import Tree
from perdure.tasks.signals import awakening
from perdure.tasks.states import Completing, Waiting, awakened, end, outcome_of, state_of
from perdure.tasks.transaction import TaskTransaction
from perdure.tasks.wakes import Tasks, WakeReason

DOCUMENTS_MEMO = "perdure.documents"
"""Marks a task that has documents of its own: they retire when it ends."""


class Reserver(Protocol):
    """The scheduler, as far as a commit needs it."""

    async def reserve(self, tx: TaskTransaction, task: Task, tree: Tree) -> None:
        """Turn a pending task into a running one, if it can run here and now."""
        ...


class Consequences:
    """Works off one transaction: every task it wrote, and every task concerned by that."""

    def __init__(self, tx: TaskTransaction, index: Index) -> None:
        self.tx = tx
        self.tree = Tree(tx, index)
        self._index = index
        self._todo: deque[TaskId] = deque()
        self._handled: set[TaskId] = set()
        """Tasks whose end in this transaction was worked off."""

    async def settle(self) -> None:
        """Bring the candidate state to rest: nothing in it could end or wake by itself any more."""
        self._todo.extend(self.tx.changes.tasks)
        while self._todo:
            await self._look_at(self._todo.popleft())

    async def _look_at(self, id: TaskId) -> None:
        task = self.tx.changes.task(id)
        if task is None:
            known = self.tx.live_task(id)
            if known is None or known.status not in ("completing", "waiting", "sleeping", "pending"):
                return
            if known.status != "completing" and not known.abort_requested:
                return
            loaded = await self.tx.task(id)
            if loaded is None:
                return
            task = loaded
        match task.status:
            case "completing":
                await self._try_to_end(task)
            case "terminal":
                await self._ended(task)
            case "waiting":
                await self._look_at_waiting(task)
            case "sleeping":
                self._look_at_sleeping(task)
            case _:
                pass

    async def _try_to_end(self, task: Task) -> None:
        state = state_of(task)
        assert isinstance(state, Completing)
        if self.tree.busy_below(task.id):
            if not isinstance(state.outcome, Completed):
                for child in list(self.tree.below(task.id)):
                    self._todo.extend(await self.tree.mark(child.id, background=False))
            return
        self.tx.put_task(end(task, state.outcome, self.tx.now_millis))
        self._todo.append(task.id)

    async def _ended(self, task: Task) -> None:
        if task.id in self._handled:
            return
        self._handled.add(task.id)
        for waiter in self._waiters(task.id):
            await self._child_of_wait_ended(waiter, task)
        above = await self.tree.owner_of(task)
        if above is not None:
            self._todo.append(above)

    def _waiters(self, id: TaskId) -> set[TaskId]:
        found = set(self._index.waiters(id))
        for write in self.tx.changes.tasks.values():
            if write.task.status == "waiting" and id in write.task.on:
                found.add(write.task.id)
        return found

    async def _child_of_wait_ended(self, waiter: TaskId, ended: Task) -> None:
        task = await self.tx.task(waiter)
        if task is None or task.status != "waiting":
            return
        state = state_of(task)
        assert isinstance(state, Waiting)
        if state.policy == "fail_fast" and not isinstance(outcome_of(ended), Completed):
            await self._fail_fast(task, state)
        await self._look_at_waiting(task)

    async def _fail_fast(self, task: Task, state: Waiting) -> None:
        for sibling in state.on:
            if self.tx.live_task(sibling) is not None:
                self._todo.extend(await self.tree.mark(sibling, background=False))

    async def _look_at_waiting(self, task: Task) -> None:
        if await self._abort_instead(task):
            return
        state = state_of(task)
        assert isinstance(state, Waiting)
        if state.policy == "fail_fast" and task.id in self.tx.changes.tasks:
            for other in state.on:  # it may have ended badly before this wait began
                if self.tx.live_task(other) is None:
                    stored = await self.tx.task(other)
                    if stored is not None and not isinstance(outcome_of(stored), Completed):
                        await self._fail_fast(task, state)
                        break
        ended = tuple(other for other in state.on if self.tx.live_task(other) is None)
        if len(ended) == len(state.on) or (state.policy == "any" and ended):
            self.wake(task, Tasks(ended))

    def _look_at_sleeping(self, task: Task) -> None:
        if task.abort_requested and not self.tree.busy_below(task.id):
            self.wake(task, None)
        elif (awake := awakening(task, self.tx.now_millis)) is not None:
            self.tx.put_task(awake)

    async def _abort_instead(self, task: Task) -> bool:
        """A marked task stops waiting at once; its abort handler runs when all below it has ended."""
        if not task.abort_requested:
            return False
        if not self.tree.busy_below(task.id):
            self.wake(task, None)
        return True

    def wake(self, task: Task, reason: WakeReason | None) -> None:
        """Make a parked task runnable at its checkpoint."""
        self.tx.put_task(awakened(task, reason))

    async def reserve(self, scheduler: Reserver) -> None:
        """Let the scheduler take every pending task that this transaction wrote or set free."""
        for write in list(self.tx.changes.tasks.values()):
            if write.task.status == "pending":
                await scheduler.reserve(self.tx, write.task, self.tree)
        for id in list(self._handled):
            ended = self.tx.changes.task(id)
            above = await self.tree.owner_of(ended) if ended is not None else None
            if above is None:
                continue
            known = self.tx.live_task(above)
            if known is not None and known.status == "pending" and known.abort_requested:
                record = await self.tx.task(above)
                if record is not None:
                    await scheduler.reserve(self.tx, record, self.tree)


async def check_wait(tx: TaskTransaction, tree: Tree, task: Task, state: Waiting) -> None:
    """Refuse a wait that could never end, or that the task may not make."""
    if not state.on:
        raise InvalidDecision("a wait for no tasks would never end", hint="go on with goto")
    above: set[TaskId] = set()
    current: Task | LiveTask | None = task
    while current is not None:
        owner = await tree.owner_of(current)
        current = tx.live_task(owner) if owner is not None else None
        if owner is not None:
            above.add(owner)
    for other in state.on:
        if other == task.id:
            raise InvalidDecision("a task cannot wait for itself")
        if other in above:
            raise InvalidDecision(f"task {task.id} cannot wait for task {other}, which waits for its end")
        record = tx.live_task(other) or await tx.task(other)
        if record is None:
            raise InvalidDecision(f"there is no task {other} to wait for")
        if state.policy == "fail_fast" and record.owner != task.id:
            raise InvalidDecision(
                f"task {task.id} does not own task {other}, so it may not abort it", hint='use policy="all_settled"'
            )
    if state.policy == "any" and isinstance(tx.run.wake, Tasks):
        over = [other for other in state.on if tx.live_task(other) is None]
        if over and set(over) <= set(tx.run.wake.ended):  # it would end at once, for ever
            raise InvalidDecision(
                f"task {over[0]} has ended and has woken this task already", hint="wait for the others only"
            )
