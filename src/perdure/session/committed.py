"""Reading outside transactions: what is committed and flushed, and nothing while the session cannot be trusted."""

import asyncio
from typing import Any, TypeVar

from perdure.base.errors import Error, SessionClosed, SessionPoisoned
from perdure.base.frozen import debugging, frozen
from perdure.base.ids import ConversationId
from perdure.base.jsonvalue import Json
from perdure.session.documents import Document
from perdure.session.publication import DocumentKey
from perdure.session.state import DocumentState
from perdure.session.store import Store
from perdure.storage.protocol import Storage
from perdure.storage.records import Conversation

T = TypeVar("T")


class CommittedReads:
    """What a session tells of its committed state."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.store = Store(storage, self._wait_flushed)
        self.flushed = 0
        self._last_flush: asyncio.Future[int] | None = None
        self._failed: Error | None = None
        self._closed = False
        self._freeze = debugging()

    @property
    def usable(self) -> bool:
        """Whether it is neither closed nor poisoned."""
        return self._failed is None and not self._closed

    def check_usable(self) -> None:
        """Raise if the session is closed or poisoned."""
        if self._failed is not None:
            raise self._poisoned()
        if self._closed:
            raise SessionClosed("the session was closed")

    def at_hand(self, key: DocumentKey) -> DocumentState | None:
        """A document's committed state if it is in memory and stored; None says nothing: ask `value_of`."""
        state = self.store.working.documents.get(key)
        return state if state is not None and state.seq <= self.flushed and self.usable else None

    async def conversation(self, id: ConversationId) -> Conversation | None:
        """A conversation's record, or None."""
        self.check_usable()
        found = await self.store.conversation(id)
        await self._wait_flushed()
        return found

    async def snapshot(self, kind: Document[T], scope_id: int | None = None, *, key: str | None = None) -> T | None:
        """A document's committed value in its declared type, or None where there is none. Not for changing."""
        value = await self.value_of(kind, scope_id, key=key)
        return None if value is None else kind.codec.from_json(value)

    async def value_of(self, kind: Document[Any], scope_id: int | None = None, *, key: str | None = None) -> Json:
        """A document's committed value as shared JSON, or None where there is none."""
        if self._failed is not None or self._closed:
            self.check_usable()
        where = self.store.key_of(kind, scope_id, key)
        known = self.store.working.documents
        state = known[where] if where in known else await self.store.document(where)
        if self._last_flush is not None:
            await self._wait_flushed()
        return None if state is None else self._shared(kind.current(state.value, state.version))

    def _shared(self, value: Json) -> Json:
        return frozen(value) if self._freeze else value

    async def document_keys(
        self,
        kind: Document[Any],
        scope_id: int | None = None,
        *,
        prefix: str = "",
        after: str | None = None,
        limit: int = 100,
    ) -> list[str]:
        """The committed keys of a family, those that begin with `prefix`, in code point order; at most `limit`, and
        the next page is the one `after` the last key."""
        self.check_usable()
        family = self.store.family_of(kind, scope_id)
        return await self.store.member_keys(family, prefix=prefix, after=after, limit=limit)

    def _poisoned(self) -> SessionPoisoned:
        cause = self._failed
        certain = cause.certain if cause is not None else "unknown"
        poisoned = SessionPoisoned(
            f"a commit failed and nothing more can be stored: {cause}",
            hint="mend the cause, then open the session anew: it goes on from what is stored",
            certain=certain,
        )
        poisoned.__cause__ = cause
        return poisoned

    async def _wait_flushed(self) -> None:
        """Return once everything committed so far is stored; raises if it never will be."""
        flush = self._last_flush
        if flush is None or flush.cancelled():
            return
        try:
            if not flush.done():
                await asyncio.shield(flush)
            else:
                flush.result()
        except Error as error:
            self._poison(error)  # whoever looks in this very round of the loop finds it lost, too
            raise self._poisoned() from error

    def _poison(self, error: BaseException) -> None:
        """A commit failed: nothing more can be stored."""
        raise NotImplementedError
