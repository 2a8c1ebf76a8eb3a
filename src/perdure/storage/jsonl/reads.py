"""The reads: the index says where, the file says what. All run on the event loop, from the system's file cache."""

from collections.abc import Sequence
from itertools import islice

import msgspec

from perdure.base.errors import StorageCorrupt, StorageError
from perdure.base.ids import ConversationId, DocumentId, EntryId, SubmissionId, TaskId
from perdure.storage.checks import need_one
from perdure.storage.jsonl import content
from perdure.storage.jsonl.blobs import read_blob
from perdure.storage.jsonl.documents import alive, reach
from perdure.storage.jsonl.file import LineFile
from perdure.storage.jsonl.index import Index
from perdure.storage.jsonl.sorted import NEVER, NONE, Ids
from perdure.storage.protocol import Order
from perdure.storage.records import (
    Blob,
    Conversation,
    Document,
    Entry,
    LiveTask,
    Scope,
    StoredDocument,
    Submission,
    SubmissionStatus,
    Task,
    TaskStatus,
)


class JsonlReads:
    """The reads. They see what was committed before they began."""

    def __init__(self, location: str) -> None:
        self._location = location
        self._file: LineFile | None = None
        self._index: Index | None = None

    def _now(self) -> Index:
        if self._index is None:
            raise StorageError(f"{self._location} is not open")
        return self._index

    def _fetch(self, offset: int, length: int) -> bytes:
        if self._file is None:
            raise StorageError(f"{self._location} is not open")
        return self._file.fetch(offset, length)

    async def conversation(self, id: ConversationId) -> Conversation | None:
        return self._now().conversations.get(id)

    async def entry(self, id: EntryId) -> Entry | None:
        return self._entry(self._now(), id)

    async def task(self, id: TaskId) -> Task | None:
        return self._task(self._now(), id)

    async def submission(self, id: SubmissionId) -> Submission | None:
        return self._submission(self._now(), id)

    async def submission_by_request(self, conversation: ConversationId, request_id: str) -> Submission | None:
        index = self._now()
        found = index.submissions.requests.get((conversation, request_id))
        return None if found is None else self._submission(index, found)

    async def blob(self, digest: str) -> Blob | None:
        stored = self._now().blobs.get(digest)
        return None if stored is None else content.blob(stored, read_blob(self._location, stored))

    async def scan_conversations(
        self, *, owner: TaskId | None = None, cursor: int = 0, limit: int = 100
    ) -> Sequence[Conversation]:
        index = self._now()
        ids = index.conversation_ids if owner is None else index.owned[owner]
        return [index.conversations[id] for id in islice(ids.above(cursor), limit)]

    async def scan_entries(
        self,
        conversation: ConversationId,
        *,
        after: EntryId | None = None,
        before: EntryId | None = None,
        order: Order = "oldest",
        limit: int = 100,
    ) -> Sequence[Entry]:
        index = self._now()
        low = 0 if after is None else after
        high = NEVER if before is None else before
        found: list[int] = []
        # A fork's ids are all larger than those it inherits, so the pieces follow each other whole.
        line = _line(index, conversation)
        for piece, cap in line if order == "newest" else reversed(line):
            ids, end = index.entries_of[piece], min(high, cap)
            found += islice(ids.below(end, low) if order == "newest" else ids.above(low, end), limit - len(found))
            if len(found) >= limit:
                break
        return [self._known_entry(index, id) for id in found]

    async def latest_head(self, conversation: ConversationId, at_or_before: EntryId | None = None) -> Entry | None:
        index = self._now()
        high = NEVER if at_or_before is None else at_or_before + 1
        for piece, cap in _line(index, conversation):
            for id in index.heads_of[piece].below(min(cap, high)):
                return self._entry(index, EntryId(id))
        return None

    async def scan_tasks(
        self,
        *,
        conversation: ConversationId | None = None,
        owner: TaskId | None = None,
        waiting_on: TaskId | None = None,
        kind: str | None = None,
        status: TaskStatus | None = None,
        live: bool | None = None,
        background: bool | None = None,
        abort_requested: bool | None = None,
        cursor: int = 0,
        limit: int = 100,
    ) -> Sequence[Task]:
        need_one(conversation is not None or owner is not None or waiting_on is not None or live is True)
        index = self._now()

        def fits(task: LiveTask | Task) -> bool:
            return (
                (conversation is None or task.conversation == conversation)
                and (owner is None or task.owner == owner)
                and (waiting_on is None or waiting_on in task.on)
                and (kind is None or task.kind == kind)
                and (status is None or task.status == status)
                and (live is None or (task.status != "terminal") == live)
                and (background is None or task.background == background)
                and (abort_requested is None or task.abort_requested == abort_requested)
            )

        found: list[Task] = []
        for id in _tasks_to_look_at(index, conversation, owner, waiting_on, live).above(cursor):
            if len(found) >= limit:
                break
            light = index.tasks.live.get(id)
            if light is not None and not fits(light):
                continue
            task = self._task(index, id)
            if task is not None and fits(task):
                found.append(task)
        return found

    async def scan_deadlines(self, *, until: int | None = None, limit: int = 100) -> Sequence[LiveTask]:
        tasks = self._now().tasks
        last = NEVER if until is None else until
        due = (id for deadline, id in tasks.deadlines if deadline <= last)
        known = (tasks.known(id) for id in islice(due, limit))
        return [task for task in known if task is not None]

    async def scan_live(self, *, cursor: int = 0, limit: int = 1000) -> Sequence[LiveTask]:
        tasks = self._now().tasks
        return [tasks.live[id] for id in islice(tasks.live_ids.above(cursor), limit)]

    async def scan_submissions(
        self,
        *,
        conversation: ConversationId | None = None,
        status: SubmissionStatus | None = None,
        live: bool | None = None,
        cursor: int = 0,
        limit: int = 100,
    ) -> Sequence[Submission]:
        need_one(conversation is not None or live is True)
        index = self._now()
        submissions = index.submissions
        if conversation is None:
            ids = submissions.live_ids
        else:
            ids = (submissions.live_in if live else submissions.all_in)[conversation]
        found: list[Submission] = []
        for id in ids.above(cursor):
            if len(found) >= limit:
                break
            one = self._submission(index, id)
            if one is None or (status is not None and one.status != status):
                continue
            if live is None or (one.status in ("queued", "placed")) == live:
                found.append(one)
        return found

    async def scan_documents(
        self,
        scope: Scope,
        scope_id: int,
        *,
        kind: str | None = None,
        at: int | None = None,
        retired: bool = False,
        cursor: int = 0,
        limit: int = 100,
    ) -> Sequence[Document]:
        documents = self._now().documents
        groups = documents.alive_in if at is None and not retired else documents.all_in
        every = (documents.all[id] for id in groups[scope, scope_id].above(cursor))
        wanted = (one for one in every if (kind is None or one.kind == kind) and (retired or alive(one, at)))
        return list(islice(wanted, limit))

    async def scan_members(
        self,
        scope: Scope,
        scope_id: int,
        kind: str,
        *,
        prefix: str = "",
        after: str | None = None,
        at: int | None = None,
        limit: int = 100,
    ) -> Sequence[Document]:
        documents = self._now().documents
        found = documents.members_from(scope, scope_id, kind, prefix if after is None else max(prefix, after), at)
        wanted = ((key, id) for key, id in found if after is None or key > after)
        page: list[Document] = []
        for key, id in wanted:
            if len(page) >= limit or not key.startswith(prefix):
                break
            page.append(documents.all[id])
        return page

    async def find_document(
        self, scope: Scope, scope_id: int, kind: str, key: str | None, *, at: int | None = None
    ) -> Document | None:
        return self._now().documents.find(scope, scope_id, kind, key, at)

    async def document(self, id: DocumentId, at: int | None = None) -> StoredDocument | None:
        documents = self._now().documents
        found = documents.all.get(id)
        steps = [] if found is None else reach(documents.history.get(id, []), NEVER if at is None else at)
        if found is None or not steps:
            return None
        base, *deltas = (content.revision(self._fetch(step.offset, step.length), id) for step in steps)
        return StoredDocument(found, base, tuple(deltas))

    def _entry(self, index: Index, id: EntryId) -> Entry | None:
        place = index.entries.find(id)
        return None if place is None else content.entry(self._fetch(*place))

    def _known_entry(self, index: Index, id: int) -> Entry:
        found = self._entry(index, EntryId(id))
        if found is None:
            raise StorageCorrupt(f"{self._location} has lost entry {id}")
        return found

    def _task(self, index: Index, id: int) -> Task | None:
        place = index.tasks.places.find(id)
        if place is None:
            return None
        stored = content.decoded(self._fetch(*place), content.StoredTask)
        given = stored.input
        if isinstance(given, msgspec.UnsetType):
            source = index.tasks.inputs.find(id)
            if source is not None:
                given = content.decoded(self._fetch(*source), content.StoredTask).input
        if isinstance(given, msgspec.UnsetType):
            raise StorageCorrupt(f"{self._location} has lost the input of task {id}")
        return content.task(stored, bytes(given))

    def _submission(self, index: Index, id: int) -> Submission | None:
        place = index.submissions.places.find(id)
        return None if place is None else content.submission(self._fetch(*place))


def _tasks_to_look_at(
    index: Index, conversation: int | None, owner: int | None, waiting_on: int | None, live: bool | None
) -> Ids:
    """The smallest group that holds all that a scan may find."""
    tasks = index.tasks
    if waiting_on is not None:
        return tasks.waiting[waiting_on]
    if owner is not None:
        return tasks.owned[owner]
    if conversation is not None:
        return (tasks.live_in if live else tasks.all_in)[conversation]
    return tasks.live_ids if live else NONE


def _line(index: Index, conversation: int) -> list[tuple[int, int]]:
    """A conversation and its ancestors, nearest first, each with the first id that cannot be seen of it any more."""
    line: list[tuple[int, int]] = []
    cap = NEVER
    at = index.conversations.get(conversation)
    while at is not None:
        line.append((at.id, cap))
        if at.parent is None or at.fork_entry is None:
            break
        cap = min(cap, at.fork_entry + 1)
        at = index.conversations.get(at.parent)
    return line
