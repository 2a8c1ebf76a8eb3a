"""Intents that ride with the commit before them: a request is prepared in the commit that makes it due.

Only when nothing has to be waited for: no sections to render, no budget, the transcript in memory. Otherwise the
generation's own phases do the same in commits of their own.
"""

from typing import Any, Final

from perdure.agent.agent import Agent
from perdure.agent.documents import AgentDoc, LiveDoc
from perdure.agent.prepare import due_request
from perdure.agent.rules import GENERATION
from perdure.agent.submissions import queued_items
from perdure.storage.records import Task
from perdure.tasks.states import Checkpoint, Pending, apply_state, state_of
from perdure.tasks.transaction import TaskTransaction

DUE: Final = ("prepare", "boundary")


async def advance_generations(agent: Agent, tx: TaskTransaction) -> None:
    """Take generations that this commit makes runnable on to their request, where that needs no waiting."""
    for write in list(tx.changes.tasks.values()):
        task = write.task
        if task.kind != GENERATION or task.status != "pending" or task.abort_requested:
            continue
        state: Pending = state_of(task)
        anew = state.checkpoint.phase == "prepare" and state.checkpoint.arguments
        if state.checkpoint.phase in DUE and not anew and not state.restarts:
            await _advance(agent, tx, task, state.checkpoint.phase)


async def _advance(agent: Agent, tx: TaskTransaction, task: Task, phase: str) -> None:
    conversation = task.conversation
    if agent.transcripts.held(conversation) is None or task.id in agent.session.tasks.scheduler.blocked:
        return
    names = agent.names_of(conversation, await tx.value_of(AgentDoc, conversation))
    if names.model is None or names.resolved.sections or not agent.budget(names).unbounded:
        return
    live: Any = await tx.value_of(LiveDoc, conversation)
    if live is None or live["run"] is None:
        return
    if phase == "boundary" and (
        names.resolved.hooks_at("after_tools") or any("control" in slot for slot in live["tools"].values())
    ):
        return
    if any(item["how"] == "write" for item in await queued_items(tx, conversation)):
        return  # it may move the range, or end the run
    due = await due_request(agent, tx, task.id, conversation, names, [])
    if due is not None:
        arguments: dict[str, Any] = {"model": due.model, "up_to": due.up_to}
        if due.thinking is not None:
            arguments["thinking"] = due.thinking
        tx.put_task(apply_state(task, Pending(Checkpoint("request", arguments))))
