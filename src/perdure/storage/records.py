"""The records of a session and the batch that one commit writes.

Content is opaque to storage: fields typed `bytes` hold UTF-8 JSON that the session has checked and encoded, once.
They are immutable, so no value is ever shared between a caller and a store. What storage must find by, stands in a
field of its own. Times are whole milliseconds since the epoch.
"""

from typing import Literal

import msgspec

from perdure.base.ids import ConversationId, DocumentId, EntryId, SubmissionId, TaskId

TaskStatus = Literal["pending", "running", "waiting", "sleeping", "completing", "terminal"]
SubmissionStatus = Literal["queued", "placed", "done", "unanswered"]
Scope = Literal["session", "conversation", "task"]


class Record(msgspec.Struct, frozen=True, gc=False):
    """What all records share: immutable, compared by value."""


class Conversation(Record, frozen=True, gc=False):
    """A conversation. `parent` and `fork_entry` are both set or both None: it reads its parent up to that entry."""

    id: ConversationId
    seq: int
    parent: ConversationId | None = None
    fork_entry: EntryId | None = None
    owner: TaskId | None = None


class Entry(Record, frozen=True, gc=False):
    """One entry of a transcript; never changes. `messages` is a JSON array of model messages, `data` any JSON."""

    id: EntryId
    conversation: ConversationId
    seq: int
    kind: str
    version: int
    messages: bytes = b"[]"
    data: bytes = b"null"
    task: TaskId | None = None
    """The task that wrote it."""
    head: EntryId | None = None
    """The active range begins here (an older entry, or this one)."""
    edits: EntryId | None = None
    """For the model, this entry's messages stand where that one's stood; no messages: it is left out."""


class Task(Record, frozen=True, gc=False):
    """A task, replaced whole by every write. `input`, `state` and `memos` are JSON."""

    id: TaskId
    conversation: ConversationId
    kind: str
    version: int
    status: TaskStatus
    input: bytes
    state: bytes
    """Phase and its arguments, wake, what it parks on; or the outcome."""
    memos: bytes | None = None
    owner: TaskId | None = None
    background: bool = False
    abort_requested: bool = False
    on: tuple[TaskId, ...] = ()
    """The tasks it waits for; empty unless `waiting`."""
    deadline: int | None = None
    """When a sleeping task wakes at the latest; None unless `sleeping`."""
    asks_again: bool = False
    """It sleeps at a gate: the first scheduling after an open, and every change of the code, make it ask again."""
    started_at: int | None = None
    ended_at: int | None = None


class LiveTask(Record, frozen=True, gc=False):
    """What an open reads of a task that has not ended: enough to schedule, nothing else."""

    id: TaskId
    conversation: ConversationId
    kind: str
    status: TaskStatus
    owner: TaskId | None
    background: bool
    abort_requested: bool
    on: tuple[TaskId, ...]
    deadline: int | None
    asks_again: bool


class Submission(Record, frozen=True, gc=False):
    """Something handed to a conversation, replaced whole by every write. `content` is JSON, `digest` of it."""

    id: SubmissionId
    conversation: ConversationId
    status: SubmissionStatus
    kind: Literal["input", "write"]
    content: bytes
    digest: bytes
    request_id: str | None = None
    when_busy: str = "follow_up"
    notify_task: TaskId | None = None
    notify_key: str | None = None
    entry: EntryId | None = None
    """Where it was placed."""
    answer: EntryId | None = None
    reason: str | None = None
    detail: str | None = None


class Document(Record, frozen=True, gc=False):
    """One incarnation of a document: alive from `created` until `retired` (commit sequence numbers)."""

    id: DocumentId
    kind: str
    scope: Scope
    scope_id: int
    key: str | None
    """The member's key in a family; None for a document that stands alone."""
    rewindable: bool
    fork: Literal["as_of", "current", "initial"]
    created: int
    retired: int | None = None


class Revision(Record, frozen=True, gc=False):
    """One step of a document: a base (`body` is the whole value) or a delta (`body` is a list of operations)."""

    document: DocumentId
    seq: int
    base: bool
    version: int
    body: bytes


class StoredDocument(Record, frozen=True, gc=False):
    """A document as read: the newest base at or before the point asked for, then its deltas in order."""

    document: Document
    base: Revision
    deltas: tuple[Revision, ...] = ()


class DocumentCopy(Record, frozen=True, gc=False):
    """Begin `target` with the value and version that `source` had at commit `at`. Made by the store itself."""

    source: DocumentId
    at: int
    target: Document


class Blob(Record, frozen=True, gc=False):
    """Bytes that records refer to by digest (sha256, hexadecimal)."""

    digest: str
    media_type: str
    content: bytes


class TaskWrite(Record, frozen=True, gc=False):
    """A task to write. `created`: it is new. `input_changed` False lets a store leave the stored input alone."""

    task: Task
    created: bool
    input_changed: bool = False


class Batch(msgspec.Struct, gc=False):
    """Everything one commit writes, in dependency order. Either all of it is stored or none.

    `seq` is the store's last seq plus one; `next_id` is the first id that is still free afterwards. A revision with
    `base=True` of a document that is not rewindable replaces all its older revisions. `progress`: the commit holds
    nothing that must survive a power loss by itself; a store may leave it unflushed until the next other commit.
    """

    seq: int
    next_id: int
    progress: bool = False
    conversations: list[Conversation] = []
    entries: list[Entry] = []
    tasks: list[TaskWrite] = []
    submissions: list[Submission] = []
    documents: list[Document] = []
    """New ones, and retired ones once more with `retired` set."""
    copies: list[DocumentCopy] = []
    revisions: list[Revision] = []
    blobs: list[Blob] = []


class StorageHead(Record, frozen=True, gc=False):
    """Where a store stands when opened. `epoch` is larger at every open that may write."""

    next_id: int
    seq: int
    epoch: int
    schema_version: int
