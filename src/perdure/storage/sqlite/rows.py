"""Rows of the SQLite store as records, and the words that stand as small numbers in them."""

from collections.abc import Callable
from typing import Any, Final, Literal

import apsw

from perdure.base.errors import StorageCorrupt
from perdure.base.ids import TaskId
from perdure.storage.records import (
    Conversation,
    Document,
    Entry,
    LiveTask,
    Revision,
    Scope,
    Submission,
    SubmissionStatus,
    Task,
    TaskStatus,
)
from perdure.storage.sqlite.statements import READS

TASK_STATUS: Final[tuple[TaskStatus, ...]] = ("pending", "running", "waiting", "sleeping", "completing", "terminal")
SUBMISSION_STATUS: Final[tuple[SubmissionStatus, ...]] = ("queued", "placed", "done", "unanswered")
SUBMISSION_KIND: Final = ("input", "write")
SCOPE: Final[tuple[Scope, ...]] = ("session", "conversation", "task")
FORK: Final[tuple[Literal["as_of", "current", "initial"], ...]] = ("as_of", "current", "initial")

TASK_STATUS_NUMBER: Final = {word: number for number, word in enumerate(TASK_STATUS)}
SUBMISSION_STATUS_NUMBER: Final = {word: number for number, word in enumerate(SUBMISSION_STATUS)}
SUBMISSION_KIND_NUMBER: Final = {word: number for number, word in enumerate(SUBMISSION_KIND)}
SCOPE_NUMBER: Final = {word: number for number, word in enumerate(SCOPE)}
FORK_NUMBER: Final = {word: number for number, word in enumerate(FORK)}

EMPTY_MESSAGES: Final = b"[]"
EMPTY_DATA: Final = b"null"

Row = tuple[Any, ...]
"""A row as the driver gives it; its columns have the types of schema.sql, which SQLite enforces."""


class Names:
    """The words that stand as numbers, as one connection sees them."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._texts: dict[int, str] = {}
        self._numbers: dict[str, int] = {}

    def text(self, number: int) -> str:
        """The word of a number."""
        found = self._texts.get(number)
        if found is None:
            row = self._connection.execute(READS["name"], (number,)).fetchone()
            if row is None:
                raise StorageCorrupt(f"the word number {number} is missing")
            found = self._texts[number] = str(row[0])
        return found

    def number(self, text: str) -> int | None:
        """The number of a word; None if it was never stored."""
        found = self._numbers.get(text)
        if found is None:
            row: Row | None = self._connection.execute(READS["name_id"], (text,)).fetchone()
            if row is not None:
                found = self._numbers[text] = int(row[0])
        return found

    def remember(self, text: str, number: int) -> None:
        """A word that was just written."""
        self._numbers[text] = number

    def forget(self) -> None:
        """What was read or written is taken back."""
        self._texts.clear()
        self._numbers.clear()


def conversation(row: Row) -> Conversation:
    return Conversation(*row)


def entry(row: Row, text: Callable[[int], str]) -> Entry:
    id, conversation, seq, kind, version, messages, data, task, head, edits = row
    return Entry(
        id,
        conversation,
        seq,
        text(kind),
        version,
        EMPTY_MESSAGES if messages is None else messages,
        EMPTY_DATA if data is None else data,
        task,
        head,
        edits,
    )


def waits(stored: str | None) -> tuple[TaskId, ...]:
    return tuple(TaskId(int(id)) for id in stored[1:-1].split(",")) if stored else ()


def task(row: Row, text: Callable[[int], str]) -> Task:
    id, conversation, kind, version, status, input, state, memos, owner, background, abort, on, deadline, *rest = row
    unused, started_at, ended_at = rest
    return Task(
        id,
        conversation,
        text(kind),
        version,
        TASK_STATUS[status],
        input,
        state,
        memos,
        owner,
        background == 1,
        abort == 1,
        waits(on),
        deadline,
        unused == 1,
        started_at,
        ended_at,
    )


def live_tasks(found: list[Row], text: Callable[[int], str]) -> list[LiveTask]:
    """All rows at once: an open reads thousands."""
    kinds = {number: text(number) for number in {row[2] for row in found}}
    return [
        LiveTask(
            id,
            conversation,
            kinds[kind],
            TASK_STATUS[status],
            owner,
            background == 1,
            abort == 1,
            waits(on) if on else (),
            deadline,
            unused == 1,
        )
        for id, conversation, kind, status, owner, background, abort, on, deadline, unused in found
    ]


def submission(row: Row, text: Callable[[int], str]) -> Submission:
    id, conversation, status, kind, content, digest, request_id, when_busy, *rest = row
    notify_task, notify_key, entry, answer, reason, detail = rest
    return Submission(
        id,
        conversation,
        SUBMISSION_STATUS[status],
        "write" if kind else "input",
        content,
        digest,
        request_id,
        text(when_busy),
        notify_task,
        notify_key,
        entry,
        answer,
        reason,
        detail,
    )


def document(row: Row, text: Callable[[int], str]) -> Document:
    id, kind, scope, scope_id, key, rewindable, fork, created, retired = row
    return Document(id, text(kind), SCOPE[scope], scope_id, key, rewindable == 1, FORK[fork], created, retired)


def revision(row: Row) -> Revision:
    document, seq, base, version, body = row
    return Revision(document, seq, base == 1, version, body)
