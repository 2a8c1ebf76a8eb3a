"""A round of tool calls: one task for each, side by side or one after the other, and what comes when all have ended."""

from typing import Any

from perdure.agent.agent import Agent
from perdure.agent.answers import stand
from perdure.agent.calls import CallSite, answer_message, ready_at_once
from perdure.agent.documents import LiveDoc
from perdure.agent.entries import ToolResultEntry, put
from perdure.agent.hooks import copy_of, decisions, has_hooks, start_all, task_list
from perdure.agent.resets import hand_off
from perdure.agent.runs import count_turn
from perdure.agent.tool_task import ToolTask
from perdure.base.ids import ConversationId, EntryId, TaskId
from perdure.extensions.results import Control, Handoff, Terminate, ToolRound, read_control
from perdure.models.messages import ToolCall, ToolResultMessage, decode_messages
from perdure.tasks.decisions import Next
from perdure.tasks.outcomes import Completed
from perdure.tasks.runtime import TaskRun
from perdure.tasks.states import Checkpoint, Pending, apply_state
from perdure.tasks.transaction import TaskTransaction


async def ready_calls(agent: Agent, run: TaskRun, calls: list[ToolCall]) -> dict[int, str]:
    """Calls whose intent can be stored with the answer: their position, and the tool's replay policy."""
    names = await agent.names(run.conversation_id)
    found: dict[int, str] = {}
    for position, call in enumerate(calls):
        resolved = names.resolved.tools.get(call.name)
        if resolved is not None and ready_at_once(CallSite(agent, run, names, call, resolved)):
            found[position] = resolved.tool.replay
    return found


async def start_round(
    this: Any, tx: TaskTransaction, run: TaskRun, answer: EntryId, calls: list[ToolCall], ready: dict[int, str]
) -> Next[Any]:
    """The calls of an answer, in the commit that stores it. Those to tools that were not offered are answered now."""
    agent: Agent = run.host
    conversation = run.conversation_id
    await count_turn(tx, conversation)
    offered = await offered_tools(agent, conversation)
    started: list[TaskId] = []
    sequential = not agent.settings.parallel_tools or any(offered[call.name] for call in calls if call.name in offered)
    for position, call in enumerate(calls):
        if call.name not in offered:
            put(tx, conversation, ToolResultEntry, unavailable(call), task=run.task_id)
        elif not (sequential and started):
            started.append(await _start_call(tx, run, answer, position, call, ready.get(position)))
    if not started:
        return tx.goto(this.boundary, answer)
    if sequential and len(calls) > 1:
        position = next(p for p, call in enumerate(calls) if call.name in offered)
        return tx.wait(started, "all_settled", this.next_call, answer, started, position + 1)
    return tx.wait(started, "all_settled", this.boundary, answer)


async def start_next_call(this: Any, run: TaskRun, answer: EntryId, done: int) -> Next[Any]:
    """The call at position `done` or behind it, in a round where one waits for the other."""
    agent: Agent = run.host
    message = await answer_message(agent, run, answer)
    calls = [block for block in message.content if isinstance(block, ToolCall)]
    offered = await offered_tools(agent, run.conversation_id)
    async with run.transaction() as tx:
        for position in range(done, len(calls)):
            if calls[position].name in offered:  # else it was answered when the round began
                id = await _start_call(tx, run, answer, position, calls[position], None)
                return tx.wait([id], "all_settled", this.next_call, answer, [id], position + 1)
        return tx.goto(this.boundary, answer)


async def _start_call(
    tx: TaskTransaction, run: TaskRun, answer: EntryId, position: int, call: ToolCall, replay: str | None
) -> TaskId:
    """Create the task of one call and its slot in the live document; with `replay` its intent is stored too."""
    id = tx.create_task(ToolTask(answer=answer, position=position), owner=run.task_id)
    if replay is not None:
        created = tx.changes.tasks[id].task
        intent = Checkpoint("begin", {"arguments": call.arguments, "replay": replay})
        tx.put_task(apply_state(created, Pending(intent)))
    status = "pending" if replay is None else "running"
    slot = {"name": call.name, "call_id": call.id, "status": status, "output": ""}
    await tx.patch(LiveDoc, run.conversation_id, [{"op": "add", "path": f"/tools/{id}", "value": slot}])
    return id


def unavailable(call: ToolCall) -> ToolResultMessage:
    """The result of a call to a tool that was not offered."""
    return ToolResultMessage(call.id, call.name, f"tool_unavailable: no tool {call.name!r} here", True)


async def offered_tools(agent: Agent, conversation: ConversationId) -> dict[str, bool]:
    """The tools that the model was told of; True for those that want their round sequential."""
    transcript = await agent.transcripts.get(conversation)
    names = await agent.names(conversation)
    tools = names.resolved.tools
    return {offer.name: offer.name in tools and tools[offer.name].tool.sequential for offer in transcript.prompt.tools}


# the end of a round


async def ask_after_tools(this: Any, run: TaskRun, answer: EntryId) -> Next[Any]:
    """All calls have ended: `after_tools` hooks may start tasks that the end of the round waits for."""
    agent: Agent = run.host
    if await has_hooks(agent, run, "after_tools"):
        round = await _round(agent, run, answer)

        def subject() -> ToolRound:
            return ToolRound(answer, copy_of(round.message), tuple(map(copy_of, round.results)))

        wanted = await decisions(agent, run, "after_tools", subject, lambda given: task_list(agent, given))
        if wanted:
            async with run.transaction() as tx:
                started = start_all(agent, tx, [task for tasks in wanted for task in tasks])
                if not started:
                    return tx.goto(this.rounded, answer, started)
                return tx.wait(started, "all_settled", this.rounded, answer, started)
    return await end_round(this, run, answer)


async def end_round(this: Any, run: TaskRun, answer: EntryId, tasks: list[TaskId] | None = None) -> Next[Any]:
    """The run ends if all results, one task of a hook, or one result's handoff ask for it; else the next request is
    prepared."""
    agent: Agent = run.host
    outcomes = await run.outcomes(tasks or ())
    stopped = any(isinstance(o, Completed) and o.value == {"terminate": True} for o in outcomes)
    controls = await round_controls(agent, run, answer)
    if notes := [control.note for control in controls if isinstance(control, Handoff)]:
        return await hand_off(this, run, "\n\n".join(notes))
    if stopped or all(isinstance(control, Terminate) for control in controls):
        return await stand(this, run, answer)
    again: Next[Any] = await this.prepare(run)
    return again


async def round_controls(agent: Agent, run: TaskRun, answer: EntryId) -> list[Control | None]:
    """What each call of the round asked of the run; None also for calls that were never started."""
    live: Any = await agent.session.value_of(LiveDoc, run.conversation_id)
    message = await answer_message(agent, run, answer)
    asked = sum(isinstance(block, ToolCall) for block in message.content)
    found = [read_control(slot.get("control")) for slot in live["tools"].values()]
    return [*found, *[None] * (asked - len(found))]


async def _round(agent: Agent, run: TaskRun, answer: EntryId) -> ToolRound:
    """The round behind an answer, results in the order of the calls."""
    message = await answer_message(agent, run, answer)
    results: dict[str, ToolResultMessage] = {}
    storage = await agent.session.store.settled()
    for entry in await storage.scan_entries(run.conversation_id, after=answer, limit=1000):
        for found in decode_messages(entry.messages):
            if isinstance(found, ToolResultMessage):
                results.setdefault(found.call_id, found)
    calls = [block for block in message.content if isinstance(block, ToolCall)]
    return ToolRound(answer, message, tuple(results[call.id] for call in calls if call.id in results))
