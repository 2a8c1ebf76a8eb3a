"""The contract of a store. One store is one session. Small, async, and easy to write for whatever people have.

A store trusts the session for meaning. It guarantees: a batch is stored whole or not at all; what it returns is
detached from what it was given; conversations and entries never change; a batch refused with `StorageRejected`,
`StorageFull` or `StorageBusy` had no effect. Every other failure of a commit leaves its outcome open.

Scans are in pages: they return at most `limit` records after (or before) `cursor`, an id; the next page starts at
the last record's id. A page with fewer than `limit` records is the last. All scans must use an index.
"""

import asyncio
from collections.abc import Sequence
from typing import Literal, Protocol, runtime_checkable

from perdure.base.ids import ConversationId, DocumentId, EntryId, SubmissionId, TaskId
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

Order = Literal["oldest", "newest"]
Durability = Literal["power", "process"]
"""What a commit survives once it returns: the loss of power, or only the death of the process."""


class DocumentReads(Protocol):
    """How documents are found and read."""

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
        """Documents of a scope, by id: those alive at commit `at`, by default those alive now; with `retired` all that
        ever were."""
        ...

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
        """Members of a family whose keys begin with `prefix`, by key in code point order: those alive at commit `at`,
        by default those alive now. The next page begins after the last member's key."""
        ...

    async def find_document(
        self, scope: Scope, scope_id: int, kind: str, key: str | None, *, at: int | None = None
    ) -> Document | None:
        """The incarnation alive at commit `at`, by default now; `key` None: the document that stands alone."""
        ...

    async def document(self, id: DocumentId, at: int | None = None) -> StoredDocument | None:
        """Newest base at or before commit `at` (default: now) with its deltas up to it. None before its first base,
        or where a document that is not rewindable no longer has that point."""
        ...


class Storage(DocumentReads, Protocol):
    """One session's records. Calls come from one event loop; `commit` is never called twice at a time."""

    @property
    def location(self) -> str:
        """Where it lies, for people: a path or URL."""
        ...

    async def open(self) -> StorageHead:
        """Take ownership (`StorageInUse` if somebody has it), create what is missing, begin a new epoch.

        A store written by a newer schema raises `TooNew` and is left untouched.
        """
        ...

    async def commit(self, batch: Batch) -> int:
        """Store the batch whole, or nothing of it; return its seq. Returns when it is as durable as promised."""
        ...

    async def close(self) -> None:
        """Give up ownership. May be called twice."""
        ...

    # keyed reads: None where there is no such record
    async def conversation(self, id: ConversationId) -> Conversation | None: ...
    async def entry(self, id: EntryId) -> Entry | None: ...
    async def task(self, id: TaskId) -> Task | None: ...
    async def submission(self, id: SubmissionId) -> Submission | None: ...
    async def submission_by_request(self, conversation: ConversationId, request_id: str) -> Submission | None: ...
    async def blob(self, digest: str) -> Blob | None: ...

    # scans
    async def scan_conversations(
        self, *, owner: TaskId | None = None, cursor: int = 0, limit: int = 100
    ) -> Sequence[Conversation]:
        """By id, oldest first; with `owner`, only those owned by that task."""
        ...

    async def scan_entries(
        self,
        conversation: ConversationId,
        *,
        after: EntryId | None = None,
        before: EntryId | None = None,
        order: Order = "oldest",
        limit: int = 100,
    ) -> Sequence[Entry]:
        """Visible entries with `after < id < before`: a fork's own, and its ancestors' up to each fork entry."""
        ...

    async def latest_head(self, conversation: ConversationId, at_or_before: EntryId | None = None) -> Entry | None:
        """The newest visible entry that carries a head, at or before the given entry."""
        ...

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
        """By id, oldest first. At least one of conversation, owner, waiting_on or live=True is given."""
        ...

    async def scan_deadlines(self, *, until: int | None = None, limit: int = 100) -> Sequence[LiveTask]:
        """Sleeping tasks by deadline, earliest first, up to and including `until`."""
        ...

    async def scan_live(self, *, cursor: int = 0, limit: int = 1000) -> Sequence[LiveTask]:
        """Every task that has not ended, light, by id. All that an open reads of parked work."""
        ...

    async def scan_submissions(
        self,
        *,
        conversation: ConversationId | None = None,
        status: SubmissionStatus | None = None,
        live: bool | None = None,
        cursor: int = 0,
        limit: int = 100,
    ) -> Sequence[Submission]:
        """By id, oldest first. `live`: queued or placed. At least one of conversation or live=True is given."""
        ...


@runtime_checkable
class ImmediateStorage(Protocol):
    """A store that can often commit on the spot, without waiting for anything."""

    def commit_now(self, batch: Batch) -> bool:
        """Commit the batch here and now; False if that would have to wait: nothing happened, use `commit`.

        Raises what `commit` raises.
        """
        ...


@runtime_checkable
class PipelinedStorage(Protocol):
    """A store whose flush takes long: the session goes on with the next transactions meanwhile."""

    def enqueue(self, batch: Batch) -> "asyncio.Future[int]":
        """Take the batch in order; the future is done when it is durable. After one failure all later ones fail."""
        ...

    @property
    def pipelined(self) -> bool:
        """False: the session awaits `commit` before anything else happens."""
        ...
