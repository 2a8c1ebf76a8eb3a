"""Intents that ride with the commit before them: a request is prepared in the commit that makes it due.

Only when nothing has to be waited for: no sections to render, no budget, the transcript in memory. Otherwise the
generation's own phases do the same in commits of their own.
"""

from typing import Any, Final

from perdure.agent.agent import Agent
from perdure.agent.documents import AgentDoc, LiveDoc
from perdure.agent.entries import SystemEntry, put
from perdure.agent.prompt import change
from perdure.agent.rules import GENERATION
from perdure.agent.runs import join_run, moves_range
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
        if state.checkpoint.phase in DUE and not state.restarts:
            await _advance(agent, tx, task)


async def _advance(agent: Agent, tx: TaskTransaction, task: Task) -> None:
    conversation = task.conversation
    transcript = agent.transcripts.held(conversation)
    if transcript is None or not agent.settings.budget.unbounded or task.id in agent.session.tasks.scheduler.blocked:
        return
    names = agent.names_of(conversation, await tx.value_of(AgentDoc, conversation))
    live: Any = await tx.value_of(LiveDoc, conversation)
    if names.model is None or names.resolved.sections or live is None or live["run"] is None:
        return
    if any("control" in slot for slot in live["tools"].values()):
        return
    if live["run"]["turns"]:
        await join_run(tx, conversation, agent.settings)
    if moves_range(tx, conversation):
        return  # the prompt has to be told anew, from the range as it is then
    message = change(
        transcript.prompt,
        [("instructions", names.instructions)],
        [resolved.tool.offer for resolved in names.resolved.tools.values()],
    )
    if message is not None:
        put(tx, conversation, SystemEntry, message, task=task.id)
    if live["tools"]:
        await tx.patch(LiveDoc, conversation, [{"op": "replace", "path": "/tools", "value": {}}])
    newest = [entry.id for entry in tx.changes.entries.values() if entry.conversation == conversation]
    arguments: dict[str, Any] = {"model": names.model, "up_to": newest[-1] if newest else transcript.newest}
    if names.thinking is not None:
        arguments["thinking"] = names.thinking
    tx.put_task(apply_state(task, Pending(Checkpoint("request", arguments))))
