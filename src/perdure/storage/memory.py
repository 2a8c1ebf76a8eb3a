"""A store in memory: the reference for what every store does. Plain dictionaries, sorted when asked."""

import os
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

from perdure.base.errors import StorageError, StorageInUse
from perdure.base.ids import ConversationId, DocumentId, EntryId, SubmissionId, TaskId
from perdure.storage.checks import need_one
from perdure.storage.contents import NEVER, Changes, Contents, apply, reach
from perdure.storage.protocol import Order
from perdure.storage.records import (
    Batch,
    Blob,
    Conversation,
    Document,
    Entry,
    LiveTask,
    Scope,
    StorageHead,
    StoredDocument,
    Submission,
    SubmissionStatus,
    Task,
    TaskStatus,
)

R = TypeVar("R", Conversation, Task, Submission, Document)

SCHEMA_VERSION: Final = 1


class MemoryReads:
    """The reads of the memory store."""

    def __init__(self) -> None:
        self._stored = Contents()
        self._open = False

    def _now(self) -> Contents:
        if not self._open:
            raise StorageError("the store is not open")
        return self._stored

    async def conversation(self, id: ConversationId) -> Conversation | None:
        return self._now().conversations.get(id)

    async def entry(self, id: EntryId) -> Entry | None:
        return self._now().entries.get(id)

    async def task(self, id: TaskId) -> Task | None:
        return self._now().tasks.get(id)

    async def submission(self, id: SubmissionId) -> Submission | None:
        return self._now().submissions.get(id)

    async def submission_by_request(self, conversation: ConversationId, request_id: str) -> Submission | None:
        stored = self._now()
        found = stored.requests.get((conversation, request_id))
        return None if found is None else stored.submissions[found]

    async def blob(self, digest: str) -> Blob | None:
        return self._now().blobs.get(digest)

    async def scan_conversations(
        self, *, owner: TaskId | None = None, cursor: int = 0, limit: int = 100
    ) -> Sequence[Conversation]:
        every = self._now().conversations.values()
        return _page((one for one in every if owner is None or one.owner == owner), cursor, limit)

    async def scan_entries(
        self,
        conversation: ConversationId,
        *,
        after: EntryId | None = None,
        before: EntryId | None = None,
        order: Order = "oldest",
        limit: int = 100,
    ) -> Sequence[Entry]:
        low = 0 if after is None else after
        high = NEVER if before is None else before
        found = [entry for entry in self._visible(conversation) if low < entry.id < high]
        found.sort(key=lambda entry: entry.id, reverse=order == "newest")
        return found[:limit]

    async def latest_head(self, conversation: ConversationId, at_or_before: EntryId | None = None) -> Entry | None:
        last = NEVER if at_or_before is None else at_or_before
        heads = [entry for entry in self._visible(conversation) if entry.head is not None and entry.id <= last]
        return max(heads, key=lambda entry: entry.id, default=None)

    async def scan_tasks(
        self,
        *,
        conversation: ConversationId | None = None,
        owner: TaskId | None = None,
        waiting_on: TaskId | None = None,
        kind: str | None = None,
        status: TaskStatus | None = None,
        live: bool | None = None,
        background: bool | None = None,
        abort_requested: bool | None = None,
        cursor: int = 0,
        limit: int = 100,
    ) -> Sequence[Task]:
        need_one(conversation is not None or owner is not None or waiting_on is not None or live is True)
        return _page(
            (
                task
                for task in self._now().tasks.values()
                if (conversation is None or task.conversation == conversation)
                and (owner is None or task.owner == owner)
                and (waiting_on is None or waiting_on in task.on)
                and (kind is None or task.kind == kind)
                and (status is None or task.status == status)
                and (live is None or (task.status != "terminal") == live)
                and (background is None or task.background == background)
                and (abort_requested is None or task.abort_requested == abort_requested)
            ),
            cursor,
            limit,
        )

    async def scan_deadlines(self, *, until: int | None = None, limit: int = 100) -> Sequence[LiveTask]:
        last = NEVER if until is None else until
        due = [(task.deadline, task.id, task) for task in self._now().tasks.values() if task.deadline is not None]
        return [_light(task) for deadline, _, task in sorted(due, key=lambda row: row[:2]) if deadline <= last][:limit]

    async def scan_live(self, *, cursor: int = 0, limit: int = 1000) -> Sequence[LiveTask]:
        live = (task for task in self._now().tasks.values() if task.status != "terminal")
        return [_light(task) for task in _page(live, cursor, limit)]

    async def scan_submissions(
        self,
        *,
        conversation: ConversationId | None = None,
        status: SubmissionStatus | None = None,
        live: bool | None = None,
        cursor: int = 0,
        limit: int = 100,
    ) -> Sequence[Submission]:
        need_one(conversation is not None or live is True)
        return _page(
            (
                one
                for one in self._now().submissions.values()
                if (conversation is None or one.conversation == conversation)
                and (status is None or one.status == status)
                and (live is None or (one.status in ("queued", "placed")) == live)
            ),
            cursor,
            limit,
        )

    async def scan_documents(
        self,
        scope: Scope,
        scope_id: int,
        *,
        kind: str | None = None,
        at: int | None = None,
        retired: bool = False,
        cursor: int = 0,
        limit: int = 100,
    ) -> Sequence[Document]:
        point = NEVER - 1 if at is None else at
        return _page(
            (
                one
                for one in self._now().documents.values()
                if one.scope == scope
                and one.scope_id == scope_id
                and (kind is None or one.kind == kind)
                and (retired or one.created <= point < (NEVER if one.retired is None else one.retired))
            ),
            cursor,
            limit,
        )

    async def scan_members(
        self,
        scope: Scope,
        scope_id: int,
        kind: str,
        *,
        prefix: str = "",
        after: str | None = None,
        at: int | None = None,
        limit: int = 100,
    ) -> Sequence[Document]:
        alive = await self.scan_documents(scope, scope_id, kind=kind, at=at, limit=NEVER)
        found = [(one.key, one) for one in alive if one.key is not None and one.key.startswith(prefix)]
        found.sort(key=lambda pair: (pair[0], pair[1].id))
        return [one for key, one in found if after is None or key > after][:limit]

    async def find_document(
        self, scope: Scope, scope_id: int, kind: str, key: str | None, *, at: int | None = None
    ) -> Document | None:
        alive = await self.scan_documents(scope, scope_id, kind=kind, at=at, limit=NEVER)
        return max((one for one in alive if one.key == key), key=lambda one: one.id, default=None)

    async def document(self, id: DocumentId, at: int | None = None) -> StoredDocument | None:
        stored = self._now()
        found = stored.documents.get(id)
        if found is None:
            return None
        history = reach(stored.revisions.get(id, ()), NEVER if at is None else at)
        return StoredDocument(found, history[0], history[1:]) if history else None

    def _visible(self, conversation: int) -> list[Entry]:
        stored = self._now()
        caps: dict[int, int] = {}
        cap = NEVER
        at = stored.conversations.get(conversation)
        while at is not None:
            caps[at.id] = cap
            if at.parent is None or at.fork_entry is None:
                break
            cap = min(cap, at.fork_entry)
            at = stored.conversations.get(at.parent)
        return [entry for entry in stored.entries.values() if entry.id <= caps.get(entry.conversation, 0)]


class MemoryStorage(MemoryReads):
    """A store that lives as long as this object. It can be opened again after `close`; each open is a new epoch.

    Crash: `copy()` gives what a crash at this moment would leave behind, as a closed store.
    """

    def __init__(self) -> None:
        super().__init__()

    @property
    def location(self) -> str:
        """Where it lies, for people."""
        return "memory:"

    async def open(self) -> StorageHead:
        """Begin a new epoch; `StorageInUse` while this object is open."""
        if self._open:
            raise StorageInUse("this memory store is already open", owner={"pid": os.getpid()})
        self._open = True
        stored = self._stored
        stored.epoch += 1
        return StorageHead(stored.next_id, stored.seq, stored.epoch, SCHEMA_VERSION)

    async def commit(self, batch: Batch) -> int:
        """Store the batch whole or nothing of it; return its seq. Raises `StorageRejected` for what cannot be."""
        stored = self._now()
        changes = Changes(stored)
        try:
            apply(changes, batch)
        except BaseException:
            changes.take_back()
            raise
        stored.seq, stored.next_id = batch.seq, batch.next_id
        return batch.seq

    async def close(self) -> None:
        """Stop; what is stored stays in this object. May be called twice."""
        self._open = False

    def copy(self) -> "MemoryStorage":
        """A closed store with what is stored now."""
        other = MemoryStorage()
        other._stored = self._stored.copy()
        return other


def _page(found: Iterable[R], cursor: int, limit: int) -> list[R]:
    return sorted((one for one in found if one.id > cursor), key=lambda one: one.id)[:limit]


def _light(task: Task) -> LiveTask:
    return LiveTask(
        task.id,
        task.conversation,
        task.kind,
        task.status,
        task.owner,
        task.background,
        task.abort_requested,
        task.on,
        task.deadline,
        task.asks_again,
    )
