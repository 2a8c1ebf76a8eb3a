"""What a conversation knows of its compactions: started once at a time, shown while they run, placed like a write.

All inside a caller's transaction.
"""

from typing import Any, Final, Literal

import msgspec

from perdure.agent.documents import LiveDoc
from perdure.agent.entries import SummaryEntry
from perdure.agent.runs import current_head
from perdure.agent.submissions import admit, checked_write, enqueue, place_write, queued_items, settled_of
from perdure.agent.summary import summary_message
from perdure.agent.usage import book
from perdure.base import jsonvalue
from perdure.base.delta import Operation
from perdure.base.errors import InvalidValue
from perdure.base.ids import ConversationId, EntryId, SubmissionId, TaskId
from perdure.base.text import well_formed
from perdure.models.messages import AssistantMessage, encode_messages
from perdure.storage.records import Submission, Task
from perdure.tasks.outcomes import AnyOutcome, Completed, Outcome
from perdure.tasks.states import outcome_of
from perdure.tasks.transaction import TaskTransaction

COMPACTION: Final = "perdure.compaction"
COMPACTION_TASK: Final = "perdure.agent.compaction:CompactionTask"
"""Loaded when a summary is first made: most sessions need none."""
ATTEMPT: Final = "perdure.summary_attempt"
"""The kind of entries that tell what a summary cost or why it failed; no model sees them."""

Cause = Literal["manual", "background", "blocking", "overflow"]
Made = Literal["placed", "queued", "stale", "declined", "nothing", "failed", "aborted"]
"""How a compaction came out: its summary stands in the transcript, waits for the next boundary, came too late; a hook
said no; there was nothing to summarize; and the ends of its task without any of these."""

INSTRUCTIONS_LENGTH: Final = 10_000
"""Characters of a person's wishes for a summary."""

GOING_ON: Final = ("running", "waiting")


def made(
    status: Made,
    *,
    submission: SubmissionId | None = None,
    entry: EntryId | None = None,
    reason: str | None = None,
) -> dict[str, Any]:
    """What a compaction completes with, as JSON. `submission` is the write that places the summary."""
    return {"status": status, "submission": submission, "entry": entry, "reason": reason}


def shown(live: Any) -> dict[str, Any]:
    """The compactions of a live document; older sessions have none."""
    found: dict[str, Any] = {} if live is None else live.get("compactions", {})
    return found


def going_on(tx: TaskTransaction, live: Any) -> list[tuple[TaskId, dict[str, Any]]]:
    """Compactions that have not ended and are not being stopped, oldest first."""
    found = []
    for key, slot in shown(live).items():
        task = tx.live_task(TaskId(int(key))) if slot["status"] in GOING_ON else None
        if task is not None and not task.abort_requested:
            found.append((TaskId(int(key)), slot))
    return sorted(found)


async def to_join(tx: TaskTransaction, conversation: ConversationId, instructions: str | None) -> TaskId | None:
    """A compaction that goes on and gives what is asked for; one with other wishes does not."""
    live: Any = await tx.value_of(LiveDoc, conversation)
    for id, slot in going_on(tx, live):
        if instructions is None or slot.get("instructions") == instructions:
            return id
    return None


async def show_started(
    tx: TaskTransaction, conversation: ConversationId, id: TaskId, cause: Cause, instructions: str | None, tokens: int
) -> None:
    """Show a compaction that begins in this commit; those that have ended give way."""
    live: Any = await tx.value_of(LiveDoc, conversation)
    slot: dict[str, Any] = {"cause": cause, "status": "running", "since": tx.now_millis / 1000, "tokens": tokens}
    if instructions is not None:
        slot["instructions"] = instructions
    kept = {key: other for key, other in shown(live).items() if other["status"] in GOING_ON}
    op = "replace" if live is None or "compactions" in live else "add"
    ops: list[Operation] = [{"op": op, "path": "/compactions", "value": {**kept, str(id): slot}}]
    await tx.patch(LiveDoc, conversation, ops)


async def show(tx: TaskTransaction, conversation: ConversationId, id: TaskId, **fields: Any) -> None:
    """Change what is shown of a compaction; None takes a field away."""
    live: Any = await tx.value_of(LiveDoc, conversation)
    slot = shown(live).get(str(id))
    if slot is None:
        return
    changed = {name: value for name, value in {**slot, **fields}.items() if value is not None}
    if changed != slot:
        await tx.patch(LiveDoc, conversation, [{"op": "replace", "path": f"/compactions/{id}", "value": changed}])


async def show_ended(tx: TaskTransaction, task: Task) -> None:
    """Show how a compaction ended, until the next begins."""
    outcome: AnyOutcome = outcome_of(task)
    fields: dict[str, Any] = {"status": outcome.status, "reason": outcome.why or None}
    if isinstance(outcome, Completed) and isinstance(outcome.value, dict):
        fields = {"status": outcome.value["status"], "reason": outcome.value.get("reason")}
    await show(
        tx, task.conversation, task.id, **fields, ended=tx.now_millis / 1000, until=None, attempt=None, error=None
    )


def made_by(outcome: Outcome) -> dict[str, Any]:
    """What came of a compaction whose task ended."""
    if isinstance(outcome, Completed) and isinstance(outcome.value, dict):
        return outcome.value
    return made("aborted" if outcome.status == "aborted" else "failed", reason=outcome.why or None)


def checked_instructions(instructions: Any) -> str | None:
    """What a summary is asked to keep. Raises `InvalidValue`."""
    if instructions is None:
        return None
    if not isinstance(instructions, str) or not 0 < len(instructions.strip()) <= INSTRUCTIONS_LENGTH:
        raise InvalidValue(f"instructions are a text of 1 to {INSTRUCTIONS_LENGTH} characters, or None")
    return well_formed(instructions)


async def place_summary(
    tx: TaskTransaction, conversation: ConversationId, task: TaskId, text: str, cut: EntryId
) -> dict[str, Any]:
    """Hand in a summary as a write whose head is the cut: placed at once when nothing is open, or when the run waits
    for this compaction; else at the next boundary. One that cuts before the current range is stale."""
    content = {
        "kind": SummaryEntry.KIND,
        "version": 1,
        "messages": jsonvalue.decode(encode_messages([summary_message(text)])),
        "data": {"compaction": task},
        "head": cut,
    }
    submission, _ = await admit(tx, conversation, checked_write(content))
    live: Any = await tx.value_of(LiveDoc, conversation)
    busy = live is not None and live["run"] is not None
    free = not busy and not await queued_items(tx, conversation)
    if free or (busy and await _awaited(tx, TaskId(live["run"]["generation"]), task)):
        return await _place_now(tx, conversation, submission)
    await enqueue(tx, conversation, submission)
    return made("queued", submission=submission.id)


async def _place_now(tx: TaskTransaction, conversation: ConversationId, submission: Submission) -> dict[str, Any]:
    entry = place_write(tx, submission, await current_head(tx, conversation))
    settled = settled_of(await _written(tx, submission.id))
    reason = None if settled is None else settled.detail
    if entry is None:
        return made("stale", submission=submission.id, reason=reason)
    return made("placed", submission=submission.id, entry=entry)


async def _written(tx: TaskTransaction, id: SubmissionId) -> Submission:
    found = await tx.submission(id)
    assert found is not None
    return found


async def _awaited(tx: TaskTransaction, generation: TaskId, compaction: TaskId) -> bool:
    """Whether the run stands still for this compaction."""
    known = tx.live_task(generation)
    return known is not None and known.status == "waiting" and compaction in known.on and not known.abort_requested


async def store_attempt(
    tx: TaskTransaction,
    conversation: ConversationId,
    task: TaskId,
    model: str,
    message: AssistantMessage | None,
    why: str,
) -> None:
    """Keep what an attempt at a summary used, and why it gave none; booked as any request."""
    usage = None if message is None else message.usage
    data = {"model": model, "usage": None if usage is None else msgspec.to_builtins(usage), "error": why or None}
    tx.put_entry(conversation, ATTEMPT, data=jsonvalue.encode(data), task=task)
    await book(tx, conversation, "models", model, usage)
