"""Commit rules of the agent: a run whose generation ended by itself is closed in the same commit."""

from typing import Any

import msgspec

from perdure.agent.compactions import COMPACTION, show_ended
from perdure.agent.documents import LiveDoc
from perdure.agent.runs import close_run
from perdure.agent.streaming import keep_partial
from perdure.base.errors import InvalidValue
from perdure.extensions.settled import Settled
from perdure.models.messages import decode_messages
from perdure.storage.records import Task
from perdure.tasks.outcomes import AnyOutcome, Completed
from perdure.tasks.states import outcome_of
from perdure.tasks.transaction import TaskTransaction

GENERATION = "perdure.generation"
TOOL = "perdure.tool"
ENDED = (GENERATION, TOOL, COMPACTION)


async def check_entries(tx: TaskTransaction) -> None:
    """Refuse an entry of foreign code whose messages no transcript could read again."""
    for entry in tx.changes.entries.values():
        if entry.messages == b"[]" or entry.kind.startswith("perdure."):
            continue
        try:
            decode_messages(entry.messages)
        except msgspec.MsgspecError as error:
            raise InvalidValue(
                f"an entry of kind {entry.kind} does not give messages: {error}",
                hint="to_model() returns a list of UserMessage, AssistantMessage, ToolResultMessage or SystemMessage",
            ) from error


async def close_ended(tx: TaskTransaction) -> None:
    """Settle what no code will settle any more: runs and slots of tasks that faulted, were aborted or orphaned."""
    for write in list(tx.changes.tasks.values()):
        task = write.task
        if task.status not in ("completing", "terminal") or task.kind not in ENDED:
            continue
        live: Any = await tx.value_of(LiveDoc, task.conversation)
        if live is None:
            continue
        if task.kind == GENERATION:
            await _close_run_of(tx, task, live)
        elif task.status == "terminal":
            await (_close_slot(tx, task, live) if task.kind == TOOL else show_ended(tx, task))


async def _close_run_of(tx: TaskTransaction, task: Task, live: Any) -> None:
    run = live["run"]
    if run is None or run["generation"] != task.id:
        return
    outcome = outcome_of(task)
    if isinstance(outcome, Completed):
        return
    await keep_partial(tx, task.conversation, task.id, outcome.why or outcome.status)
    await close_run(tx, task.conversation, Settled("unanswered", reason=outcome.status, detail=outcome.why or None))


async def _close_slot(tx: TaskTransaction, task: Task, live: Any) -> None:
    slot = live["tools"].get(str(task.id))
    if slot is None or slot["status"] == "done":
        return
    outcome: AnyOutcome = outcome_of(task)
    done = {
        "name": slot["name"],
        "call_id": slot["call_id"],
        "status": "done",
        "is_error": True,
        "ended": outcome.status,
    }
    await tx.patch(LiveDoc, task.conversation, [{"op": "replace", "path": f"/tools/{task.id}", "value": done}])
