"""The reads of the SQLite store: short statements on a connection of their own, on the event loop."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import apsw

from perdure.base.errors import StorageError
from perdure.base.ids import ConversationId, DocumentId, EntryId, SubmissionId, TaskId
from perdure.storage.checks import key_after, need_one
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
from perdure.storage.sqlite import rows
from perdure.storage.sqlite.errors import translate
from perdure.storage.sqlite.rows import Row
from perdure.storage.sqlite.statements import READS

T = TypeVar("T")

NEVER: Final = 2**63 - 1
"""Later than every id, seq and time."""
ANY_TEXT: Final = b""
"""Later than every text: the engine sorts bytes behind text."""
CACHED_LINES: Final = 8192
"""Conversations whose line of ancestors is kept in memory."""

Line = tuple[tuple[int, int], ...]
"""A conversation and its ancestors, nearest first, each with the last entry that can be seen of it."""


class SqliteReads:
    """The reads. They see what was committed before they began."""

    def __init__(self, location: str) -> None:
        self._location = location
        self._reader: apsw.Connection | None = None
        self._words: rows.Names | None = None
        self._lines: dict[int, Line] = {}

    def _begin_reading(self, connection: apsw.Connection) -> None:
        self._reader = connection
        self._words = rows.Names(connection)
        self._lines.clear()

    def _stop_reading(self) -> None:
        reader, self._reader, self._words = self._reader, None, None
        if reader is not None:
            reader.close(True)

    def _all(self, statement: str, values: tuple[Any, ...]) -> list[Row]:
        reader = self._reader
        if reader is None:
            raise StorageError(f"{self._location} is not open")
        try:
            return reader.execute(READS[statement], values).fetchall()
        except apsw.Error as error:
            raise translate(error, reader, self._location) from error

    def _one(self, statement: str, values: tuple[Any, ...]) -> Row | None:
        found = self._all(statement, values)
        return found[0] if found else None

    def _text(self, number: int) -> str:
        if self._words is None:
            raise StorageError(f"{self._location} is not open")
        return self._words.text(number)

    def _number(self, kind: str | None) -> int | None:
        """The number of a kind to filter by; -1, which nothing has, for a kind that was never stored."""
        if kind is None or self._words is None:
            return None
        found = self._words.number(kind)
        return -1 if found is None else found

    def _record(self, make: Callable[[Row, Callable[[int], str]], T], row: Row | None) -> T | None:
        return None if row is None else make(row, self._text)

    def _records(self, make: Callable[[Row, Callable[[int], str]], T], found: list[Row]) -> list[T]:
        text = self._text
        return [make(row, text) for row in found]

    async def conversation(self, id: ConversationId) -> Conversation | None:
        row = self._one("conversation", (id,))
        return None if row is None else rows.conversation(row)

    async def entry(self, id: EntryId) -> Entry | None:
        return self._record(rows.entry, self._one("entry", (id,)))

    async def task(self, id: TaskId) -> Task | None:
        return self._record(rows.task, self._one("task", (id,)))

    async def submission(self, id: SubmissionId) -> Submission | None:
        return self._record(rows.submission, self._one("submission", (id,)))

    async def submission_by_request(self, conversation: ConversationId, request_id: str) -> Submission | None:
        return self._record(rows.submission, self._one("submission_by_request", (conversation, request_id)))

    async def blob(self, digest: str) -> Blob | None:
        row = self._one("blob", (digest,))
        return None if row is None else Blob(*row)

    async def scan_conversations(
        self, *, owner: TaskId | None = None, cursor: int = 0, limit: int = 100
    ) -> Sequence[Conversation]:
        if owner is None:
            found = self._all("conversations", (cursor, limit))
        else:
            found = self._all("conversations_owned", (cursor, limit, owner))
        return [rows.conversation(row) for row in found]

    async def scan_entries(
        self,
        conversation: ConversationId,
        *,
        after: EntryId | None = None,
        before: EntryId | None = None,
        order: Order = "oldest",
        limit: int = 100,
    ) -> Sequence[Entry]:
        low = 0 if after is None else after
        high = NEVER if before is None else before - 1
        line = self._line(conversation)
        statement = "entries_newest" if order == "newest" else "entries_oldest"
        found: list[Entry] = []
        # What a fork wrote is newer than all it inherits, so the pieces follow each other whole.
        for piece, cap in line if order == "newest" else reversed(line):
            last = min(cap, high)
            if last > low and len(found) < limit:
                page = self._all(statement, (piece, low, last, limit - len(found)))
                found.extend(self._records(rows.entry, page))
        return found

    async def latest_head(self, conversation: ConversationId, at_or_before: EntryId | None = None) -> Entry | None:
        high = NEVER if at_or_before is None else at_or_before
        for piece, cap in self._line(conversation):
            row = self._one("latest_head", (piece, min(cap, high)))
            if row is not None:
                return rows.entry(row, self._text)
        return None

    def _line(self, conversation: int) -> Line:
        known = self._lines.get(conversation)
        if known is not None:
            return known
        line: list[tuple[int, int]] = []
        cap = NEVER
        at: int | None = conversation
        while at is not None:
            row = self._one("conversation", (at,))
            if row is None:
                break
            line.append((at, cap))
            at, fork_entry = row[2], row[3]
            cap = cap if fork_entry is None else min(cap, fork_entry)
        if line:
            if len(self._lines) >= CACHED_LINES:
                self._lines.clear()
            self._lines[conversation] = tuple(line)
        return tuple(line)

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
        if waiting_on is not None:
            statement = "tasks_waiting"
        elif owner is not None:
            statement = "tasks_owned"
        elif conversation is not None:
            statement = "tasks_live_in_conversation" if live else "tasks_in_conversation"
        else:
            statement = "tasks_live"
        number = None if status is None else rows.TASK_STATUS_NUMBER[status]
        ended = None if live is None else not live
        values = (
            cursor,
            limit,
            conversation,
            owner,
            self._number(kind),
            number,
            ended,
            background,
            abort_requested,
            waiting_on,
        )
        return self._records(rows.task, self._all(statement, values))

    async def scan_deadlines(self, *, until: int | None = None, limit: int = 100) -> Sequence[LiveTask]:
        return rows.live_tasks(self._all("deadlines", (NEVER if until is None else until, limit)), self._text)

    async def scan_live(self, *, cursor: int = 0, limit: int = 1000) -> Sequence[LiveTask]:
        return rows.live_tasks(self._all("live", (cursor, limit)), self._text)

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
        if conversation is None:
            statement = "submissions_live"
        else:
            statement = "submissions_live_in_conversation" if live else "submissions_in_conversation"
        number = None if status is None else rows.SUBMISSION_STATUS_NUMBER[status]
        ended = None if live is None else not live
        found = self._all(statement, (cursor, limit, conversation, number, ended))
        return self._records(rows.submission, found)

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
        values = (cursor, limit, rows.SCOPE_NUMBER[scope], scope_id, self._number(kind))
        if retired:
            found = self._all("documents_ever", values)
        else:
            found = self._all("documents_now", values) if at is None else self._all("documents_at", (*values, at))
        return self._records(rows.document, found)

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
        low = prefix if after is None else max(prefix, after + "\0")  # the text that follows it directly
        values = (rows.SCOPE_NUMBER[scope], scope_id, self._number(kind), low, key_after(prefix) or ANY_TEXT, limit)
        found = self._all("members_now", values) if at is None else self._all("members_at", (*values, at))
        return self._records(rows.document, found)

    async def find_document(
        self, scope: Scope, scope_id: int, kind: str, key: str | None, *, at: int | None = None
    ) -> Document | None:
        values = (rows.SCOPE_NUMBER[scope], scope_id, self._number(kind), key)
        row = self._one("document_now", values) if at is None else self._one("document_at", (*values, at))
        return self._record(rows.document, row)

    async def document(self, id: DocumentId, at: int | None = None) -> StoredDocument | None:
        row = self._one("document", (id,))
        if row is None:
            return None
        found = self._all("revisions", (id, NEVER if at is None else at))
        if not found:
            return None
        base, *deltas = (rows.revision(each) for each in found)
        return StoredDocument(rows.document(row, self._text), base, tuple(deltas))
