"""What a fork begins with: its parent's history by reference, and documents by each kind's own rule."""

from typing import Any

from perdure.base import jsonvalue
from perdure.base.errors import InvalidValue, NotFound
from perdure.base.ids import ConversationId, DocumentId, EntryId, TaskId
from perdure.base.jsonvalue import Json
from perdure.session.documents import Document as DocumentKind
from perdure.session.transaction import Transaction
from perdure.storage.records import Document, DocumentCopy, Entry, Revision


async def fork(tx: Transaction, parent: ConversationId, entry_id: EntryId, *, owner: TaskId | None) -> ConversationId:
    """Create a conversation that reads `parent` up to and including the entry. Nothing is copied but documents that
    say so. Raises `NotFound` if the parent does not see the entry."""
    entry = await seen(tx, parent, entry_id)
    child = tx.put_conversation(owner=owner, parent=parent, fork_entry=entry_id)
    for source in await tx.documents_alive("conversation", parent):
        if source.fork == "current":
            await _copy_current(tx, source, child)
    # the value at the fork entry is that of the conversation the entry was written in
    fresh = entry.seq == tx.seq  # of this very transaction: its commit holds what was written so far
    for source in await tx.documents_alive("conversation", entry.conversation, at=None if fresh else entry.seq):
        if source.fork == "as_of" and fresh:
            await _copy_current(tx, source, child)
        elif source.fork == "as_of":
            _copy_stored(tx, source, entry.seq, child)
    return child


async def seen(tx: Transaction, conversation: ConversationId, entry_id: EntryId) -> Entry:
    """The entry that a conversation sees. Raises `NotFound` if there is no such conversation, or it does not see it."""
    await tx.conversation(conversation)
    entry = await tx.sees(conversation, entry_id)
    if entry is None:
        raise NotFound(
            f"conversation {conversation} has no entry {entry_id}",
            hint="a conversation sees its own entries and its ancestors' up to each fork",
        )
    return entry


async def _copy_current(tx: Transaction, source: Document, child: ConversationId) -> None:
    pending = await tx.pending_value(source)
    if pending is None:
        _copy_stored(tx, source, tx.seq, child)
    else:  # changed in this very transaction: the store does not have it yet
        _begin(tx, source, child, *pending)


def _copy_stored(tx: Transaction, source: Document, at: int, child: ConversationId) -> None:
    """The value at a commit, by the store itself unless it is small and at hand: then one row is all it takes."""
    known = tx.small_value(source, at)
    if known is None:
        tx.changes.copies.append(DocumentCopy(source.id, at, _target(tx, source, child)))
    else:
        _begin(tx, source, child, *known)


def _begin(tx: Transaction, source: Document, child: ConversationId, value: Json, version: int) -> None:
    target = _target(tx, source, child)
    tx.changes.documents.append(target)
    tx.changes.revisions.append(Revision(target.id, tx.seq, True, version, jsonvalue.encode(value)))


def _target(tx: Transaction, source: Document, child: ConversationId) -> Document:
    fields: dict[str, Any] = {
        "kind": source.kind,
        "scope": source.scope,
        "scope_id": child,
        "key": source.key,
        "rewindable": source.rewindable,
        "fork": source.fork,
        "created": tx.seq,
    }
    return Document(DocumentId(tx.mint()), **fields)


async def value_at(
    tx: Transaction, kind: DocumentKind[Any], conversation: ConversationId, entry_id: EntryId, *, key: str | None = None
) -> Json:
    """A rewindable document's value as of an entry's commit, in the conversation that wrote the entry; None if none."""
    if not kind.rewindable:
        raise InvalidValue(f"document {kind.kind} keeps no history", hint='define it with history="rewindable"')
    entry = await seen(tx, conversation, entry_id)
    if entry.seq == tx.seq:
        return await tx.value_of(kind, entry.conversation, key=key)
    found = await tx.stored_value_at(kind, entry.conversation, key, entry.seq)
    return None if found is None else kind.current(*found)
