"""One transaction on the line: what its block may read and write. Reads see its own writes."""

from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from perdure.base.drafts import too_deep
from perdure.base.errors import InvocationEnded
from perdure.base.ids import ConversationId, EntryId, TaskId
from perdure.session.document_writes import DocumentWrites
from perdure.session.entries import encode_entry
from perdure.session.record_reads import RecordReads
from perdure.storage.records import Blob, Conversation, Entry, Submission, Task, TaskWrite

T = TypeVar("T")


class Transaction(DocumentWrites, RecordReads):
    """A block that holds the line: `async with session.transaction() as tx`.

    Leaving the block commits all its writes at once and returns when they are stored; an exception inside takes
    everything back. A block without writes commits nothing. Once admitted to storage a commit settles, also if the
    caller is cancelled meanwhile. Used after its block it raises `InvocationEnded`.
    """

    _begun_once = False

    # the block

    async def __aenter__(self) -> Self:
        if self._begun_once:
            raise InvocationEnded("a transaction's block is entered once", hint="open a new transaction")
        self._begun_once = True
        await self._session.begin(self)
        self._next_id = self._store.next_id
        self.seq = self._store.seq + 1
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._session.cut_off(self)
            if (fault := too_deep(error)) is not None:
                raise fault from error
            return
        self.check_open()  # cut off meanwhile, the block has lost the line
        await self._session.finish(self)

    def end(self) -> None:
        """Refuse every later use."""
        self._open = False
        self.revoke_drafts()

    def put_conversation(
        self, *, owner: TaskId | None, parent: ConversationId | None = None, fork_entry: EntryId | None = None
    ) -> ConversationId:
        """Create a conversation; a fork names parent and entry."""
        record = Conversation(ConversationId(self.mint()), self.seq, parent=parent, fork_entry=fork_entry, owner=owner)
        self.changes.conversations[record.id] = record
        return record.id

    def append_entry(
        self,
        conversation: ConversationId,
        entry: Any,
        *,
        head: EntryId | None = None,
        edits: EntryId | None = None,
        task: TaskId | None = None,
    ) -> EntryId:
        """Append a typed entry; its messages are made and stored now. Returns its id."""
        kind, messages, data = encode_entry(entry)
        return self.put_entry(
            conversation,
            kind.kind,
            messages=messages,
            data=data,
            version=kind.version,
            head=head,
            edits=edits,
            task=task,
        )

    def put_entry(
        self,
        conversation: ConversationId,
        kind: str,
        *,
        messages: bytes = b"[]",
        data: bytes = b"null",
        version: int = 1,
        head: EntryId | bool | None = None,
        edits: EntryId | None = None,
        task: TaskId | None = None,
    ) -> EntryId:
        """Append an entry of which messages and data are checked and encoded already. `head=True`: itself."""
        id = EntryId(self.mint())
        at = id if head is True else (None if head is False else head)
        self.changes.entries[id] = Entry(
            id, conversation, self.seq, kind, version, messages=messages, data=data, task=task, head=at, edits=edits
        )
        return id

    def put_task(self, task: Task, *, created: bool = False, input_changed: bool = False) -> None:
        """Write a task's record."""
        if not self._open:
            self.check_open()
        before = self.changes.tasks.get(task.id)
        if before is not None:
            created, input_changed = before.created, before.input_changed or input_changed
        self.changes.tasks[task.id] = TaskWrite(task, created, input_changed)

    def put_submission(self, submission: Submission) -> None:
        """Write a submission's record."""
        self.check_open()
        self.changes.submissions[submission.id] = submission

    def put_blob(self, blob: Blob) -> None:
        """Keep bytes that a record of this commit refers to."""
        self.check_open()
        self.changes.blobs[blob.digest] = blob


def replaced(record: Task, **fields: Any) -> Task:
    """The record with some fields changed."""
    return msgspec.structs.replace(record, **fields)
