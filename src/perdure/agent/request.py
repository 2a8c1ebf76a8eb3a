"""The request phase of a generation: ask the model, and store what came of it in one commit."""

from collections.abc import AsyncIterator
from typing import Any, Literal

from perdure.agent.agent import Agent
from perdure.agent.classify import Answer, Empty, NoAnswer, Round, classify
from perdure.agent.context import Context
from perdure.agent.deferred import (
    NotAnswered,
    asks_again,
    checked,
    deferring,
    failed_pause,
    pause_of,
    show,
    tell_cancelled,
)
from perdure.agent.documents import LiveDoc
from perdure.agent.entries import AssistantEntry, ToolResultEntry, put
from perdure.agent.hooks import copy_of, decisions, has_hooks
from perdure.agent.prepare import build_request
from perdure.agent.room import make_room, start_compaction
from perdure.agent.rounds import ready_calls, start_round
from perdure.agent.runs import clear_attempt, close_run, finish_run
from perdure.agent.streaming import Partial, keep_partial, stream_answer
from perdure.agent.usage import book
from perdure.base.ids import ConversationId, EntryId
from perdure.extensions.settled import Settled
from perdure.models.errors import ContextTooLong, ModelError
from perdure.models.messages import AssistantMessage, ToolCall, ToolResultMessage
from perdure.models.protocol import Deferred, Event, Model, loaded
from perdure.models.retry import next_attempt
from perdure.tasks.decisions import Next
from perdure.tasks.runtime import TaskRun
from perdure.tasks.transaction import TaskTransaction

Waited = Literal["", "blocking", "overflow"]
"""What a request waited for before it was prepared: nothing, or a summary since the limit was near, or passed."""

EMPTY_ATTEMPTS = 2
"""Answers without a word that are taken before the run ends as `empty`."""


class Request:
    """The request phase: ask, and store what came of it in one commit."""

    def __init__(
        self,
        this: Any,
        run: TaskRun,
        model: str,
        up_to: EntryId,
        thinking: str | None,
        attempt: int,
        empty: int,
        waited: Waited,
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
        self.waited = waited

    async def go(self) -> Next[Any]:
        await self._keep_cut_off()
        partial = Partial(self.model_name)
        try:
            model = await loaded(self.agent.models.model(self.model_name))
            context = (await self.agent.transcripts.get(self.conversation)).context(self.up_to)
            if self.attempt == 1 and (parked := await self._make_room(model, context)) is not None:
                return parked
            prepared = await build_request(self.agent, self.run, model, context, self.thinking)
            response = await self._read(model.stream(prepared), partial)
        except ModelError as error:
            return await self._failed(error, partial)
        if isinstance(response, Deferred):
            return await self._ask_later(response.handle, pause_of(response.after), self.run.now(), 0)
        return await self._responded(response)

    async def poll(self, handle: Any, since: float, failures: int) -> Next[Any]:
        """Ask for an answer that was put off. Entered again after a crash: it is asked for again, nothing else."""
        await self._keep_cut_off()
        partial = Partial(self.model_name)
        try:
            model = deferring(self.agent.models.model(self.model_name))
            if self.run.now() - since > self.agent.settings.deferred_limit:
                await tell_cancelled(self.agent, self.model_name, handle)
                raise NotAnswered(f"{self.model_name} had no answer after {self.run.now() - since:,.0f} s")
            context = (await self.agent.transcripts.get(self.conversation)).context(self.up_to)
            prepared = await build_request(self.agent, self.run, model, context, self.thinking)
            response = await self._read(model.poll(handle, prepared), partial)
        except ModelError as error:
            if not asks_again(error):
                return await self._failed(error, partial)
            pause = failed_pause(error, failures + 1, self.agent.settings.retry)
            return await self._ask_later(handle, pause, since, failures + 1)
        if isinstance(response, Deferred):
            return await self._ask_later(response.handle, pause_of(response.after), since, 0)
        return await self._responded(response)

    async def _read(self, stream: AsyncIterator[Event], partial: Partial) -> AssistantMessage | Deferred:
        agent = self.agent
        response = await stream_answer(self.run, stream, partial, agent.settings.progress_interval, agent.session.clock)
        return checked(response) if isinstance(response, Deferred) else response

    async def _ask_later(self, handle: Any, pause: float, since: float, failures: int) -> Next[Any]:
        async with self.run.transaction() as tx:
            until = tx.now_millis / 1000 + pause
            await show(tx, self.conversation, until, since)
            return tx.sleep(
                self.this.poll,
                (),
                until,
                self.model_name,
                self.up_to,
                handle,
                since,
                failures,
                self.thinking,
                self.attempt,
                self.empty,
                self.waited,
            )

    async def _responded(self, message: AssistantMessage) -> Next[Any]:
        message = self.agent.priced(self.model_name, message)
        await decisions(self.agent, self.run, "after_response", lambda: copy_of(message), lambda given: None)
        return await self._answered(message)

    async def _keep_cut_off(self) -> None:
        """The process died in the middle of this request: what had come stays, marked as aborted."""
        live: Any = await self.agent.session.value_of(LiveDoc, self.conversation)
        if live is not None and live["partial"] is not None:
            async with self.run.transaction() as tx:
                await keep_partial(
                    tx, self.conversation, self.run.task_id, "the process ended while the answer was streaming"
                )

    async def _make_room(self, model: Model, context: Context) -> Next[Any] | None:
        return await make_room(
            self.agent,
            self.run,
            model,
            context,
            waited=self.waited,
            prepare=self.this.prepare,
            then=self.this.compacted,
        )

    async def _answered(self, message: AssistantMessage) -> Next[Any]:
        meaning = classify(message)
        if isinstance(meaning, Empty):
            return await self._was_empty(message)
        calls = meaning.calls if isinstance(meaning, Round) else []
        ready = await ready_calls(self.agent, self.run, calls) if calls else {}
        open_yet = isinstance(meaning, Answer) and await has_hooks(self.agent, self.run, "on_yield", "after_run")
        async with self.run.transaction() as tx:
            answer = put(tx, self.conversation, AssistantEntry, message, task=self.run.task_id)
            await book(tx, self.conversation, "models", self.model_name, message.usage)
            if calls:
                return await start_round(self.this, tx, self.run, answer, calls, ready)
            if open_yet:
                await clear_attempt(tx, self.conversation)
                return tx.goto(self.this.answered, answer)
            if isinstance(meaning, NoAnswer):
                for call in message.content:
                    if isinstance(call, ToolCall):
                        put(tx, self.conversation, ToolResultEntry, not_run(call), task=self.run.task_id)
                settled = Settled("unanswered", reason=meaning.reason, detail=meaning.detail)
                await close_run(tx, self.conversation, settled)
            else:
                settled = Settled("done", answer=answer)
                await finish_run(tx, self.conversation, settled, self.agent.settings, type(self.this))
            return tx.complete({"answer": answer})

    async def _was_empty(self, message: AssistantMessage) -> Next[Any]:
        stored = AssistantMessage(
            message.content, "error", self.model_name, message.usage, message.provider, "the answer was empty"
        )
        async with self.run.transaction() as tx:
            await self._store_attempt(tx, stored)
            if self.empty + 1 < EMPTY_ATTEMPTS:
                return tx.goto(
                    self.this.request,
                    self.model_name,
                    self.up_to,
                    self.thinking,
                    self.attempt + 1,
                    self.empty + 1,
                    self.waited,
                )
            await close_run(tx, self.conversation, Settled("unanswered", reason="empty", detail="the answer was empty"))
            return tx.complete(None)

    async def _failed(self, error: ModelError, partial: Partial) -> Next[Any]:
        """The attempt stays in the transcript, unseen by models; then a durable pause, or the end of the run."""
        delay = next_attempt(error, self.attempt, self.agent.settings.retry)
        message = partial.message(self.model_name, "error", f"{error.code}: {error}")
        async with self.run.transaction() as tx:
            await self._store_attempt(tx, message)
            if isinstance(error, ContextTooLong) and self.waited != "overflow" and self._may_compact():
                id = await start_compaction(tx, self.conversation, "overflow", owner=self.run.task_id)
                return tx.wait([id], "all_settled", self.this.shortened, id, error.code, str(error))
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
                self.waited,
            )

    def _may_compact(self) -> bool:
        return self.agent.settings.compaction.automatic

    async def _store_attempt(self, tx: TaskTransaction, message: AssistantMessage) -> None:
        put(tx, self.conversation, AssistantEntry, message, task=self.run.task_id)
        await book(tx, self.conversation, "models", self.model_name, message.usage)
        live: Any = await tx.value_of(LiveDoc, self.conversation)
        if live["partial"] is not None:
            await tx.patch(LiveDoc, self.conversation, [{"op": "replace", "path": "/partial", "value": None}])
        if live.get("deferred") is not None:
            await tx.patch(LiveDoc, self.conversation, [{"op": "remove", "path": "/deferred"}])


def not_run(call: ToolCall) -> ToolResultMessage:
    """The result of a call in an answer that ended the run: it never began."""
    return ToolResultMessage(call.id, call.name, "aborted: the call was not run, since the answer was not whole", True)
