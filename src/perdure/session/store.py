"""Reads of the newest state: the working set first, then storage once everything before is flushed."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from perdure.base import delta, jsonvalue
from perdure.base.errors import InvalidValue, NotFound
from perdure.base.ids import ConversationId, DocumentId, EntryId, SubmissionId, TaskId
from perdure.base.jsonvalue import Json
from perdure.session.documents import Document as DocumentKind
from perdure.session.publication import DocumentKey
from perdure.session.state import DocumentState, WorkingSet
from perdure.storage.protocol import Storage
from perdure.storage.records import (
    Conversation,
    Document,
    Entry,
    LiveTask,
    Scope,
    StoredDocument,
    Submission,
    Task,
)

Family = tuple[str, Scope, int]
"""Kind, scope, scope id."""

PAGE: Final = 500
MANY_INCARNATIONS: Final = 200
"""Documents of one scope, retired ones included, from which on they are read by pages each time and not kept."""


class Store:
    """The working set in front of a storage. `settled` waits until the storage holds all that was adopted."""

    def __init__(self, storage: Storage, wait_flushed: Callable[[], Awaitable[None]]) -> None:
        self.storage = storage
        self.working = WorkingSet()
        self.next_id = 1
        self.seq = 0
        self.epoch = 0
        self._wait_flushed = wait_flushed

    async def settled(self) -> Storage:
        """The storage, once it holds everything committed so far."""
        await self._wait_flushed()
        return self.storage

    async def conversation(self, id: ConversationId) -> Conversation | None:
        found = self.working.conversations.get(id)
        if found is None:
            found = await (await self.settled()).conversation(id)
            if found is not None:
                self.working.conversations[id] = found
        return found

    async def entry(self, id: EntryId) -> Entry | None:
        return await (await self.settled()).entry(id)

    def live_task(self, id: TaskId) -> Task | LiveTask | None:
        return self.working.tasks.get(id)

    async def task(self, id: TaskId) -> Task | None:
        """The whole record; a parked task that was known only lightly stays loaded from now on."""
        found = self.working.tasks.get(id)
        if isinstance(found, Task):
            return found
        stored = await (await self.settled()).task(id)
        if found is not None and stored is not None and self.working.tasks.get(id) is found:
            self.working.tasks[id] = stored
        return stored

    async def submission(self, id: SubmissionId) -> Submission | None:
        return self.working.submissions.get(id) or await (await self.settled()).submission(id)

    async def submission_by_request(self, conversation: ConversationId, request_id: str) -> Submission | None:
        known = self.working.by_request.get((conversation, request_id))
        if known is not None:
            return self.working.submissions[known]
        return await (await self.settled()).submission_by_request(conversation, request_id)

    # documents

    def key_of(self, kind: DocumentKind[Any], scope_id: int | None, key: str | None) -> DocumentKey:
        if scope_id is not None and key is None and kind.scope != "session" and not kind.family:
            return (kind.kind, kind.scope, scope_id, None)
        kind.check_key(key)
        return (kind.kind, kind.scope, kind.scope_id(scope_id), key)

    def family_of(self, kind: DocumentKind[Any], scope_id: int | None) -> Family:
        if not kind.family:
            raise InvalidValue(f"document {kind.kind} is no family and has no keys")
        return (kind.kind, kind.scope, kind.scope_id(scope_id))

    async def member_keys(self, family: Family, *, prefix: str, after: str | None, limit: int) -> list[str]:
        kind, scope, scope_id = family
        storage = await self.settled()
        found = await storage.scan_members(scope, scope_id, kind, prefix=prefix, after=after, limit=limit)
        return [member.key for member in found if member.key is not None]

    async def document(self, key: DocumentKey) -> DocumentState | None:
        """A document's newest state, or None where there is none alive."""
        documents = self.working.documents
        if key in documents:
            return documents[key]
        storage = await self.settled()
        record = await storage.find_document(key[1], key[2], key[0], key[3])
        state = None
        if record is not None:
            stored = await storage.document(record.id)
            state = None if stored is None else fold(stored)
        if key not in documents:
            documents[key] = state
        return documents[key]

    async def document_at(self, key: DocumentKey, at: int) -> tuple[Json, int] | None:
        """Value and version of a document as of a commit."""
        storage = await self.settled()
        record = await storage.find_document(key[1], key[2], key[0], key[3], at=at)
        stored = None if record is None else await storage.document(record.id, at)
        if stored is None:
            return None
        state = fold(stored)
        return state.value, state.version

    async def stored_value(self, id: DocumentId, at: int) -> tuple[Json, int]:
        """Value and version that an incarnation had at a commit; a commit still to come means now."""
        stored = await (await self.settled()).document(id, at if at <= self.seq else None)
        if stored is None:
            raise NotFound(f"document {id} has no value at commit {at}")
        state = fold(stored)
        return state.value, state.version

    async def documents_in(self, scope: Scope, scope_id: int, at: int | None = None) -> list[Document]:
        """All documents alive in a scope, now or as of a commit."""
        ever = await self._incarnations(scope, scope_id)
        if ever is not None:
            return [one for one in ever if _alive(one, at)]
        storage = await self.settled()
        found: list[Document] = []
        cursor = 0
        while True:
            page = await storage.scan_documents(scope, scope_id, at=at, cursor=cursor, limit=PAGE)
            found.extend(page)
            if len(page) < PAGE:
                return found
            cursor = page[-1].id

    async def _incarnations(self, scope: Scope, scope_id: int) -> list[Document] | None:
        """All documents that a scope has or had, if they are not many; kept, since forks ask again and again."""
        known = self.working.scopes
        if (scope, scope_id) in known:
            return known[scope, scope_id]
        found = await (await self.settled()).scan_documents(scope, scope_id, retired=True, limit=MANY_INCARNATIONS)
        listed = list(found) if len(found) < MANY_INCARNATIONS else None
        if scope != "task":
            known[scope, scope_id] = listed
        return listed


def _alive(document: Document, at: int | None) -> bool:
    if at is None:
        return document.retired is None
    return document.created <= at and (document.retired is None or document.retired > at)


def fold(stored: StoredDocument) -> DocumentState:
    """A stored document as a value: its base with its deltas applied."""
    value = jsonvalue.decode(stored.base.body)
    size = 0
    last = stored.base
    for revision in stored.deltas:
        value = delta.apply(value, jsonvalue.decode(revision.body))
        size += len(revision.body)
        last = revision
    return DocumentState(
        stored.document, value, last.version, len(stored.deltas), len(stored.base.body), size, last.seq
    )


def new_document(id: int, kind: DocumentKind[Any], key: DocumentKey, seq: int) -> Document:
    """The record of a new incarnation."""
    return Document(DocumentId(id), kind.kind, kind.scope, key[2], key[3], kind.rewindable, kind.fork, seq)
