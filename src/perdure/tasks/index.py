"""The live tasks in memory, by what one must find them by. Fed by every commit when it becomes the newest state."""

import heapq
from collections.abc import Iterable, Iterator
from typing import TypeVar

from perdure.base.ids import ConversationId, TaskId
from perdure.session.publication import Publication
from perdure.storage.records import Conversation, LiveTask, Task

Known = Task | LiveTask
K = TypeVar("K")


class Index:
    """Who owns whom, who waits for whom, who sleeps until when, and what could run now.

    Everything is found in constant time; 10,000 parked tasks cost nothing until one of them is concerned.
    """

    def __init__(self, tasks: dict[TaskId, Known]) -> None:
        self.tasks = tasks
        """The session's working set, shared: this class only reads it."""
        self.pending: dict[TaskId, None] = {}
        """Tasks that could be reserved, oldest first."""
        self.running: set[TaskId] = set()
        self.at_gates: set[TaskId] = set()
        """Sleeping tasks that look again when code is installed, and after an open."""
        self._children: dict[TaskId, set[TaskId]] = {}
        self._of_conversation: dict[ConversationId, set[TaskId]] = {}
        self._waiters: dict[TaskId, set[TaskId]] = {}
        self._deadlines: list[tuple[int, TaskId]] = []
        self._owners: dict[ConversationId, TaskId] = {}
        self._owned: dict[TaskId, set[ConversationId]] = {}

    # feeding

    def load(self, conversations: Iterable[Conversation]) -> None:
        """Take the tasks that were live when the session was opened, and the conversations that hold them."""
        for conversation in conversations:
            self.learn(conversation)
        for task in self.tasks.values():
            self._add(task)

    def adopt(self, publication: Publication) -> None:
        """Follow one commit."""
        for conversation in publication.conversations:
            self.learn(conversation)
        for change in publication.tasks:
            if change.before is not None:
                self._unpark(change.before)
            if change.after.status == "terminal":
                self._remove(change.after)
            elif change.before is None:
                self._add(change.after)
            else:
                self._park(change.after)

    def learn(self, conversation: Conversation) -> None:
        """Take a stored conversation into account: work in it concerns the task that owns it."""
        if conversation.owner is not None:
            self._owners[conversation.id] = conversation.owner
            self._owned.setdefault(conversation.owner, set()).add(conversation.id)

    def _add(self, task: Known) -> None:
        if task.owner is not None:
            self._children.setdefault(task.owner, set()).add(task.id)
        else:
            self._of_conversation.setdefault(task.conversation, set()).add(task.id)
        self._park(task)

    def _remove(self, task: Known) -> None:
        if task.owner is not None:
            _discard(self._children, task.owner, task.id)
        else:
            _discard(self._of_conversation, task.conversation, task.id)
        for conversation in self._owned.pop(task.id, ()):
            if conversation not in self._of_conversation:
                self._owners.pop(conversation, None)

    def _park(self, task: Known) -> None:
        if task.status == "pending":
            self.pending[task.id] = None
        elif task.status == "running":
            self.running.add(task.id)
        elif task.status == "waiting":
            for other in task.on:
                self._waiters.setdefault(other, set()).add(task.id)
        elif task.status == "sleeping" and task.deadline is not None:
            heapq.heappush(self._deadlines, (task.deadline, task.id))
        if task.asks_again:
            self.at_gates.add(task.id)

    def _unpark(self, task: Known) -> None:
        if task.asks_again:
            self.at_gates.discard(task.id)
        if task.status == "pending":
            self.pending.pop(task.id, None)
        elif task.status == "running":
            self.running.discard(task.id)
        elif task.status == "waiting":
            for other in task.on:
                waiters = self._waiters.get(other)
                if waiters is not None:
                    waiters.discard(task.id)
                    if not waiters:
                        del self._waiters[other]

    # finding

    def children(self, owner: TaskId) -> set[TaskId]:
        """Live tasks that a task owns."""
        return self._children.get(owner, set())

    def of_conversation(self, id: ConversationId) -> Iterator[Known]:
        """Live tasks that a conversation owns, background ones included."""
        for task in list(self._of_conversation.get(id, ())):
            known = self.tasks.get(task)
            if known is not None:
                yield known

    def in_foreground(self, id: ConversationId) -> list[Known]:
        """Live foreground tasks that a conversation owns."""
        return [task for task in self.of_conversation(id) if not task.background]

    def owner_of(self, conversation: ConversationId) -> TaskId | None:
        """The task that owns a conversation, as far as live work is concerned."""
        return self._owners.get(conversation)

    def owned_conversations(self, owner: TaskId) -> set[ConversationId]:
        """Conversations that a live task owns and that may hold live work."""
        return self._owned.get(owner, set())

    def waiters(self, on: TaskId) -> set[TaskId]:
        """Tasks that wait for a task."""
        return self._waiters.get(on, set())

    def next_deadline(self) -> int | None:
        """The earliest deadline of a sleeping task, in milliseconds."""
        while self._deadlines:
            deadline, id = self._deadlines[0]
            task = self.tasks.get(id)
            if task is not None and task.status == "sleeping" and task.deadline == deadline:
                return deadline
            heapq.heappop(self._deadlines)  # woken, ended, or asleep until another time
        return None

    def due(self, now: int, limit: int) -> list[TaskId]:
        """Sleeping tasks whose deadline has passed, earliest first."""
        found: list[TaskId] = []
        kept: list[tuple[int, TaskId]] = []
        while len(found) < limit and (deadline := self.next_deadline()) is not None and deadline <= now:
            entry = heapq.heappop(self._deadlines)
            kept.append(entry)
            if entry[1] not in found:
                found.append(entry[1])
        for entry in kept:
            heapq.heappush(self._deadlines, entry)  # they leave when their wake is committed
        return found


def _discard(families: dict[K, set[TaskId]], key: K, member: TaskId) -> None:
    members = families.get(key)
    if members is not None:
        members.discard(member)
        if not members:
            del families[key]
