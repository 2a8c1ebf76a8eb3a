"""A store that forgets everything but what is stored, after every commit."""

from collections.abc import Callable, Sequence

from perdure.base.ids import ConversationId, DocumentId, EntryId, SubmissionId, TaskId
from perdure.storage.protocol import Order, Storage
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


class ForwardedReads:
    """Every read goes to another store."""

    def __init__(self, inner: Storage) -> None:
        self.inner = inner

    async def conversation(self, id: ConversationId) -> Conversation | None:
        return await self.inner.conversation(id)

    async def entry(self, id: EntryId) -> Entry | None:
        return await self.inner.entry(id)

    async def task(self, id: TaskId) -> Task | None:
        return await self.inner.task(id)

    async def submission(self, id: SubmissionId) -> Submission | None:
        return await self.inner.submission(id)

    async def submission_by_request(self, conversation: ConversationId, request_id: str) -> Submission | None:
        return await self.inner.submission_by_request(conversation, request_id)

    async def blob(self, digest: str) -> Blob | None:
        return await self.inner.blob(digest)

    async def scan_conversations(
        self, *, owner: TaskId | None = None, cursor: int = 0, limit: int = 100
    ) -> Sequence[Conversation]:
        return await self.inner.scan_conversations(owner=owner, cursor=cursor, limit=limit)

    async def scan_entries(
        self,
        conversation: ConversationId,
        *,
        after: EntryId | None = None,
        before: EntryId | None = None,
        order: Order = "oldest",
        limit: int = 100,
    ) -> Sequence[Entry]:
        return await self.inner.scan_entries(conversation, after=after, before=before, order=order, limit=limit)

    async def latest_head(self, conversation: ConversationId, at_or_before: EntryId | None = None) -> Entry | None:
        return await self.inner.latest_head(conversation, at_or_before)

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
        return await self.inner.scan_tasks(
            conversation=conversation,
            owner=owner,
            waiting_on=waiting_on,
            kind=kind,
            status=status,
            live=live,
            background=background,
            abort_requested=abort_requested,
            cursor=cursor,
            limit=limit,
        )

    async def scan_deadlines(self, *, until: int | None = None, limit: int = 100) -> Sequence[LiveTask]:
        return await self.inner.scan_deadlines(until=until, limit=limit)

    async def scan_live(self, *, cursor: int = 0, limit: int = 1000) -> Sequence[LiveTask]:
        return await self.inner.scan_live(cursor=cursor, limit=limit)

    async def scan_submissions(
        self,
        *,
        conversation: ConversationId | None = None,
        status: SubmissionStatus | None = None,
        live: bool | None = None,
        cursor: int = 0,
        limit: int = 100,
    ) -> Sequence[Submission]:
        return await self.inner.scan_submissions(
            conversation=conversation, status=status, live=live, cursor=cursor, limit=limit
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
        return await self.inner.scan_documents(
            scope, scope_id, kind=kind, at=at, retired=retired, cursor=cursor, limit=limit
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
        return await self.inner.scan_members(scope, scope_id, kind, prefix=prefix, after=after, at=at, limit=limit)

    async def find_document(
        self, scope: Scope, scope_id: int, kind: str, key: str | None, *, at: int | None = None
    ) -> Document | None:
        return await self.inner.find_document(scope, scope_id, kind, key, at=at)

    async def document(self, id: DocumentId, at: int | None = None) -> StoredDocument | None:
        return await self.inner.document(id, at)


class ReopeningStorage(ForwardedReads):
    """Closes the store after every commit, stored or refused, and opens it anew: what is only in memory is lost.

    `make` gives a store that lies at the same place each time (for memory: the same object).
    """

    def __init__(self, make: Callable[[], Storage]) -> None:
        super().__init__(make())
        self._make = make
        self.opens = 0
        """How often it was opened."""

    @property
    def location(self) -> str:
        """Where the store lies, for people."""
        return self.inner.location

    async def open(self) -> StorageHead:
        """Open the store."""
        self.opens += 1
        return await self.inner.open()

    async def commit(self, batch: Batch) -> int:
        """Commit, close, open; what the commit returns or raises comes back after that."""
        try:
            return await self.inner.commit(batch)
        finally:
            await self.inner.close()
            self.inner = self._make()
            await self.open()

    async def close(self) -> None:
        """Close the store."""
        await self.inner.close()
