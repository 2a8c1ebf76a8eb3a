"""The documents of a transaction: drafts, whole values, patches; and what they become at the end of the block."""

from typing import Any, TypeVar

from perdure.base import delta
from perdure.base.delta import Operation
from perdure.base.drafts import Draft, plain
from perdure.base.errors import InvalidValue, NotFound, Refused
from perdure.base.ids import ConversationId, TaskId
from perdure.base.jsonvalue import Json
from perdure.session.changes import key_of
from perdure.session.documents import Document as DocumentKind
from perdure.session.open_documents import OpenDocuments, Pending
from perdure.session.publication import DocumentKey
from perdure.session.store import new_document
from perdure.storage.records import Scope

T = TypeVar("T")


class DocumentWrites(OpenDocuments):
    """What a transaction can do with documents."""

    async def doc(
        self, kind: DocumentKind[T], scope_id: int | None = None, *, key: str | None = None, seed: T | None = None
    ) -> T:
        """A mutable draft of the document's value, created from `seed` or its initial value when absent. It reads and
        changes as a value of the document's type does; `plain(draft)` detaches it.

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
        draft: Any = pending.draft.root
        return draft  # type: ignore[no-any-return]

    async def set(self, kind: DocumentKind[T], scope_id: int | None, value: T, *, key: str | None = None) -> None:
        """Give the document this value, creating it when absent. What is stored is the difference."""
        new = kind.codec.to_json(value)
        pending = await self._touch(kind, scope_id, key, seed=value)
        assert pending is not None
        pending.close_draft()
        ops = delta.diff(pending.value, new)
        pending.ops.extend(ops)
        pending.value = delta.apply(pending.value, ops)  # what a replay gives: the order of keys is that of a reopen

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
        if not self._open:
            self.check_open()
        where = self._store.key_of(kind, scope_id, key)
        pending = self._pending.get(where)
        if pending is not None:
            return plain(pending.draft.root) if pending.draft is not None else pending.value
        if self.changes.begins_documents and (begun := await self._begun(where)) is not None:
            return kind.current(*begun)
        if where in self._retired:
            return None
        known = self._store.working.documents
        state = known[where] if where in known else await self._store.document(where)
        return None if state is None else kind.current(state.value, state.version)

    async def document_keys(
        self,
        kind: DocumentKind[Any],
        scope_id: int | None = None,
        *,
        prefix: str = "",
        after: str | None = None,
        limit: int = 100,
    ) -> list[str]:
        """The keys of a family's members now, those that begin with `prefix`, in code point order.

        At most `limit`; the next page is the one `after` the last key.
        """
        self.check_open()
        family = self._store.family_of(kind, scope_id)
        gone = {where[3] for where in self._retired if where[:3] == family}
        stored = await self._store.member_keys(family, prefix=prefix, after=after, limit=limit + len(gone))
        own = [where for where, pending in self._pending.items() if pending.state is None]
        own += [key_of(record) for record in self.changes.begun_documents()]
        new = {key for *rest, key in own if tuple(rest) == family and key is not None and key.startswith(prefix)}
        found = new.union(stored) - (gone - new)
        return sorted(key for key in found if after is None or key > after)[:limit]

    async def retire(self, kind: DocumentKind[Any], scope_id: int | None = None, *, key: str | None = None) -> bool:
        """End the document's life; a later `doc` begins a new one. False if there was none."""
        self.check_open()
        where = self._store.key_of(kind, scope_id, key)
        pending = self._pending.pop(where, None)
        if pending is not None:
            pending.close_draft()
        begun = self.changes.forget_document(where)
        if begun is not None or where in self._retired:
            return pending is not None or begun is not None
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
            where = key_of(record)
            state = await self._store.document(where)
            if state is not None:
                self._retired[where] = state

    async def _touch(
        self, kind: DocumentKind[Any], scope_id: int | None, key: str | None, seed: Any = None
    ) -> Pending | None:
        if not self._open:
            self.check_open()
        where = self._store.key_of(kind, scope_id, key)
        pending = self._pending.get(where)
        if pending is not None:
            return pending
        begun = await self._begun(where) if self.changes.begins_documents else None
        state = None if where in self._retired or begun is not None else await self._store.document(where)
        if begun is not None:  # a fork of this very transaction: what it begins with becomes a value of its own
            value = kind.current(*begun)
            record = self.changes.forget_document(where)
            assert record is not None
            pending = Pending(kind, record, None, value)
        elif state is not None:
            pending = Pending(kind, state.document, state, kind.current(state.value, state.version))
        else:
            if self._progress:
                raise Refused(f"document {kind.kind} does not exist, and a progress commit creates nothing")
            await self._check_scope(kind, where)
            record = new_document(self.mint(), kind, where, self.seq)
            pending = Pending(kind, record, None, kind.first_value(seed))
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
