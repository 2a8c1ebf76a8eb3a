"""The tables of the memory store, and how a batch changes them or leaves them as they were."""

import copy
from collections.abc import Iterator
from typing import Any, Final, TypeVar

import msgspec

from perdure.base.errors import StorageRejected
from perdure.storage.checks import check_follows
from perdure.storage.records import (
    Batch,
    Blob,
    Conversation,
    Document,
    DocumentCopy,
    Entry,
    Revision,
    Submission,
    Task,
    TaskWrite,
)

K = TypeVar("K")
V = TypeVar("V")

NEVER: Final = 2**63 - 1
"""Later than every id, seq and time."""


class Contents:
    """Everything that is stored. Records are immutable, so a copy of the tables is a copy of the store."""

    def __init__(self) -> None:
        self.next_id = 1
        self.seq = 0
        self.epoch = 0
        self.conversations: dict[int, Conversation] = {}
        self.entries: dict[int, Entry] = {}
        self.tasks: dict[int, Task] = {}
        self.submissions: dict[int, Submission] = {}
        self.requests: dict[tuple[int, str], int] = {}
        self.documents: dict[int, Document] = {}
        self.revisions: dict[int, tuple[Revision, ...]] = {}
        self.blobs: dict[str, Blob] = {}

    def copy(self) -> "Contents":
        """A copy that no later commit changes."""
        other = Contents()
        for name, value in vars(self).items():
            setattr(other, name, copy.copy(value))
        return other


class Changes:
    """The tables while one batch is applied: every write notes what stood there, so that all can be taken back."""

    def __init__(self, stored: Contents) -> None:
        self.stored = stored
        self._undo: list[tuple[dict[Any, Any], Any, Any]] = []

    def put(self, table: dict[K, V], key: K, value: V) -> None:
        """Write one row."""
        self._undo.append((table, key, table.get(key)))
        table[key] = value

    def insert(self, table: dict[K, V], key: K, value: V, what: str) -> None:
        """Write one row that must be new."""
        if key in table:
            raise StorageRejected(f"{what} {key} exists already")
        self.put(table, key, value)

    def remove(self, table: dict[K, V], key: K) -> None:
        """Remove one row."""
        self._undo.append((table, key, table.pop(key)))

    def rows(self) -> Iterator[tuple[str, Any, Any, Any]]:
        """What the batch changed: table, key, the row before and the row now; None where there is or was none.

        For a store that keeps its tables in memory and writes what changes to some other place.
        """
        names = {id(table): name for name, table in vars(self.stored).items()}
        seen: set[tuple[str, Any]] = set()
        for table, key, before in self._undo:
            name = names[id(table)]
            if (name, key) not in seen:
                seen.add((name, key))
                yield name, key, before, table.get(key)

    def take_back(self) -> None:
        """As if the batch had never been."""
        for table, key, before in reversed(self._undo):
            if before is None:
                table.pop(key, None)
            else:
                table[key] = before


def apply(changes: Changes, batch: Batch) -> None:
    """Write a batch; the caller takes the changes back if this raises."""
    stored = changes.stored
    check_follows(batch, stored.seq, stored.next_id)
    for conversation in batch.conversations:
        changes.insert(stored.conversations, conversation.id, conversation, "conversation")
    for entry in batch.entries:
        changes.insert(stored.entries, entry.id, entry, "entry")
    for write in batch.tasks:
        _write_task(changes, write)
    for submission in batch.submissions:
        _write_submission(changes, submission)
    for document in batch.documents:
        if document.retired is None:
            changes.insert(stored.documents, document.id, document, "document")
        else:
            changes.put(stored.documents, document.id, document)
    for each in batch.copies:
        _copy_document(changes, each)
    for revision in batch.revisions:
        _write_revision(changes, revision)
    for blob in batch.blobs:
        if blob.digest not in stored.blobs:
            changes.put(stored.blobs, blob.digest, blob)


def reach(history: tuple[Revision, ...], at: int) -> tuple[Revision, ...]:
    """The newest base at or before a commit, and its deltas up to it; empty if there is none."""
    past = [revision for revision in history if revision.seq <= at]
    bases = [index for index, revision in enumerate(past) if revision.base]
    return tuple(past[bases[-1] :]) if bases else ()


def _write_task(changes: Changes, write: TaskWrite) -> None:
    task, tasks = write.task, changes.stored.tasks
    if write.created:
        changes.insert(tasks, task.id, task, "task")
        return
    old = tasks.get(task.id)
    if old is None:
        raise StorageRejected(f"task {task.id} does not exist")
    changes.put(tasks, task.id, task if write.input_changed else msgspec.structs.replace(task, input=old.input))


def _write_submission(changes: Changes, submission: Submission) -> None:
    stored = changes.stored
    old = stored.submissions.get(submission.id)
    if old is not None and old.request_id is not None:
        changes.remove(stored.requests, (old.conversation, old.request_id))
    if submission.request_id is not None:
        request = (submission.conversation, submission.request_id)
        changes.insert(stored.requests, request, submission.id, "a submission with request id")
    changes.put(stored.submissions, submission.id, submission)


def _copy_document(changes: Changes, each: DocumentCopy) -> None:
    """The target begins with the source's rows as they are: the base and its deltas up to the point, seqs kept."""
    stored = changes.stored
    history = reach(stored.revisions.get(each.source, ()), each.at)
    if not history:
        raise StorageRejected(f"document {each.source} has no value at commit {each.at}")
    changes.insert(stored.documents, each.target.id, each.target, "document")
    rows = tuple(msgspec.structs.replace(revision, document=each.target.id) for revision in history)
    changes.put(stored.revisions, each.target.id, rows)


def _write_revision(changes: Changes, revision: Revision) -> None:
    stored = changes.stored
    document = stored.documents.get(revision.document)
    history = stored.revisions.get(revision.document, ())
    if document is None:
        raise StorageRejected(f"document {revision.document} does not exist")
    if history and history[-1].seq >= revision.seq:
        raise StorageRejected(f"document {revision.document} has a revision of commit {revision.seq} already")
    if not revision.base and not history:
        raise StorageRejected(f"document {revision.document} begins with a delta")
    keep = () if revision.base and not document.rewindable else history
    changes.put(stored.revisions, revision.document, (*keep, revision))
