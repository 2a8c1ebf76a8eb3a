"""The documents of a transaction: drafts, whole values, patches; and what they become at the end of the block."""

from typing import Any, NamedTuple, TypeVar

from perdure.base import delta, jsonvalue
from perdure.base.delta import Operation
from perdure.base.drafts import Draft, plain
from perdure.base.errors import InvalidValue, NotFound, Refused
from perdure.base.ids import ConversationId, TaskId
from perdure.base.jsonvalue import Json
from perdure.session.changes import Changes
from perdure.session.documents import SMALL_VALUE_BYTES
from perdure.session.documents import Document as DocumentKind
from perdure.session.publication import DocumentChange, DocumentKey
from perdure.session.state import DocumentState
from perdure.session.store import Store, new_document
from perdure.storage.records import Document, DocumentCopy, Revision, Scope

T = TypeVar("T")


class _Pending:
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


class Sealed(NamedTuple):
    """A document's part of a commit."""

    change: DocumentChange
    revision: Revision
    state: DocumentState
    created: bool


class DocumentWrites:
    """What a transaction can do with documents."""

    changes: Changes
    seq: int
    _store: Store
    _progress: bool

    def _init_documents(self) -> None:
        self._pending: dict[DocumentKey, _Pending] = {}
        self._retired: dict[DocumentKey, DocumentState] = {}

    def check_open(self) -> None:
        raise NotImplementedError

    def mint(self) -> int:
        raise NotImplementedError

    async def doc(
        self, kind: DocumentKind[T], scope_id: int | None = None, *, key: str | None = None, seed: T | None = None
    ) -> Any:
        """A mutable draft of the document's value, created from `seed` or its initial value when absent.

        Edits become patch operations at the end of the block, where the result is validated strictly. Only for
        documents whose type is a dict or a list in JSON; others change by `set`.
        """
        pending = await self._touch(kind, scope_id, key, seed=seed)
        assert pending is not None
        if pending.draft is None:
            if not isinstance(pending.value, dict | list):
                raise InvalidValue(
                    f"document {kind.kind} is neither object nor list", hint="change it with tx.set(Doc, id, value)"
                )
            pending.draft = Draft(pending.value)
        return pending.draft.root

    async def set(self, kind: DocumentKind[T], scope_id: int | None, value: T, *, key: str | None = None) -> None:
        """Give the document this value, creating it when absent. What is stored is the difference."""
        new = kind.codec.to_json(value)
        pending = await self._touch(kind, scope_id, key, seed=value)
        assert pending is not None
        pending.close_draft()
        pending.ops.extend(delta.diff(pending.value, new))
        pending.value = new

    async def patch(
        self, kind: DocumentKind[Any], scope_id: int | None, ops: list[Operation], *, key: str | None = None
    ) -> None:
        """Apply operations as they are: for documents that change often in small ways."""
        pending = await self._touch(kind, scope_id, key)
        assert pending is not None
        pending.close_draft()
        pending.value = delta.apply(pending.value, ops)
        pending.ops.extend(ops)

    async def snapshot(self, kind: DocumentKind[T], scope_id: int | None = None, *, key: str | None = None) -> T | None:
        """The document's value as of now in its declared type, or None where there is none. Not for changing."""
        value = await self.value_of(kind, scope_id, key=key)
        return None if value is None else kind.codec.from_json(value)

    async def value_of(self, kind: DocumentKind[Any], scope_id: int | None = None, *, key: str | None = None) -> Json:
        """The document's value as JSON, shared: it must not be changed. None where there is no document."""
        self.check_open()
        where = self._store.key_of(kind, scope_id, key)
        pending = self._pending.get(where)
        if pending is not None:
            return plain(pending.draft.root) if pending.draft is not None else pending.value
        copied = self._copied(where)
        if copied is not None:
            value, version = await self._store.stored_value(copied.source, copied.at)
            return kind.current(value, version)
        if where in self._retired:
            return None
        state = await self._store.document(where)
        return None if state is None else kind.current(state.value, state.version)

    async def retire(self, kind: DocumentKind[Any], scope_id: int | None = None, *, key: str | None = None) -> bool:
        """End the document's life; a later `doc` begins a new one. False if there was none."""
        self.check_open()
        where = self._store.key_of(kind, scope_id, key)
        pending = self._pending.pop(where, None)
        if pending is not None:
            pending.close_draft()
        state = await self._store.document(where)
        if state is None:
            return pending is not None
        self._retired[where] = state
        return True

    async def retire_scope(self, scope: Scope, scope_id: int) -> None:
        """End the life of every document of a scope, kinds unknown to this code included."""
        self.check_open()
        for where in [key for key in self._pending if key[1:3] == (scope, scope_id)]:
            del self._pending[where]
        for record in await self._store.documents_in(scope, scope_id):
            where = (record.kind, scope, scope_id, record.key)
            state = await self._store.document(where)
            if state is not None:
                self._retired[where] = state

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
        return [*(record for record in stored if (record.kind, scope, scope_id, record.key) not in self._retired), *own]

    async def stored_value_at(
        self, kind: DocumentKind[Any], scope_id: int, key: str | None, at: int
    ) -> tuple[Json, int] | None:
        """Stored value and version as of an earlier commit; None where there was none."""
        self.check_open()
        return await self._store.document_at(self._store.key_of(kind, scope_id, key), at)

    def pending_value(self, document: Document) -> tuple[Json, int] | None:
        """Value and version that this transaction gave a document; None if it did not touch it."""
        pending = self._pending.get((document.kind, document.scope, document.scope_id, document.key))
        if pending is None:
            return None
        pending.close_draft()
        return pending.value, pending.kind.version

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

    async def _touch(
        self, kind: DocumentKind[Any], scope_id: int | None, key: str | None, seed: Any = None
    ) -> _Pending | None:
        self.check_open()
        where = self._store.key_of(kind, scope_id, key)
        pending = self._pending.get(where)
        if pending is not None:
            return pending
        copied = self._copied(where)
        state = None if where in self._retired or copied else await self._store.document(where)
        if copied is not None:  # a fork of this very transaction: the copy becomes a value of its own
            self.changes.copies.remove(copied)
            value, version = await self._store.stored_value(copied.source, copied.at)
            pending = _Pending(kind, copied.target, None, kind.current(value, version))
        elif state is not None:
            pending = _Pending(kind, state.document, state, kind.current(state.value, state.version))
        else:
            if self._progress:
                raise Refused(f"document {kind.kind} does not exist, and a progress commit creates nothing")
            await self._check_scope(kind, where)
            record = new_document(self.mint(), kind, where, self.seq)
            pending = _Pending(kind, record, None, kind.first_value(seed))
        self._pending[where] = pending
        return pending

    async def _check_scope(self, kind: DocumentKind[Any], where: DocumentKey) -> None:
        scope_id = where[2]
        if kind.scope == "conversation":
            known = ConversationId(scope_id) in self.changes.conversations
            if not known and await self._store.conversation(ConversationId(scope_id)) is None:
                raise NotFound(f"no conversation {scope_id}")
        elif kind.scope == "task":
            task = self.changes.task(TaskId(scope_id)) or self._store.live_task(TaskId(scope_id))
            if task is None or task.status == "terminal":
                raise NotFound(f"task {scope_id} has ended or never was; its documents are gone")

    def _copied(self, where: DocumentKey) -> DocumentCopy | None:
        for copy in self.changes.copies:
            target = copy.target
            if (target.kind, target.scope, target.scope_id, target.key) == where:
                return copy
        return None

    def _seal(self, where: DocumentKey, pending: _Pending, created: bool) -> Sealed:
        kind, old, value = pending.kind, pending.state, pending.value
        version = kind.version
        if created or old is None:
            return self._sealed(where, pending, jsonvalue.encode(value), base=True, created=True)
        if old.version == version:
            body = jsonvalue.encode(pending.ops)
            small = not kind.rewindable and old.base_bytes + old.delta_bytes + len(body) <= SMALL_VALUE_BYTES
            if not small and not kind.checkpoint_when(value, pending.ops, old.deltas + 1):
                return self._sealed(where, pending, body, base=False, created=False)
        return self._sealed(where, pending, jsonvalue.encode(value), base=True, created=False)

    def _sealed(self, where: DocumentKey, pending: _Pending, body: bytes, *, base: bool, created: bool) -> Sealed:
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
