"""A batch as statements. Runs inside an open SQL transaction; whoever calls commits it or rolls it back."""

from collections.abc import Iterator
from typing import Final

import apsw

from perdure.base.errors import StorageRejected
from perdure.storage.checks import check_follows
from perdure.storage.records import Batch, Document, DocumentCopy, Entry, Revision, Submission, Task, TaskWrite
from perdure.storage.sqlite.rows import (
    EMPTY_DATA,
    EMPTY_MESSAGES,
    FORK_NUMBER,
    SCOPE_NUMBER,
    SUBMISSION_KIND_NUMBER,
    SUBMISSION_STATUS_NUMBER,
    TASK_STATUS_NUMBER,
    Names,
    Row,
)
from perdure.storage.sqlite.statements import READS, WRITES

INLINE_BYTES: Final = 1024
"""Inputs and contents above this lie in a table of their own: an update of the record then doesn't write them again."""
KNOWN_DOCUMENTS: Final = 4096
"""Documents of which the writer remembers whether they are rewindable; beyond it, it asks again."""

TERMINAL: Final = TASK_STATUS_NUMBER["terminal"]
SETTLED: Final = SUBMISSION_STATUS_NUMBER["done"]

INSERT_ENTRY: Final = WRITES["entry"]
STEP_TASK: Final = WRITES["task_step"]
END_TASK: Final = WRITES["task_end"]
REPLACE_REVISION: Final = WRITES["only_revision"]
MOVE_HEAD: Final = WRITES["head"]


class BatchWriter:
    """Writes batches through one connection and knows where the store stands."""

    def __init__(self, connection: apsw.Connection, seq: int, next_id: int) -> None:
        self.connection = connection
        self.seq = seq
        self.next_id = next_id
        self._execute = connection.cursor().execute
        self._changes = connection.changes
        self._names = Names(connection)
        self._told = False
        """The newest batch's own records tell its seq and the next free id."""
        self._rewindable: dict[int, bool] = {}
        """Documents that have a base, and whether they keep their history."""
        self._alone: dict[int, int] = {}
        """Documents of which nothing is stored but one base, and its seq: the next base takes its row."""

    def write(self, batch: Batch) -> None:
        """Everything of the batch but the head, which `move_head` writes once for a whole transaction."""
        check_follows(batch, self.seq, self.next_id)
        for conversation in batch.conversations:
            self._execute(
                WRITES["conversation"],
                (conversation.id, conversation.seq, conversation.parent, conversation.fork_entry, conversation.owner),
            )
        for entry in batch.entries:
            self._entry(entry)
        for write in batch.tasks:
            self._task(write)
        for submission in batch.submissions:
            self._submission(submission)
        for document in batch.documents:
            self._document(document)
        for each in batch.copies:
            self._copy(each)
        for revision in batch.revisions:
            self._revision(revision)
        for blob in batch.blobs:
            self._execute(WRITES["blob"], (blob.digest, blob.media_type, blob.content))
        self._told = bool(batch.entries) and _tells(batch, self.next_id)
        self.seq = batch.seq
        self.next_id = batch.next_id

    def move_head(self) -> None:
        """Write where the store stands now, unless the newest records tell it."""
        if not self._told:
            self._execute(MOVE_HEAD, (self.seq, self.next_id))

    def take_back(self, seq: int, next_id: int) -> None:
        """The transaction was rolled back: forget what was learned in it."""
        self.seq, self.next_id = seq, next_id
        self._names.forget()
        self._rewindable.clear()
        self._alone.clear()

    def _name(self, text: str) -> int:
        number = self._names.number(text)
        if number is None:
            self._execute(WRITES["name"], (text,))
            number = self.connection.last_insert_rowid()
            self._names.remember(text, number)
        return number

    def _entry(self, entry: Entry) -> None:
        self._execute(
            INSERT_ENTRY,
            (
                entry.id,
                entry.conversation,
                entry.seq,
                self._name(entry.kind),
                entry.version,
                entry.task,
                entry.head,
                entry.edits,
                None if entry.messages == EMPTY_MESSAGES else entry.messages,
                None if entry.data == EMPTY_DATA else entry.data,
            ),
        )

    def _task(self, write: TaskWrite) -> None:
        task = write.task
        if write.created:
            self._create_task(task)
            return
        status = TASK_STATUS_NUMBER[task.status]
        if not self._update_task(task, status):
            self._rewrite_task(task, status)
        if write.input_changed:
            self._execute(WRITES["task_input"], (task.id, self._inline(task.id, task.input, replaces=True)))

    def _update_task(self, task: Task, status: int) -> bool:
        """The two updates that nearly all are; False: it is another one."""
        ended = status == TERMINAL
        if task.deadline is not None or (task.ended_at is not None) != ended:
            return False
        values = (
            task.version,
            status,
            task.abort_requested,
            task.asks_again,
            task.started_at,
            _joined(task),
            task.state,
            task.memos,
            task.id,
            task.conversation,
            self._name(task.kind),
            task.background,
            task.owner,
        )
        if ended:
            self._execute(END_TASK, (*values, task.ended_at))
        else:
            self._execute(STEP_TASK, values)
        return bool(self._changes() == 1)

    def _create_task(self, task: Task) -> None:
        status = TASK_STATUS_NUMBER[task.status]
        self._execute(
            WRITES["task"],
            (
                task.id,
                task.conversation,
                self._name(task.kind),
                task.version,
                status,
                status == TERMINAL,
                task.background,
                task.abort_requested,
                task.asks_again,
                task.owner,
                task.deadline,
                task.started_at,
                task.ended_at,
                _joined(task),
                self._inline(task.id, task.input),
                task.state,
                task.memos,
            ),
        )

    def _rewrite_task(self, task: Task, status: int) -> None:
        """Any other update: to or from a sleep with a deadline, or of what hardly ever changes."""
        self._execute(
            WRITES["task_whole"],
            (
                task.id,
                task.conversation,
                self._name(task.kind),
                task.version,
                status,
                status == TERMINAL,
                task.background,
                task.abort_requested,
                task.asks_again,
                task.owner,
                task.deadline,
                task.started_at,
                task.ended_at,
                _joined(task),
                task.state,
                task.memos,
            ),
        )
        if self._changes() != 1:
            raise StorageRejected(f"task {task.id} does not exist")

    def _submission(self, submission: Submission) -> None:
        status = SUBMISSION_STATUS_NUMBER[submission.status]
        new = submission.id >= self.next_id
        if not new and self._update_submission(submission, status):
            return
        values = (
            submission.id,
            submission.conversation,
            status,
            status >= SETTLED,
            SUBMISSION_KIND_NUMBER[submission.kind],
            self._name(submission.when_busy),
            submission.notify_task,
            submission.entry,
            submission.answer,
            submission.request_id,
            submission.notify_key,
            submission.reason,
            submission.detail,
            submission.digest,
            self._inline(submission.id, submission.content, replaces=not new),
        )
        if not new:
            self._execute(WRITES["submission_whole"], values)
            if self._changes() == 1:
                return
        self._execute(WRITES["submission"], values)

    def _update_submission(self, submission: Submission, status: int) -> bool:
        """Placing and settling; False: it is another update."""
        if len(submission.content) > INLINE_BYTES:
            return False
        self._execute(
            WRITES["submission_end" if status >= SETTLED else "submission_step"],
            (
                submission.id,
                submission.conversation,
                status,
                submission.entry,
                submission.answer,
                submission.reason,
                submission.detail,
                submission.digest,
                submission.request_id,
                submission.notify_task,
                submission.notify_key,
                self._name(submission.when_busy),
                SUBMISSION_KIND_NUMBER[submission.kind],
                submission.content,
            ),
        )
        return bool(self._changes() == 1)

    def _inline(self, id: int, content: bytes, replaces: bool = False) -> bytes | None:
        """The content if it is small; else None, and it lies in a row of its own."""
        if len(content) <= INLINE_BYTES:
            if replaces:
                self._execute(WRITES["no_body"], (id,))
            return content
        self._execute(WRITES["body"], (id, content))
        return None

    def _document(self, document: Document) -> None:
        values = (
            document.id,
            self._name(document.kind),
            SCOPE_NUMBER[document.scope],
            document.scope_id,
            document.rewindable,
            FORK_NUMBER[document.fork],
            document.created,
            document.retired,
            document.key,
        )
        if document.retired is not None:
            self._rewindable.pop(document.id, None)
            self._alone.pop(document.id, None)
            self._execute(WRITES["document_whole"], values)
            if self._changes() == 1:
                return
        self._execute(WRITES["document"], values)

    def _copy(self, each: DocumentCopy) -> None:
        self._document(each.target)
        self._execute(WRITES["document_copy"], (each.source, each.at, each.target.id))
        if self._changes() == 0:
            raise StorageRejected(f"document {each.source} has no value at commit {each.at}")

    def _revision(self, revision: Revision) -> None:
        document = revision.document
        values = (document, revision.seq, revision.base, revision.version, revision.body)
        alone = self._alone.pop(document, None)
        if alone is not None and revision.base:
            self._execute(REPLACE_REVISION, (*values, alone))
            self._alone[document] = revision.seq
            return
        rewindable = self._rewindable.get(document)
        if rewindable is None:
            rewindable = self._learn(revision)
        elif revision.base and not rewindable:
            self._execute(WRITES["forget_revisions"], (document, revision.seq))
        self._execute(WRITES["revision"], values)
        if revision.base and not rewindable:
            self._alone[document] = revision.seq

    def _learn(self, revision: Revision) -> bool:
        """The first revision of a document that this writer meets since it was opened."""
        row: Row | None = self._execute(READS["document_state"], (revision.document,)).fetchone()
        if row is None:
            raise StorageRejected(f"document {revision.document} does not exist")
        rewindable, begun = bool(row[0]), bool(row[1])
        if not begun and not revision.base:
            raise StorageRejected(f"document {revision.document} begins with a delta")
        if begun and revision.base and not rewindable:
            self._execute(WRITES["forget_revisions"], (revision.document, revision.seq))
        if len(self._rewindable) >= KNOWN_DOCUMENTS:
            self._rewindable.clear()
            self._alone.clear()
        self._rewindable[revision.document] = rewindable
        return rewindable


def _joined(task: Task) -> str | None:
    return f",{','.join(map(str, task.on))}," if task.on else None


def _tells(batch: Batch, first_new: int) -> bool:
    """Whether the store's newest entry will have the batch's seq, and its largest id be the one before the next."""
    newest = batch.entries[-1]
    last = batch.next_id - 1
    if newest.seq != batch.seq or newest.id < first_new:
        return False
    if len(batch.entries) > 1 and any(entry.id > newest.id for entry in batch.entries):
        return False
    return newest.id == last or last in _ids(batch)


def _ids(batch: Batch) -> Iterator[int]:
    """The ids of all records but entries."""
    for write in batch.tasks:
        yield write.task.id
    for each in batch.copies:
        yield each.target.id
    for records in (batch.conversations, batch.submissions, batch.documents):
        for record in records:
            yield record.id


def weight(batch: Batch) -> int:
    """About how many bytes a batch writes."""
    total = 0
    for entry in batch.entries:
        total += 100 + len(entry.messages) + len(entry.data)
    for write in batch.tasks:
        task = write.task
        total += 100 + len(task.state) + len(task.input)
    for submission in batch.submissions:
        total += len(submission.content)
    for revision in batch.revisions:
        total += len(revision.body)
    for blob in batch.blobs:
        total += len(blob.content)
    return total
