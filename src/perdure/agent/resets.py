"""Beginning a new context: a write whose head is itself. Placed behind a round of tools, it ends the run."""

from typing import Any, Final

from perdure.agent.agent import Agent
from perdure.agent.documents import LiveDoc
from perdure.agent.entries import ResetEntry, put
from perdure.agent.runs import finish_run, place_queued
from perdure.agent.submissions import Draft, queued_items, write_draft
from perdure.base.errors import InvalidValue
from perdure.base.ids import ConversationId
from perdure.base.text import well_formed
from perdure.extensions.settled import Settled
from perdure.models.messages import UserMessage
from perdure.tasks.decisions import Next
from perdure.tasks.runtime import TaskRun
from perdure.tasks.transaction import TaskTransaction

ENDED: Final = Settled("unanswered", reason="reset", detail="a new context was begun before there was an answer")


def reset_draft(note: Any, request_id: str | None = None) -> Draft:
    """The write that begins a new context, from a note if there is one. Raises `InvalidValue` for an empty one."""
    if note is not None and (not isinstance(note, str) or not note.strip()):
        raise InvalidValue("a handoff is a text that is not empty", hint="reset() alone begins with nothing")
    message = None if note is None else UserMessage(well_formed(note))
    return write_draft(ResetEntry(message), request_id=request_id, head=True)


async def reset_comes(tx: TaskTransaction, conversation: ConversationId) -> bool:
    """Place the writes that wait for this boundary; True: one of them begins a new context, so the run ends."""
    live: Any = await tx.value_of(LiveDoc, conversation)
    if not live["run"]["turns"] or not await queued_items(tx, conversation):
        return False
    await place_queued(tx, conversation, how=("write",), at_most={})
    return any(entry.conversation == conversation and entry.head == id for id, entry in tx.changes.entries.items())


async def end_by_reset(this: Any, tx: TaskTransaction, run: TaskRun) -> Next[Any]:
    """The run's inputs settle; steers and follow-ups that wait begin the next run, in the new context."""
    agent: Agent = run.host
    await finish_run(tx, run.conversation_id, ENDED, agent.settings, type(this))
    return tx.complete(None)


async def hand_off(this: Any, run: TaskRun, note: str) -> Next[Any]:
    """A tool asked for a new context that begins with a note."""
    async with run.transaction() as tx:
        put(tx, run.conversation_id, ResetEntry, UserMessage(note), task=run.task_id, head=True)
        return await end_by_reset(this, tx, run)
