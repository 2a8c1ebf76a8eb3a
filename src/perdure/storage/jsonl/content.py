"""Records as JSON, and back. Their contents stand in the line as the JSON that they are, so that people can read it."""

from typing import Any, Final, TypeVar

import msgspec

from perdure.base.errors import StorageCorrupt, StorageRejected
from perdure.base.ids import ConversationId, EntryId, SubmissionId, TaskId
from perdure.storage.jsonl.lines import Records
from perdure.storage.records import (
    Batch,
    Blob,
    Entry,
    LiveTask,
    Revision,
    Submission,
    SubmissionStatus,
    Task,
    TaskStatus,
)

T = TypeVar("T")

EMPTY_MESSAGES: Final = b"[]"
EMPTY_DATA: Final = b"null"


class StoredEntry(msgspec.Struct, omit_defaults=True):
    """An entry in a line."""

    id: EntryId
    conversation: ConversationId
    seq: int
    kind: str
    version: int
    task: TaskId | None = None
    head: EntryId | None = None
    edits: EntryId | None = None
    messages: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class EntryKeys(msgspec.Struct, gc=False):
    """What an entry is found by."""

    id: int
    conversation: int
    head: int | None = None


class TaskKeys(msgspec.Struct, gc=False):
    """What a task is found by, and whether its input stands beside it."""

    id: TaskId
    conversation: ConversationId
    kind: str
    status: TaskStatus
    owner: TaskId | None = None
    background: bool = False
    abort_requested: bool = False
    on: tuple[TaskId, ...] = ()
    deadline: int | None = None
    asks_again: bool = False
    input: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class SubmissionKeys(msgspec.Struct, gc=False):
    """What a submission is found by."""

    id: int
    conversation: int
    status: SubmissionStatus
    request_id: str | None = None


class RevisionKeys(msgspec.Struct, gc=False):
    """What a revision is found by."""

    document: int
    seq: int
    base: bool


class StoredTask(msgspec.Struct, omit_defaults=True):
    """A task in a line. Without `input`, the newest one that an earlier line gives is meant."""

    id: TaskId
    conversation: ConversationId
    kind: str
    version: int
    status: TaskStatus
    owner: TaskId | None = None
    background: bool = False
    abort_requested: bool = False
    on: tuple[TaskId, ...] = ()
    deadline: int | None = None
    asks_again: bool = False
    started_at: int | None = None
    ended_at: int | None = None
    state: msgspec.Raw = msgspec.Raw(b"null")
    memos: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    input: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class StoredSubmission(msgspec.Struct, omit_defaults=True):
    """A submission in a line; `digest` is hexadecimal."""

    id: SubmissionId
    conversation: ConversationId
    status: SubmissionStatus
    kind: str
    digest: str
    request_id: str | None = None
    when_busy: str = "follow_up"
    notify_task: TaskId | None = None
    notify_key: str | None = None
    entry: EntryId | None = None
    answer: EntryId | None = None
    reason: str | None = None
    detail: str | None = None
    content: msgspec.Raw = msgspec.Raw(b"null")


class StoredRevision(msgspec.Struct):
    """A revision in a line."""

    document: int
    seq: int
    base: bool
    version: int
    body: msgspec.Raw


class StoredBlob(msgspec.Struct):
    """What a line says of a blob; its bytes are a file of their own."""

    digest: str
    media_type: str
    size: int
    crc: int


_encode: Final = msgspec.json.Encoder().encode
_raw: Final = msgspec.json.Decoder(msgspec.Raw).decode


def decoded(content: bytes | msgspec.Raw, kind: type[T]) -> T:
    """A record as it was written."""
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StorageCorrupt(f"a record that is damaged: {error}") from error


def encode_batch(batch: Batch) -> Records:
    """The records of a batch by section, without its blobs.

    Raises `StorageRejected` for what is no JSON on one line, or no text.
    """
    try:
        return {
            "conversations": [_encode(one) for one in batch.conversations],
            "entries": [_encode(_entry(one)) for one in batch.entries],
            "tasks": [_encode(stored_task(write.task, write.created or write.input_changed)) for write in batch.tasks],
            "submissions": [_encode(_submission(one)) for one in batch.submissions],
            "documents": [_encode(one) for one in batch.documents],
            "copies": [_encode(one) for one in batch.copies],
            "revisions": [
                _encode(StoredRevision(one.document, one.seq, one.base, one.version, raw(one.body)))
                for one in batch.revisions
            ],
        }
    except (UnicodeError, TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise StorageRejected(f"the commit cannot be a line: {type(error).__name__}: {error}") from error


def encode(record: Any) -> bytes:
    """A record as JSON."""
    return _encode(record)


def raw(content: bytes) -> msgspec.Raw:
    """JSON that stands in a line as it is."""
    if b"\n" in content or memoryview(_raw(content)).nbytes != len(content):
        raise ValueError("content that is no JSON on one line, without spaces around it")
    return msgspec.Raw(content)


def stored_task(task: Task, with_input: bool) -> StoredTask:
    """A task for a line."""
    return StoredTask(
        task.id,
        task.conversation,
        task.kind,
        task.version,
        task.status,
        task.owner,
        task.background,
        task.abort_requested,
        task.on,
        task.deadline,
        task.asks_again,
        task.started_at,
        task.ended_at,
        raw(task.state),
        msgspec.UNSET if task.memos is None else raw(task.memos),
        raw(task.input) if with_input else msgspec.UNSET,
    )


def task(stored: StoredTask, input: bytes) -> Task:
    return Task(
        stored.id,
        stored.conversation,
        stored.kind,
        stored.version,
        stored.status,
        input,
        bytes(stored.state),
        None if isinstance(stored.memos, msgspec.UnsetType) else bytes(stored.memos),
        stored.owner,
        stored.background,
        stored.abort_requested,
        stored.on,
        stored.deadline,
        stored.asks_again,
        stored.started_at,
        stored.ended_at,
    )


def live_task(stored: TaskKeys) -> LiveTask:
    return LiveTask(
        stored.id,
        stored.conversation,
        stored.kind,
        stored.status,
        stored.owner,
        stored.background,
        stored.abort_requested,
        stored.on,
        stored.deadline,
        stored.asks_again,
    )


def entry(content: bytes) -> Entry:
    found = decoded(content, StoredEntry)
    return Entry(
        found.id,
        found.conversation,
        found.seq,
        found.kind,
        found.version,
        EMPTY_MESSAGES if isinstance(found.messages, msgspec.UnsetType) else bytes(found.messages),
        EMPTY_DATA if isinstance(found.data, msgspec.UnsetType) else bytes(found.data),
        found.task,
        found.head,
        found.edits,
    )


def submission(content: bytes) -> Submission:
    found = decoded(content, StoredSubmission)
    return Submission(
        found.id,
        found.conversation,
        found.status,
        "write" if found.kind == "write" else "input",
        bytes(found.content),
        bytes.fromhex(found.digest),
        found.request_id,
        found.when_busy,
        found.notify_task,
        found.notify_key,
        found.entry,
        found.answer,
        found.reason,
        found.detail,
    )


def revision(content: bytes, document: int) -> Revision:
    """A revision as a row of that document: a copied document's rows stand where its source wrote them."""
    found = decoded(content, StoredRevision)
    return Revision(document, found.seq, found.base, found.version, bytes(found.body))  # type: ignore[arg-type]


def blob(stored: StoredBlob, content: bytes) -> Blob:
    return Blob(stored.digest, stored.media_type, content)


def _entry(entry: Entry) -> StoredEntry:
    return StoredEntry(
        entry.id,
        entry.conversation,
        entry.seq,
        entry.kind,
        entry.version,
        entry.task,
        entry.head,
        entry.edits,
        msgspec.UNSET if entry.messages == EMPTY_MESSAGES else raw(entry.messages),
        msgspec.UNSET if entry.data == EMPTY_DATA else raw(entry.data),
    )


def _submission(one: Submission) -> StoredSubmission:
    return StoredSubmission(
        one.id,
        one.conversation,
        one.status,
        one.kind,
        one.digest.hex(),
        one.request_id,
        one.when_busy,
        one.notify_task,
        one.notify_key,
        one.entry,
        one.answer,
        one.reason,
        one.detail,
        raw(one.content),
    )
