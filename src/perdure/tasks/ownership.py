"""The tree of tasks and conversations, as an open transaction sees it."""

from collections.abc import Iterator

from perdure.base.errors import OwnershipRefused
from perdure.base.ids import ConversationId, TaskId
from perdure.storage.records import LiveTask, Task
from perdure.tasks.index import Index
from perdure.tasks.states import mark_abort
from perdure.tasks.transaction import TaskTransaction

Known = Task | LiveTask


class Tree:
    """Who is below whom, in the candidate state of one transaction."""

    def __init__(self, tx: TaskTransaction, index: Index) -> None:
        self._tx = tx
        self._index = index

    def children(self, owner: TaskId) -> Iterator[Known]:
        """Live tasks that the task owns."""
        for id in list(self._index.children(owner)):
            child = self._tx.live_task(id)
            if child is not None:
                yield child
        for write in list(self._tx.changes.tasks.values()):
            if write.created and write.task.owner == owner and write.task.status != "terminal":
                yield write.task

    def conversations(self, owner: TaskId) -> set[ConversationId]:
        """Conversations that the task owns."""
        own = {c.id for c in self._tx.changes.conversations.values() if c.owner == owner}
        return self._index.owned_conversations(owner) | own

    def of_conversation(self, id: ConversationId, *, background: bool) -> Iterator[Known]:
        """Live tasks that the conversation owns: its foreground, with `background` all of it."""
        for known in self._index.of_conversation(id):
            task = self._tx.live_task(known.id)
            if task is not None and (background or not task.background):
                yield task
        for write in list(self._tx.changes.tasks.values()):
            task = write.task
            if not write.created or task.conversation != id or task.owner is not None or task.status == "terminal":
                continue
            if background or not task.background:
                yield task

    def below(self, owner: TaskId, *, background: bool = False) -> Iterator[Known]:
        """Live tasks directly below: children, and the foreground of owned conversations."""
        yield from self.children(owner)
        for conversation in self.conversations(owner):
            yield from self.of_conversation(conversation, background=background)

    def busy_below(self, owner: TaskId) -> bool:
        """Whether work is live that the task's end waits for."""
        return next(self.below(owner), None) is not None

    async def owner_of(self, task: Known) -> TaskId | None:
        """The task above: its owner, or the owner of its conversation unless it is background work."""
        if task.owner is not None:
            return task.owner
        if task.background:
            return None
        known = self._index.owner_of(task.conversation)
        if known is not None:
            return known
        created = self._tx.changes.conversations.get(task.conversation)
        return created.owner if created is not None else None

    async def mark(self, id: TaskId, *, background: bool) -> list[TaskId]:
        """Mark a task and everything below it; return those that were not marked before."""
        marked: list[TaskId] = []
        todo = [id]
        while todo:
            current = todo.pop()
            known = self._tx.live_task(current)
            if known is None:
                continue
            todo.extend(task.id for task in self.below(current, background=background))
            if known.abort_requested:
                continue
            record = await self._tx.task(current)
            if record is not None:
                self._tx.put_task(mark_abort(record))
                marked.append(current)
        return marked

    async def check_new_work(self) -> None:
        """Refuse new work whose owner, in the final candidate state, has ended, is ending, or is being aborted."""
        for write in self._tx.changes.tasks.values():
            task = write.task
            if not write.created:
                continue
            if task.owner is not None:
                self._check_owner(task.owner, f"task {task.id} ({task.kind})")
            else:
                conversation = await self._tx.conversation(task.conversation)
                if conversation.id not in self._tx.changes.conversations:
                    self._index.learn(conversation)  # it may have held no live work when the session was opened
                if conversation.owner is not None and not task.background:
                    self._check_owner(
                        conversation.owner, f"task {task.id} ({task.kind}) of conversation {conversation.id}"
                    )
        for created in self._tx.changes.conversations.values():
            if created.owner is not None:
                self._check_owner(created.owner, f"conversation {created.id}")

    def _check_owner(self, owner: TaskId, what: str) -> None:
        known = self._tx.live_task(owner)
        if known is None:
            raise OwnershipRefused(f"{what}: its owner, task {owner}, has ended")
        if known.status == "completing":
            raise OwnershipRefused(f"{what}: its owner, task {owner}, is ending")
        if known.abort_requested:
            raise OwnershipRefused(f"{what}: its owner, task {owner}, is being aborted")
