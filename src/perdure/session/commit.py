"""From a finished block to the batch that storage gets, the publication, and the new states of documents."""

import msgspec

from perdure.base.errors import InvalidValue
from perdure.session.publication import DocumentChange, DocumentKey, Publication, TaskChange
from perdure.session.state import DocumentState
from perdure.session.store import Store
from perdure.session.transaction import Transaction
from perdure.storage.records import Batch, Document, Revision


class Commit(msgspec.Struct, frozen=True):
    """One commit, ready to be stored."""

    batch: Batch
    publication: Publication
    documents: dict[DocumentKey, DocumentState | None]


def build(tx: Transaction, store: Store, *, progress: bool) -> Commit | None:
    """Everything the block wrote as one commit; None if it wrote nothing."""
    changes = tx.changes
    if not changes and not tx.writes_documents:
        return None
    new: list[Document] = list(changes.documents)
    revisions: list[Revision] = list(changes.revisions)
    published: list[DocumentChange] = []
    states: dict[DocumentKey, DocumentState | None] = {}
    for where, state in tx.retired_documents():
        record = msgspec.structs.replace(state.document, retired=tx.seq)
        new.append(record)
        states[where] = None
        published.append(DocumentChange(where, record, state.version, None, [], retired=True))
    for sealed in tx.seal_documents():
        if sealed.created:
            new.append(sealed.change.document)
        revisions.append(sealed.revision)
        published.append(sealed.change)
        states[sealed.change.key] = sealed.state
    if not changes and not new and not revisions:
        return None
    if progress and (changes or new):
        raise InvalidValue("a progress commit holds nothing but patches to live documents")
    tasks = list(changes.tasks.values())
    batch = Batch(
        seq=tx.seq,
        next_id=tx.next_id,
        progress=progress,
        conversations=list(changes.conversations.values()),
        entries=list(changes.entries.values()),
        tasks=tasks,
        submissions=list(changes.submissions.values()),
        documents=new,
        copies=changes.copies,
        revisions=revisions,
        blobs=list(changes.blobs.values()),
    )
    live = store.working.tasks
    publication = Publication(
        store.epoch,
        tx.seq,
        batch.conversations,
        batch.entries,
        [TaskChange(live.get(write.task.id), write.task) for write in tasks],
        batch.submissions,
        published,
    )
    return Commit(batch, publication, states)
