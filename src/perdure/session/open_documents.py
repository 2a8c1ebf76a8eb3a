"""The documents that a transaction has touched, and what they become at the end of the block."""

from typing import Any, TypeVar

import msgspec

from perdure.base import jsonvalue
from perdure.base.delta import Operation
from perdure.base.drafts import Draft, plain
from perdure.base.jsonvalue import Json
from perdure.session.block import Block
from perdure.session.changes import key_of
from perdure.session.documents import SMALL_VALUE_BYTES
from perdure.session.documents import Document as DocumentKind
from perdure.session.publication import DocumentChange, DocumentKey
from perdure.session.state import DocumentState
from perdure.session.store import Store
from perdure.storage.records import Document, Revision, Scope

T = TypeVar("T")


class Pending:
    """A document that this transaction touched."""

    __slots__ = ("document", "draft", "kind", "ops", "state", "value")

    def __init__(self, kind: DocumentKind[Any], document: Document, state: DocumentState | None, value: Json) -> None:
        self.kind = kind
        self.document = document
        self.state = state
        """As it was before the transaction; None where the transaction created it."""
        self.value = value
        self.ops: list[Operation] = []
        self.draft: Draft | None = None

    def close_draft(self) -> None:
        """Take over what was edited so far."""
        if self.draft is not None:
            draft, self.draft = self.draft, None
            self.value, ops = draft.finish()
            self.ops.extend(ops)


class Sealed(msgspec.Struct, frozen=True):
    """A document's part of a commit."""

    change: DocumentChange
    revision: Revision
    state: DocumentState
    created: bool


class OpenDocuments(Block):
    """Documents touched and retired so far."""

    def __init__(self, session: Any, store: Store, *, progress: bool = False) -> None:
        super().__init__(session, store, progress=progress)
        self._pending: dict[DocumentKey, Pending] = {}
        self._retired: dict[DocumentKey, DocumentState] = {}

    def revoke_drafts(self) -> None:
        """Make drafts that somebody kept unusable."""
        for pending in self._pending.values():
            if pending.draft is not None:
                pending.draft.revoke()
                pending.draft = None

    async def documents_alive(self, scope: Scope, scope_id: int, at: int | None = None) -> list[Document]:
        """The records of all documents alive in a scope now, or as of a commit."""
        self.check_open()
        stored = await self._store.documents_in(scope, scope_id, at)
        if at is not None:
            return stored
        own = [
            pending.document
            for where, pending in self._pending.items()
            if where[1:3] == (scope, scope_id) and pending.state is None
        ]
        own += [d for d in self.changes.begun_documents() if (d.scope, d.scope_id) == (scope, scope_id)]
        return [*(record for record in stored if key_of(record) not in self._retired), *own]

    async def stored_value_at(
        self, kind: DocumentKind[Any], scope_id: int, key: str | None, at: int
    ) -> tuple[Json, int] | None:
        """Stored value and version as of an earlier commit; None where there was none."""
        self.check_open()
        return await self._store.document_at(self._store.key_of(kind, scope_id, key), at)

    async def pending_value(self, document: Document) -> tuple[Json, int] | None:
        """Value and version that this transaction gave a document so far; None if it did not touch it."""
        pending = self._pending.get(key_of(document))
        if pending is None:
            return await self._begun(key_of(document))
        value = pending.value if pending.draft is None else plain(pending.draft.root)
        return value, pending.kind.version

    def small_value(self, document: Document, at: int) -> tuple[Json, int] | None:
        """Stored value and version as of a commit, if they are in memory and fit a row."""
        state = self._store.working.documents.get(key_of(document))
        if state is None or state.document.id != document.id or state.seq > at:
            return None
        if state.base_bytes + state.delta_bytes > SMALL_VALUE_BYTES:
            return None
        return state.value, state.version

    async def _begun(self, where: DocumentKey) -> tuple[Json, int] | None:
        """Value and version that a document of a fork of this very transaction begins with."""
        for copy in self.changes.copies:
            if key_of(copy.target) == where:
                return await self._store.stored_value(copy.source, copy.at)
        for record, revision in zip(self.changes.documents, self.changes.revisions, strict=True):
            if key_of(record) == where:
                return jsonvalue.decode(revision.body), revision.version
        return None

    @property
    def writes_documents(self) -> bool:
        return bool(self._pending or self._retired)

    def created_documents(self, scope: str) -> list[int]:
        """The scope ids for which this transaction creates documents."""
        return [where[2] for where, pending in self._pending.items() if where[1] == scope and pending.state is None]

    def seal_documents(self) -> list[Sealed]:
        """Close the drafts, validate, and turn what changed into revisions."""
        sealed = []
        for where, pending in self._pending.items():
            pending.close_draft()
            created = pending.state is None
            if not created and not pending.ops:
                continue
            if pending.kind.checked and (pending.ops or created):
                pending.kind.codec.from_json(pending.value)
            sealed.append(self._seal(where, pending, created))
        return sealed

    def retired_documents(self) -> list[tuple[DocumentKey, DocumentState]]:
        """What this transaction retired, as it was."""
        return list(self._retired.items())

    def _seal(self, where: DocumentKey, pending: Pending, created: bool) -> Sealed:
        kind, old, value = pending.kind, pending.state, pending.value
        version = kind.version
        if created or old is None:
            return self._sealed(where, pending, jsonvalue.encode(value), base=True, created=True)
        if old.version == version:
            if not kind.rewindable and old.base_bytes + old.delta_bytes <= SMALL_VALUE_BYTES:
                whole = jsonvalue.encode(value)
                if len(whole) <= SMALL_VALUE_BYTES:
                    return self._sealed(where, pending, whole, base=True, created=False)
            body = jsonvalue.encode(pending.ops)
            if not kind.checkpoint_when(value, pending.ops, old.deltas + 1):
                return self._sealed(where, pending, body, base=False, created=False)
        return self._sealed(where, pending, jsonvalue.encode(value), base=True, created=False)

    def _sealed(self, where: DocumentKey, pending: Pending, body: bytes, *, base: bool, created: bool) -> Sealed:
        old, value, version = pending.state, pending.value, pending.kind.version
        revision = Revision(pending.document.id, self.seq, base, version, body)
        if base or old is None:
            state = DocumentState(pending.document, value, version, 0, len(body), 0, self.seq)
        else:
            state = DocumentState(
                pending.document, value, version, old.deltas + 1, old.base_bytes, old.delta_bytes + len(body), self.seq
            )
        migrated = old is not None and old.version != version
        ops = [{"op": "replace", "path": "", "value": value}] if created or migrated else pending.ops
        return Sealed(DocumentChange(where, pending.document, version, value, ops), revision, state, created)
