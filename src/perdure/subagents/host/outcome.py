"""How a generation stands, from the rows of its session: the same for its host and for whoever reads it later."""

import re
from typing import Any, Final

import msgspec

from perdure import ROOT, AssistantMessage, EntryId, InvalidValue, ToolCall
from perdure.agent.documents import LiveDoc
from perdure.base import jsonvalue
from perdure.base.ids import SubmissionId
from perdure.models.messages import decode_messages, text_of
from perdure.session.committed import CommittedReads
from perdure.storage.records import Entry, Submission

PAGE: Final = 20
"""Entries read at once, from the newest backwards."""
USER: Final = "perdure.user"
ASSISTANT: Final = "perdure.assistant"
FAILED: Final = re.compile(r"([a-z_]+): (.*)", re.DOTALL)
"""How a run that failed tells why: the error's code, then its text."""


class Outcome(msgspec.Struct, kw_only=True):
    """What became of the task, as far as one looked back."""

    taken: bool = False
    """The task is in the session."""
    over: bool = False
    """No run is open, and none will be without a new input."""
    stop: str | None = None
    """Of the newest answer."""
    text: str = ""
    """Of a finished answer that ended the run."""
    error: str | None = None
    code: str | None = None
    budget: bool = False
    model: str | None = None
    entries: int = 0
    """So many came since, as far as they were read."""
    damaged: list[int] = []
    """Entries that cannot be read; what stands beside them counts."""


async def outcome(reads: CommittedReads, task_id: str, after: int) -> Outcome:
    """How the run of a task stands; answers count from behind the entry `after`."""
    task = await reads.store.submission_by_request(ROOT, task_id)
    found = Outcome(taken=task is not None)
    if task is None:
        return found
    live: Any = await reads.value_of(LiveDoc, ROOT)
    found.over = task.status in ("done", "unanswered") and (live is None or live["run"] is None)
    newest, answer, message = await _look_back(reads, after, found)
    if message is not None:
        found.stop, found.model = message.stop, message.model
    if not found.over:
        return found
    last = await _submission_of(reads, newest) or task
    if last.status == "unanswered":
        _tell_why(found, last)
    elif answer is not None and message is not None and newest is not None and answer.id > newest.id:
        finished = message.stop not in ("aborted", "error") and not _calls(message)
        found.text = text_of(message) if finished else ""
    return found


def _tell_why(found: Outcome, last: Submission) -> None:
    found.budget = last.reason == "budget"
    detail, found.code = last.detail or last.reason or "", last.reason
    said = FAILED.fullmatch(detail) if last.reason == "failed" else None
    if said is not None:
        found.code, detail = said[1], said[2]
    found.error = detail or None


async def _look_back(
    reads: CommittedReads, after: int, found: Outcome
) -> tuple[Entry | None, Entry | None, AssistantMessage | None]:
    """The newest input, and the newest answer since, with its message. The input may be older: an execution goes on
    with the run of the one before."""
    storage = await reads.store.settled()
    before: EntryId | None = None
    answer: Entry | None = None
    message: AssistantMessage | None = None
    while page := await storage.scan_entries(ROOT, before=before, order="newest", limit=PAGE):
        for entry in page:
            recent = entry.id > after
            found.entries += recent
            if recent and answer is None and entry.kind == ASSISTANT:
                message = _message(entry, found)
                answer = entry if message is not None else None
            if entry.kind == USER and _number_of(entry) is not None:
                return entry, answer, message
        before = page[-1].id
    return None, answer, message


def _message(entry: Entry, found: Outcome) -> AssistantMessage | None:
    try:
        messages = decode_messages(entry.messages)
    except (msgspec.MsgspecError, ValueError):
        found.damaged.append(entry.id)
        return None
    first = messages[0] if messages else None
    return first if isinstance(first, AssistantMessage) else None


def _calls(message: AssistantMessage) -> bool:
    return any(isinstance(block, ToolCall) for block in message.content)


def _number_of(entry: Entry) -> SubmissionId | None:
    try:
        data: Any = jsonvalue.decode(entry.data)
    except (InvalidValue, ValueError):
        return None
    number = data.get("submission") if isinstance(data, dict) else None
    return SubmissionId(number) if isinstance(number, int) else None


async def _submission_of(reads: CommittedReads, entry: Entry | None) -> Submission | None:
    number = None if entry is None else _number_of(entry)
    return None if number is None else await reads.store.submission(number)


def unfinished(live: Any) -> list[str]:
    """Names of the calls that run, as the live document shows them; a question that is waited on is none of them."""
    slots = () if live is None else live["tools"].values()
    return [str(slot["name"]) for slot in slots if slot["status"] == "running" and slot["name"] != "ask"]
