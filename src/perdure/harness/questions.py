"""The open questions of a session, and their answers. A question is part of the sleep that waits for it, so it is gone
in the same commit in which that sleep ends: answered, expired, aborted, or asked no more."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec

from perdure.base.clock import to_millis
from perdure.base.errors import NotFound
from perdure.base.ids import ConversationId, TaskId
from perdure.extensions.questions import NO, YES, PersonAnswer, PersonReply
from perdure.storage.protocol import Storage
from perdure.storage.records import LiveTask, Task
from perdure.tasks import signals
from perdure.tasks.signals import SignalResult
from perdure.tasks.states import Question, SignalKey, Sleeping, state_of
from perdure.tasks.transaction import TaskTransaction

PAGE: Final = 200
"""Tasks read at once: a few milliseconds, after which others get their turn."""
_MARK: Final = b'"question":'
"""Stands in the state of every task that asks: others need not be decoded."""


class OpenQuestion(msgspec.Struct, frozen=True):
    """A question that waits for a person. Times in seconds since the epoch."""

    id: str
    """The task and the key, as `answer` takes it: "12-size"."""
    task_id: TaskId
    conversation_id: ConversationId
    key: str
    kind: str
    """"question": answered by a text, one of `choices` if there are any. "approval": by yes or no."""
    text: str
    choices: tuple[str, ...]
    tool: str | None
    arguments: Any
    since: float
    """When it was first asked; asking again, as gates do, changes nothing."""
    until: float | None
    """When nobody can answer any more; None: it waits for ever."""


class NoQuestion(NotFound):
    """No open question has this id."""

    code = "no_question"


def questions_of(task: Task | LiveTask, now: int | None = None) -> list[OpenQuestion]:
    """The questions of one task, whose deadline has not passed `now` (milliseconds), in the order of its keys."""
    if task.status != "sleeping" or not isinstance(task, Task) or _MARK not in task.state or task.abort_requested:
        return []
    state: Sleeping = state_of(task)
    if now is not None and state.until is not None and now >= state.until:
        return []
    return [_open(task, state, key, key.question) for key in state.signals if key.question is not None]


def shown(question: OpenQuestion) -> dict[str, Any]:
    """A question as JSON, for views and programs."""
    return {**msgspec.to_builtins(question), "choices": list(question.choices)}


async def open_questions(storage: Storage, now: float) -> list[OpenQuestion]:
    """All open questions of a store, the oldest first. Reads only."""
    found = [question async for task in _live(storage) for question in questions_of(task, to_millis(now))]
    return sorted(found, key=lambda question: (question.since, question.task_id))


def reply(answer: str | bool, note: str, by: str) -> PersonReply:
    """A checked reply. Raises `InvalidValue`."""
    made = PersonReply(answer, note, by)
    PersonAnswer.to_json(made)
    return made


async def answer(tx: TaskTransaction, id: str, reply: PersonReply) -> SignalResult:
    """Deliver an answer in this commit (see `Harness.answer`)."""
    number, _, key = id.partition("-")
    if not (number.isascii() and number.isdigit() and len(number) <= 16 and key):
        raise NoQuestion(f"not a question's id: {id!r:.100}", hint="task and key, such as 12-size")
    task_id = TaskId(int(number))
    record = await tx.task(task_id)
    if record is None:
        return "not_found"
    asked = next((q for q in questions_of(record) if q.key == key), None)
    if asked is not None and not _fits(asked, reply.answer):
        return "invalid"
    if asked is None and not signals.is_closed(record) and signals.asked_at(record, PersonAnswer.name, key) is None:
        return "not_found"
    return await tx.signal(task_id, PersonAnswer, key, reply)


def _fits(asked: OpenQuestion, given: str | bool) -> bool:
    if asked.kind == "approval":
        return given in (*YES, *NO)
    return isinstance(given, str) and (not asked.choices or given in asked.choices)


def _open(task: Task, state: Sleeping, key: SignalKey[Any], question: Question) -> OpenQuestion:
    since = signals.asked_at(task, key.signal, key.key)
    return OpenQuestion(
        id=f"{task.id}-{key.key}",
        task_id=task.id,
        conversation_id=task.conversation,
        key=key.key,
        kind=question.kind,
        text=question.text,
        choices=question.choices,
        tool=question.tool,
        arguments=question.arguments,
        since=(since or 0) / 1000,
        until=None if state.until is None else state.until / 1000,
    )


async def _live(storage: Storage) -> AsyncIterator[Task]:
    cursor = 0
    while page := await storage.scan_tasks(live=True, status="sleeping", cursor=cursor, limit=PAGE):
        for task in page:
            yield task
        if len(page) < PAGE:
            return
        cursor = page[-1].id
        await asyncio.sleep(0)
