"""One transaction on the line: what its block may read and write. Reads see its own writes."""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from perdure.base.errors import InvalidValue, InvocationEnded, NotFound
from perdure.base.ids import ConversationId, EntryId, SubmissionId, TaskId
from perdure.session.changes import Changes
from perdure.session.document_writes import DocumentWrites
from perdure.session.entries import encode_entry, entry_kind
from perdure.session.store import Store
from perdure.storage.protocol import Order
from perdure.storage.records import Blob, Conversation, Entry, LiveTask, Submission, Task, TaskWrite

T = TypeVar("T")


class Transaction(DocumentWrites):
    """A block that holds the line: `async with session.transaction() as tx`.

    Leaving the block commits all its writes at once and returns when they are stored; an exception inside takes
    everything back. A block without writes commits nothing. Once admitted to storage a commit settles, also if the
    caller is cancelled meanwhile. Used after its block it raises `InvocationEnded`.
    """

    def __init__(self, session: Any, store: Store, *, progress: bool = False) -> None:
        self._session = session
        self._store = store
        self._progress = progress
        self._open = False
        self._init_documents()
        self.changes = Changes()

    # the block

    async def __aenter__(self) -> Self:
        await self._session.begin(self)
        self._next_id = self._store.next_id
        self.seq = self._store.seq + 1
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._open = False
            self.revoke_drafts()
            self._session.abandon(self)
            return
        await self._session.finish(self)

    @property
    def progress(self) -> bool:
        """Whether the block may hold nothing but patches to live documents."""
        return self._progress

    @property
    def next_id(self) -> int:
        """The first id that is still free."""
        return self._next_id

    def end(self) -> None:
        """Refuse every later use."""
        self._open = False
        self.revoke_drafts()

    def check_open(self) -> None:
        """Raise unless the block is open."""
        if not self._open:
            raise InvocationEnded("the transaction's block has ended", hint="open a new transaction")

    def mint(self) -> int:
        """A fresh id. Given back if the block is rolled back."""
        self.check_open()
        if self._progress:
            raise InvalidValue("a progress commit holds nothing but patches to live documents")
        self._next_id += 1
        return self._next_id - 1

    # conversations

    async def conversation(self, id: ConversationId) -> Conversation:
        """The conversation's record. Raises `NotFound`."""
        self.check_open()
        found = self.changes.conversations.get(id) or await self._store.conversation(id)
        if found is None:
            raise NotFound(f"no conversation {id}")
        return found

    def put_conversation(
        self, *, owner: TaskId | None, parent: ConversationId | None = None, fork_entry: EntryId | None = None
    ) -> ConversationId:
        """Create a conversation; a fork names parent and entry."""
        record = Conversation(ConversationId(self.mint()), self.seq, parent=parent, fork_entry=fork_entry, owner=owner)
        self.changes.conversations[record.id] = record
        return record.id

    async def scan_conversations(
        self, *, owner: TaskId | None = None, cursor: int = 0, limit: int = 100
    ) -> Sequence[Conversation]:
        """A page of conversations by id; with `owner`, those that the task owns."""
        self.check_open()
        stored = await (await self._store.settled()).scan_conversations(owner=owner, cursor=cursor, limit=limit)
        own = [c for c in self.changes.conversations.values() if c.id > cursor and owner in (None, c.owner)]
        return [*stored, *own][:limit]

    # entries

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

    async def find_entry(self, id: EntryId) -> Entry | None:
        """An entry's record, or None."""
        self.check_open()
        return self.changes.entries.get(id) or await self._store.entry(id)

    async def entry(self, kind: type[T], id: EntryId) -> T | None:
        """An entry's typed data; None if there is no such entry. Raises `InvalidValue` if it is of another kind."""
        found = await self.find_entry(id)
        return None if found is None else entry_kind(kind).read(found)

    async def scan_entries(
        self,
        conversation: ConversationId,
        *,
        after: EntryId | None = None,
        before: EntryId | None = None,
        newest_first: bool = False,
        limit: int = 100,
    ) -> Sequence[Entry]:
        """A page of the entries that the conversation sees, a fork's ancestors included."""
        self.check_open()
        order: Order = "newest" if newest_first else "oldest"
        store = await self._store.settled()
        stored: Sequence[Entry] = []
        if conversation not in self.changes.conversations:
            stored = await store.scan_entries(conversation, after=after, before=before, order=order, limit=limit)
        own = [
            entry
            for entry in self.changes.entries.values()
            if entry.conversation == conversation
            and (after is None or entry.id > after)
            and (before is None or entry.id < before)
        ]
        merged = [*reversed(own), *stored] if newest_first else [*stored, *own]
        return merged[:limit]

    async def stored_head(self, conversation: ConversationId) -> EntryId | None:
        """The newest stored head that the conversation sees, or None."""
        self.check_open()
        if conversation in self.changes.conversations:
            return None
        found = await (await self._store.settled()).latest_head(conversation)
        return None if found is None else found.head

    # tasks and submissions: records; the rooms above give them meaning

    async def task(self, id: TaskId) -> Task | None:
        """A task's record as of now, or None."""
        self.check_open()
        return self.changes.task(id) or await self._store.task(id)

    def live_task(self, id: TaskId) -> Task | LiveTask | None:
        """What is known in memory of a task that has not ended; None if it has ended or never was."""
        found = self.changes.task(id) or self._store.live_task(id)
        return None if found is None or found.status == "terminal" else found

    def put_task(self, task: Task, *, created: bool = False, input_changed: bool = False) -> None:
        """Write a task's record."""
        self.check_open()
        before = self.changes.tasks.get(task.id)
        if before is not None:
            created, input_changed = before.created, before.input_changed or input_changed
        self.changes.tasks[task.id] = TaskWrite(task, created, input_changed)

    async def submission(self, id: SubmissionId) -> Submission | None:
        """A submission's record as of now, or None."""
        self.check_open()
        return self.changes.submissions.get(id) or await self._store.submission(id)

    async def submission_by_request(self, conversation: ConversationId, request_id: str) -> Submission | None:
        """The submission that a request id stands for in this conversation, or None."""
        self.check_open()
        for submission in self.changes.submissions.values():
            if submission.conversation == conversation and submission.request_id == request_id:
                return submission
        return await self._store.submission_by_request(conversation, request_id)

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
