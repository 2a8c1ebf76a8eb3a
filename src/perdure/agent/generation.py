"""The task that works on a run: prepare a request, stream it, start its tools, go round again, answer."""

from typing import Any

from perdure.agent.agent import Agent
from perdure.agent.calls import CallSite, answer_message, ready_at_once
from perdure.agent.classify import Answer, Empty, NoAnswer, Round, classify
from perdure.agent.documents import LiveDoc
from perdure.agent.entries import AssistantEntry, SystemEntry, ToolResultEntry, put
from perdure.agent.prepare import build_request, hooks_after_response, prepare_request, spent_budget
from perdure.agent.runs import close_run, finish_run, go_on_after_abort, join_run, moves_range
from perdure.agent.streaming import Partial, keep_partial, stream_answer
from perdure.agent.submissions import Settled
from perdure.agent.tool_task import ToolTask
from perdure.agent.usage import book
from perdure.base.delta import Operation
from perdure.base.ids import ConversationId, EntryId, TaskId
from perdure.extensions.results import Terminate, read_control
from perdure.models.errors import ModelError
from perdure.models.messages import AssistantMessage, ToolCall, ToolResultMessage
from perdure.models.retry import next_attempt
from perdure.tasks.decisions import Next
from perdure.tasks.definition import phase, task
from perdure.tasks.runtime import TaskRun
from perdure.tasks.states import Checkpoint, Pending, apply_state
from perdure.tasks.transaction import TaskTransaction

EMPTY_ATTEMPTS = 2
"""Answers without a word that are taken before the run ends as `empty`."""


@task("perdure.generation", version=1)
class Generation:
    """One run of a conversation."""

    @phase(first=True)
    async def prepare(self, run: TaskRun) -> Next[Any]:
        """Fix prompt, tools, model and the newest entry in one commit; what is queued for this boundary joins."""
        return await _prepare(self, run)

    @phase
    async def request(
        self, run: TaskRun, model: str, up_to: EntryId, thinking: str | None = None, attempt: int = 1, empty: int = 0
    ) -> Next[Any]:
        """Stream exactly the prepared request. Entered again after a crash: the partial is kept, the request resent."""
        return await _Request(self, run, model, up_to, thinking, attempt, empty).go()

    @phase
    async def next_call(self, run: TaskRun, answer: EntryId, calls: list[TaskId], done: int) -> Next[Any]:
        """A sequential round: the next call starts when the one before has ended."""
        agent: Agent = run.host
        return await _sequential(self, run, agent, answer, done)

    @phase
    async def boundary(self, run: TaskRun, answer: EntryId) -> Next[Any]:
        """All calls of the round have ended."""
        agent: Agent = run.host
        live: Any = await agent.session.value_of(LiveDoc, run.conversation_id)
        slots = list(live["tools"].values())
        asked = sum(isinstance(block, ToolCall) for block in (await answer_message(agent, run, answer)).content)
        if len(slots) == asked and all(read_control(slot.get("control")) == Terminate() for slot in slots):
            async with run.transaction() as tx:
                await finish_run(tx, run.conversation_id, Settled("done", answer=answer), agent.settings, Generation)
                return tx.complete({"answer": answer})
        return await _prepare(self, run)

    async def abort(self, run: TaskRun) -> Next[Any]:
        """The run was stopped: what came so far stays in the transcript, its inputs settle `aborted`."""
        async with run.transaction() as tx:
            await keep_partial(tx, run.conversation_id, run.task_id, "aborted")
            await close_run(tx, run.conversation_id, Settled("unanswered", reason="aborted"))
            await go_on_after_abort(tx, run.conversation_id, Generation)
            return tx.aborted()


async def _prepare(this: Generation, run: TaskRun) -> Next[Any]:
    agent: Agent = run.host
    conversation = run.conversation_id
    prepared = await prepare_request(agent, conversation)
    if isinstance(prepared, Settled):
        return await _give_up(run, prepared)
    over = await spent_budget(agent, conversation)
    async with run.transaction() as tx:
        live: Any = await tx.value_of(LiveDoc, conversation)
        if over is not None:
            await close_run(tx, conversation, Settled("unanswered", reason="budget", detail=over))
            return tx.complete(None)
        if live["run"]["turns"]:
            await join_run(tx, conversation, agent.settings)
            if moves_range(tx, conversation):
                return tx.goto(this.prepare)  # the prompt has to be told anew
        if prepared.change is not None:
            put(tx, conversation, SystemEntry, prepared.change, task=run.task_id)
        if live["tools"]:
            await tx.patch(LiveDoc, conversation, [{"op": "replace", "path": "/tools", "value": {}}])
        up_to = max(
            (e.id for e in tx.changes.entries.values() if e.conversation == conversation), default=prepared.newest
        )
        return tx.goto(this.request, prepared.model, up_to, prepared.thinking)


async def _give_up(run: TaskRun, settled: Settled) -> Next[Any]:
    async with run.transaction() as tx:
        await close_run(tx, run.conversation_id, settled)
        return tx.fail({"code": settled.reason or "failed", "message": settled.detail or settled.reason or "failed"})


class _Request:
    """The request phase: ask, and store what came of it in one commit."""

    def __init__(
        self,
        this: Generation,
        run: TaskRun,
        model: str,
        up_to: EntryId,
        thinking: str | None,
        attempt: int,
        empty: int,
    ) -> None:
        self.this = this
        self.run = run
        self.agent: Agent = run.host
        self.conversation: ConversationId = run.conversation_id
        self.model_name = model
        self.up_to = up_to
        self.thinking = thinking
        self.attempt = attempt
        self.empty = empty

    async def go(self) -> Next[Any]:
        await self._keep_cut_off()
        partial = Partial(self.model_name)
        try:
            model = self.agent.models.model(self.model_name)
            prepared = await self._request(model)
            message = await stream_answer(
                self.run, model, prepared, partial, self.agent.settings.progress_interval, self.agent.session.clock
            )
        except ModelError as error:
            return await self._failed(error, partial)
        message = self.agent.priced(self.model_name, message)
        await hooks_after_response(self.agent, self.run, message)
        return await self._answered(message)

    async def _keep_cut_off(self) -> None:
        """The process died in the middle of this request: what had come stays, marked as aborted."""
        live: Any = await self.agent.session.value_of(LiveDoc, self.conversation)
        if live is not None and live["partial"] is not None:
            async with self.run.transaction() as tx:
                await keep_partial(
                    tx, self.conversation, self.run.task_id, "the process ended while the answer was streaming"
                )

    async def _request(self, model: Any) -> Any:
        transcript = await self.agent.transcripts.get(self.conversation)
        context = transcript.context(self.up_to)
        return await build_request(self.agent, self.run, model, context, self.thinking)

    async def _answered(self, message: AssistantMessage) -> Next[Any]:
        meaning = classify(message)
        if isinstance(meaning, Empty):
            return await self._was_empty(message)
        ready = await self._ready_calls(meaning)
        async with self.run.transaction() as tx:
            answer = put(tx, self.conversation, AssistantEntry, message, task=self.run.task_id)
            await book(tx, self.conversation, "models", self.model_name, message.usage)
            match meaning:
                case Answer():
                    settled = Settled("done", answer=answer)
                case NoAnswer(reason=reason, detail=detail):
                    settled = Settled("unanswered", reason=reason, detail=detail)
                case Round(calls=calls):
                    return await self._start_round(tx, answer, calls, ready)
            for call in message.content:  # of an answer that was cut or refused
                if isinstance(call, ToolCall):
                    put(tx, self.conversation, ToolResultEntry, not_run(call), task=self.run.task_id)
            if settled.status == "done":
                await finish_run(tx, self.conversation, settled, self.agent.settings, Generation)
            else:
                await close_run(tx, self.conversation, settled)
            return tx.complete({"answer": answer})

    async def _ready_calls(self, meaning: Any) -> dict[int, str]:
        """Calls whose intent can be stored with the answer: their position, and the tool's replay policy."""
        if not isinstance(meaning, Round):
            return {}
        names = await self.agent.names(self.conversation)
        found: dict[int, str] = {}
        for position, call in enumerate(meaning.calls):
            resolved = names.resolved.tools.get(call.name)
            if resolved is not None and ready_at_once(CallSite(self.agent, self.run, names, call, resolved)):
                found[position] = resolved.tool.replay
        return found

    async def _start_round(
        self, tx: TaskTransaction, answer: EntryId, calls: list[ToolCall], ready: dict[int, str]
    ) -> Next[Any]:
        live: Any = await tx.value_of(LiveDoc, self.conversation)
        ops: list[Operation] = [{"op": "replace", "path": "/run/turns", "value": live["run"]["turns"] + 1}]
        if live["partial"] is not None:
            ops.append({"op": "replace", "path": "/partial", "value": None})
        if live["retry"] is not None:
            ops.append({"op": "replace", "path": "/retry", "value": None})
        await tx.patch(LiveDoc, self.conversation, ops)
        offered = await offered_tools(self.agent, self.conversation)
        started: list[TaskId] = []
        sequential = not self.agent.settings.parallel_tools or any(
            offered[call.name] for call in calls if call.name in offered
        )
        for position, call in enumerate(calls):
            if call.name not in offered:
                put(tx, self.conversation, ToolResultEntry, unavailable(call), task=self.run.task_id)
            elif not (sequential and started):
                id = await start_call(self.agent, tx, self.run, answer, position, call, ready.get(position))
                started.append(id)
        if not started:
            return tx.goto(self.this.boundary, answer)
        if sequential and len(calls) > 1:
            position = next(p for p, call in enumerate(calls) if call.name in offered)
            return tx.wait(started, "all_settled", self.this.next_call, answer, started, position + 1)
        return tx.wait(started, "all_settled", self.this.boundary, answer)

    async def _was_empty(self, message: AssistantMessage) -> Next[Any]:
        stored = AssistantMessage(
            message.content, "error", self.model_name, message.usage, message.provider, "the answer was empty"
        )
        async with self.run.transaction() as tx:
            await self._store_attempt(tx, stored)
            if self.empty + 1 < EMPTY_ATTEMPTS:
                return tx.goto(
                    self.this.request, self.model_name, self.up_to, self.thinking, self.attempt + 1, self.empty + 1
                )
            await close_run(tx, self.conversation, Settled("unanswered", reason="empty", detail="the answer was empty"))
            return tx.complete(None)

    async def _failed(self, error: ModelError, partial: Partial) -> Next[Any]:
        """The attempt stays in the transcript, unseen by models; then a durable pause, or the end of the run."""
        delay = next_attempt(error, self.attempt, self.agent.settings.retry)
        message = partial.message(self.model_name, "error", f"{error.code}: {error}")
        async with self.run.transaction() as tx:
            await self._store_attempt(tx, message)
            if delay is None:
                settled = Settled("unanswered", reason="failed", detail=f"{error.code}: {error}")
                await close_run(tx, self.conversation, settled)
                return tx.fail({"code": error.code, "message": str(error)})
            until = tx.now_millis / 1000 + delay
            retry = {"attempt": self.attempt, "until": until, "error": f"{error.code}: {error}"}
            await tx.patch(LiveDoc, self.conversation, [{"op": "replace", "path": "/retry", "value": retry}])
            return tx.sleep(
                self.this.request,
                (),
                until,
                self.model_name,
                self.up_to,
                self.thinking,
                self.attempt + 1,
                self.empty,
            )

    async def _store_attempt(self, tx: TaskTransaction, message: AssistantMessage) -> None:
        put(tx, self.conversation, AssistantEntry, message, task=self.run.task_id)
        await book(tx, self.conversation, "models", self.model_name, message.usage)
        live: Any = await tx.value_of(LiveDoc, self.conversation)
        if live["partial"] is not None:
            await tx.patch(LiveDoc, self.conversation, [{"op": "replace", "path": "/partial", "value": None}])


async def start_call(
    agent: Agent, tx: TaskTransaction, run: TaskRun, answer: EntryId, position: int, call: ToolCall, replay: str | None
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


def not_run(call: ToolCall) -> ToolResultMessage:
    """The result of a call in an answer that ended the run: it never began."""
    return ToolResultMessage(call.id, call.name, "aborted: the call was not run, since the answer was not whole", True)


def unavailable(call: ToolCall) -> ToolResultMessage:
    """The result of a call to a tool that was not offered."""
    return ToolResultMessage(call.id, call.name, f"tool_unavailable: no tool {call.name!r} here", True)


async def offered_tools(agent: Agent, conversation: ConversationId) -> dict[str, bool]:
    """The tools that the model was told of; True for those that want their round sequential."""
    transcript = await agent.transcripts.get(conversation)
    names = await agent.names(conversation)
    tools = names.resolved.tools
    return {offer.name: offer.name in tools and tools[offer.name].tool.sequential for offer in transcript.prompt.tools}


async def _sequential(this: Generation, run: TaskRun, agent: Agent, answer: EntryId, done: int) -> Next[Any]:
    message = await answer_message(agent, run, answer)
    calls = [block for block in message.content if isinstance(block, ToolCall)]
    offered = await offered_tools(agent, run.conversation_id)
    async with run.transaction() as tx:
        for position in range(done, len(calls)):
            call = calls[position]
            if call.name not in offered:
                continue  # answered when the round began
            id = await start_call(agent, tx, run, answer, position, call, None)
            return tx.wait([id], "all_settled", this.next_call, answer, [id], position + 1)
        return tx.goto(this.boundary, answer)
