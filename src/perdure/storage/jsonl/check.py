"""Whether a batch fits what is stored. Looks and changes nothing: a line that is in the file is right."""

import re
from collections.abc import Container, Sequence
from typing import Final

from perdure.base.errors import StorageRejected
from perdure.storage.checks import check_follows
from perdure.storage.jsonl.documents import Step, reach
from perdure.storage.jsonl.index import Index
from perdure.storage.records import Batch, Document, DocumentCopy, Revision, Submission

DIGEST: Final = r"[0-9a-f]{2,128}"
"""A digest becomes a file name: nothing else may."""


def check(index: Index, batch: Batch) -> None:
    """Raise `StorageRejected` if the batch cannot be stored whole."""
    check_follows(batch, index.seq, index.next_id)
    _all_new("conversation", [one.id for one in batch.conversations], index.conversations)
    _all_new("entry", [one.id for one in batch.entries], index.entries)
    created = [write.task.id for write in batch.tasks if write.created]
    _all_new("task", created, index.tasks.places)
    _check_tasks(index, batch)
    if batch.submissions:
        _check_requests(index, batch.submissions)
    if batch.documents or batch.copies or batch.revisions:
        _check_documents(index, batch)
    for blob in batch.blobs:
        if re.fullmatch(DIGEST, blob.digest) is None:
            raise StorageRejected(f"a blob's digest is hexadecimal, not {blob.digest!r}")


def _all_new(what: str, ids: Sequence[int], stored: Container[int]) -> None:
    seen: set[int] = set()
    for id in ids:
        if id in seen or id in stored:
            raise StorageRejected(f"{what} {id} exists already")
        seen.add(id)


def _check_tasks(index: Index, batch: Batch) -> None:
    """An update stands behind the creation, in this batch or an older one."""
    begun: set[int] = set()
    for write in batch.tasks:
        if write.created:
            begun.add(write.task.id)
        elif write.task.id not in begun and write.task.id not in index.tasks.places:
            raise StorageRejected(f"task {write.task.id} does not exist")


def _check_requests(index: Index, submissions: list[Submission]) -> None:
    """A request id is used once in a conversation; a submission may take another."""
    requests: dict[tuple[int, str], int | None] = {}
    now: dict[int, tuple[int, str | None]] = {}
    for one in submissions:
        if one.id in now:
            conversation, request = now[one.id]
        else:
            known = index.submissions.known(one.id)
            conversation, request = (0, None) if known is None else known[:2]
        if request is not None:
            requests[conversation, request] = None
        if one.request_id is not None:
            key = (one.conversation, one.request_id)
            holder = requests[key] if key in requests else index.submissions.requests.get(key)
            if holder is not None:
                raise StorageRejected(f"a submission with request id {key} exists already")
            requests[key] = one.id
        now[one.id] = (one.conversation, one.request_id)


class _Drafted:
    """The documents as the batch would leave them."""

    def __init__(self, index: Index) -> None:
        self._index = index.documents
        self._new: dict[int, Document] = {}
        self._steps: dict[int, list[Step]] = {}

    def document(self, id: int) -> Document | None:
        return self._new.get(id) or self._index.all.get(id)

    def history(self, id: int) -> list[Step]:
        found = self._steps.get(id)
        return self._index.history.get(id, []) if found is None else found

    def begin(self, document: Document) -> None:
        if document.retired is None and self.document(document.id) is not None:
            raise StorageRejected(f"document {document.id} exists already")
        self._new[document.id] = document

    def copy(self, each: DocumentCopy) -> None:
        rows = reach(self.history(each.source), each.at)
        if not rows:
            raise StorageRejected(f"document {each.source} has no value at commit {each.at}")
        if self.document(each.target.id) is not None:
            raise StorageRejected(f"document {each.target.id} exists already")
        self._new[each.target.id] = each.target
        self._steps[each.target.id] = rows

    def go_on(self, revision: Revision) -> None:
        id = revision.document
        history = self.history(id)
        if self.document(id) is None:
            raise StorageRejected(f"document {id} does not exist")
        if history and history[-1].seq >= revision.seq:
            raise StorageRejected(f"document {id} has a revision of commit {revision.seq} already")
        if not revision.base and not history:
            raise StorageRejected(f"document {id} begins with a delta")
        self._steps[id] = [*history[-1:], Step(revision.seq, revision.base, 0, 0)]


def _check_documents(index: Index, batch: Batch) -> None:
    drafted = _Drafted(index)
    for document in batch.documents:
        drafted.begin(document)
    for each in batch.copies:
        drafted.copy(each)
    for revision in batch.revisions:
        drafted.go_on(revision)
