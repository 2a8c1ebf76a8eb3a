"""Reads of records inside a transaction: they see what the transaction wrote."""

from collections.abc import Sequence
from typing import TypeVar

from perdure.base.errors import NotFound
from perdure.base.ids import ConversationId, EntryId, SubmissionId, TaskId
from perdure.session.block import Block
from perdure.session.entries import entry_kind
from perdure.storage.protocol import Order
from perdure.storage.records import Conversation, Entry, LiveTask, Submission, Task

T = TypeVar("T")


class RecordReads(Block):
    """What a transaction can read of conversations, entries, tasks and submissions."""

    async def conversation(self, id: ConversationId) -> Conversation:
        """The conversation's record. Raises `NotFound`."""
        self.check_open()
        found = self.changes.conversations.get(id) or await self._store.conversation(id)
        if found is None:
            raise NotFound(f"no conversation {id}")
        return found

    async def scan_conversations(
        self, *, owner: TaskId | None = None, cursor: int = 0, limit: int = 100
    ) -> Sequence[Conversation]:
        """A page of conversations by id; with `owner`, those that the task owns."""
        self.check_open()
        stored = await (await self._store.settled()).scan_conversations(owner=owner, cursor=cursor, limit=limit)
        own = [c for c in self.changes.conversations.values() if c.id > cursor and owner in (None, c.owner)]
        return [*stored, *own][:limit]

    async def check_places(self) -> None:
        """Raise `NotFound` if an entry was appended to a conversation that is not there, or speaks of an entry that
        its conversation does not see."""
        known = self._store.working.conversations
        for entry in self.changes.entries.values():
            if entry.conversation not in known:
                await self.conversation(entry.conversation)
            for what, other in (("begins the range", entry.head), ("edits", entry.edits)):
                if other is not None and other != entry.id and not await self.sees(entry.conversation, other):
                    raise NotFound(f"entry {entry.id} {what} at {other}, which conversation {entry.conversation} lacks")

    async def sees(self, conversation: ConversationId, id: EntryId) -> Entry | None:
        """The entry, if the conversation's transcript holds it, ancestors included; None if not."""
        entry = await self.find_entry(id)
        cap: int | None = None
        current: ConversationId | None = conversation
        while current is not None and entry is not None:
            if entry.conversation == current:
                return entry if cap is None or id <= cap else None
            record = await self.conversation(current)
            if record.fork_entry is not None:
                cap = record.fork_entry if cap is None else min(cap, record.fork_entry)
            current = record.parent
        return None

    async def find_entry(self, id: EntryId) -> Entry | None:
        """An entry's record, or None."""
        self.check_open()
        return self.changes.entries.get(id) or await self._store.entry(id)

    async def entry(self, kind: type[T], id: EntryId) -> T | None:
        """An entry's typed data; None if there is no such entry. Raises `InvalidValue` if it is of another kind."""
        found = await self.find_entry(id)
        return None if found is None else entry_kind(kind).read(found)

    async def scan_entries(
        self,
        conversation: ConversationId,
        *,
        after: EntryId | None = None,
        before: EntryId | None = None,
        newest_first: bool = False,
        limit: int = 100,
    ) -> Sequence[Entry]:
        """A page of the entries that the conversation sees, a fork's ancestors included."""
        self.check_open()
        fresh = self.changes.conversations.get(conversation)
        if fresh is None:
            order: Order = "newest" if newest_first else "oldest"
            store = await self._store.settled()
            older = await store.scan_entries(conversation, after=after, before=before, order=order, limit=limit)
        elif fresh.parent is None or fresh.fork_entry is None:
            older = []
        else:  # a fork of this very transaction: storage does not know yet what it sees
            end = EntryId(fresh.fork_entry + 1 if before is None else min(before, fresh.fork_entry + 1))
            older = await self.scan_entries(
                fresh.parent, after=after, before=end, newest_first=newest_first, limit=limit
            )
        own = [
            entry
            for entry in self.changes.entries.values()
            if entry.conversation == conversation
            and (after is None or entry.id > after)
            and (before is None or entry.id < before)
        ]
        merged = [*reversed(own), *older] if newest_first else [*older, *own]
        return merged[:limit]

    async def stored_head(self, conversation: ConversationId) -> EntryId | None:
        """The newest stored head that the conversation sees, or None."""
        self.check_open()
        cap: EntryId | None = None
        at = conversation
        while (fresh := self.changes.conversations.get(at)) is not None:
            if fresh.parent is None or fresh.fork_entry is None:
                return None
            at, cap = fresh.parent, fresh.fork_entry if cap is None else min(cap, fresh.fork_entry)
        found = await (await self._store.settled()).latest_head(at, cap)
        return None if found is None else found.head

    async def task(self, id: TaskId) -> Task | None:
        """A task's record as of now, or None."""
        self.check_open()
        return self.changes.task(id) or await self._store.task(id)

    def live_task(self, id: TaskId) -> Task | LiveTask | None:
        """What is known in memory of a task that has not ended; None if it has ended or never was."""
        found = self.changes.task(id) or self._store.live_task(id)
        return None if found is None or found.status == "terminal" else found

    async def submission(self, id: SubmissionId) -> Submission | None:
        """A submission's record as of now, or None."""
        self.check_open()
        return self.changes.submissions.get(id) or await self._store.submission(id)

    async def submission_by_request(self, conversation: ConversationId, request_id: str) -> Submission | None:
        """The submission that a request id stands for in this conversation, or None."""
        self.check_open()
        for submission in self.changes.submissions.values():
            if submission.conversation == conversation and submission.request_id == request_id:
                return submission
        return await self._store.submission_by_request(conversation, request_id)
