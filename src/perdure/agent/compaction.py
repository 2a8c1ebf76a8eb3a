"""The task that summarizes: choose a cut, ask the hooks, ask the model, place the summary."""

from typing import Any, Final, Literal

import msgspec

from perdure.agent.agent import Agent
from perdure.agent.compactions import (
    COMPACTION,
    Cause,
    Made,
    going_on,
    made,
    place_summary,
    show,
    store_attempt,
)
from perdure.agent.cut import Cut, choose_cut, keeping, limits
from perdure.agent.documents import LiveDoc
from perdure.agent.estimate import estimate_text, tokens_in_use
from perdure.agent.foreign import LOST, asked, close_quietly
from perdure.agent.hook_context import HookContext
from perdure.agent.prepare import agent_blob
from perdure.agent.runs import current_head
from perdure.agent.streaming import sound
from perdure.agent.summary import (
    request_by_record,
    request_in_place,
    task_text,
    text_of_answer,
    written_part,
)
from perdure.base.ids import EntryId
from perdure.extensions.results import CompactionPlan, Decline, Summary
from perdure.models.errors import ContextTooLong, CutOff, ModelError
from perdure.models.messages import AssistantMessage, ToolCall, decode_messages, encode_messages
from perdure.models.protocol import Finished, Model, ModelRequest, loaded
from perdure.models.retry import next_attempt
from perdure.tasks.decisions import Next
from perdure.tasks.definition import phase, task
from perdure.tasks.runtime import TaskRun

TRIES: Final = 3
"""Answers without a usable summary that are taken before the compaction fails."""
UNKNOWN_WINDOW: Final = 64_000
"""Tokens of a written record for a model whose window nobody knows."""
SMALLEST_PART: Final = 250
"""Tokens of a written record below which a model that still finds it too long is given up."""


class Asking(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the model is asked. `record`: tokens of a written record at once; None: the conversation's own request with
    the task behind it."""

    record: int | None = None
    begin: EntryId | None = None
    """Where the record goes on; what came before is in `so_far`."""
    so_far: str = ""
    shorter: bool = False
    attempt: int = 1
    tries: int = 1


@task(COMPACTION, version=1)
class CompactionTask:
    """One summary of a conversation's older messages."""

    cause: Cause
    instructions: str | None = None

    @phase(first=True)
    async def begin(self, run: TaskRun) -> Next[Any]:
        """Choose the cut and fix it in one commit, unless another compaction has to end first or a hook decides."""
        return await _begin(self, run)

    @phase
    async def summarize(
        self, run: TaskRun, model: str, cut: EntryId, replaced: int, most: int | None, asking: Asking
    ) -> Next[Any]:
        """Ask the model; its answer and its place are stored in one commit. Entered again after a crash: asked anew."""
        return await _Summarizing(self, run, model, cut, replaced, most, asking).go()

    async def abort(self, run: TaskRun) -> Next[Any]:
        """Stopped: nothing was placed."""
        return run.aborted()


async def _begin(this: CompactionTask, run: TaskRun) -> Next[Any]:
    agent: Agent = run.host
    conversation = run.conversation_id
    live: Any = await agent.session.value_of(LiveDoc, conversation)
    async with run.transaction() as tx:
        before = [id for id, _ in going_on(tx, live) if id < run.task_id]
        if before:
            return tx.wait(before, "all_settled", this.begin)
    names = await agent.names(conversation)
    if names.model is None:
        return run.fail({"code": "no_model", "message": "no model: configure the conversation with one"})
    try:
        window = (await loaded(agent.models.model(names.model))).context_window
    except ModelError as error:
        return run.fail({"code": error.code, "message": str(error)})
    transcript = await agent.transcripts.get(conversation)
    tokens = tokens_in_use(transcript.context())
    bounds = None if window is None else limits(window, agent.settings.compaction)
    cut = choose_cut(transcript.builder.places(), *keeping(this.cause, tokens, bounds, agent.settings.compaction))
    if cut is None:
        return run.complete(_ended("nothing", "there is nothing older to summarize"))
    decided = await _ask_hooks(this, run, cut)
    if isinstance(decided, Decline):
        return run.complete(_ended("declined", decided.reason or None))
    if isinstance(decided, Summary):
        return await _place(run, decided.text, cut.at, None, None)
    asking = _first_asking(window, tokens - cut.kept, agent)
    most = None if bounds is None else max(bounds.block // 2, 1)
    async with run.transaction() as tx:
        await show(tx, conversation, run.task_id, tokens=tokens)
        return tx.goto(this.summarize, names.model, cut.at, cut.older + cut.earlier, most, asking)


def _first_asking(window: int | None, tokens: int, agent: Agent) -> Asking:
    """In place if that fits with room for the answer; else by written record, as much at once as fits with ease."""
    if window is None or tokens <= window - min(agent.settings.compaction.reserve_tokens, window // 4):
        return Asking()
    return Asking(record=_record_tokens(window))


def _record_tokens(window: int | None) -> int:
    return UNKNOWN_WINDOW if window is None else max(window // 2, SMALLEST_PART)


def _ended(status: Made, reason: str | None = None) -> Any:
    return made(status, reason=reason)


async def _ask_hooks(this: CompactionTask, run: TaskRun, cut: Cut) -> Decline | Summary | None:
    """The first hook that decides. One that raises, or answers anything else, is reported and passed over."""
    agent: Agent = run.host
    names = await agent.names(run.conversation_id)
    hooks = names.resolved.hooks_at("before_compact")
    if not hooks:
        return None
    older = (await agent.transcripts.get(run.conversation_id)).builder.older(cut.at)
    encoded = encode_messages(older.messages)
    for hook in hooks:
        context = HookContext(agent, run, names)
        plan = CompactionPlan(this.cause, this.instructions, decode_messages(encoded), cut.at, cut.older, cut.kept)
        try:
            answer: Any = await asked(hook.function, context, plan)
            if isinstance(answer, Decline) or (isinstance(answer, Summary) and answer.text.strip()):
                return answer
            if answer is not None:
                raise TypeError(f"before_compact gives Decline, a Summary with text, or None, not {answer!r:.80}")
        except LOST:
            raise
        except Exception as error:
            agent.report(f"hook {hook.name}", error)
        finally:
            await close_quietly(agent, context)
    return None


async def _place(
    run: TaskRun, text: str, cut: EntryId, model: str | None, message: AssistantMessage | None
) -> Next[Any]:
    """The summary, what it cost, its place and the end of the task: one commit."""
    async with run.transaction() as tx:
        if model is not None:
            await store_attempt(tx, run.conversation_id, run.task_id, model, message, "")
        placed = await place_summary(tx, run.conversation_id, run.task_id, text, cut)
        return tx.complete(placed)


async def _whole_answer(run: TaskRun, model: Model, request: ModelRequest) -> AssistantMessage:
    """Ask, and wait for the whole response. Raises the model's errors."""
    stream = model.stream(request)
    try:
        async for event in stream:
            if isinstance(event, Finished):
                return sound(event.message)
            run.check_running()
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()
    raise CutOff("the stream ended without the end of the response")


class _Summarizing:
    """One attempt at a summary, or at a part of it."""

    def __init__(
        self,
        this: CompactionTask,
        run: TaskRun,
        model: str,
        cut: EntryId,
        replaced: int,
        most: int | None,
        asking: Asking,
    ) -> None:
        self.this = this
        self.run = run
        self.agent: Agent = run.host
        self.model_name = model
        self.cut = cut
        self.replaced = replaced
        self.most = most
        self.asking = asking
        self.next: EntryId | None = None
        """Where the next part of the record begins."""

    async def go(self) -> Next[Any]:
        if self.asking.attempt > 1:
            await self._show(status="running", until=None)
        head = await self._head()
        if head is not None and self.cut < head:
            return self.run.complete(_ended("stale", "the context has begun anew meanwhile"))
        try:
            model = await loaded(self.agent.models.model(self.model_name))
            message = await _whole_answer(self.run, model, await self._request(model))
        except ModelError as error:
            return await self._failed(error)
        return await self._answered(self.agent.priced(self.model_name, message))

    async def _head(self) -> EntryId | None:
        async with self.run.transaction() as tx:
            return await current_head(tx, self.run.conversation_id)

    async def _request(self, model: Model) -> ModelRequest:
        transcript = await self.agent.transcripts.get(self.run.conversation_id)
        asking = self.asking
        task_ = task_text(self.this.instructions, self.replaced, shorter=asking.shorter, whole=asking.record is None)
        if asking.record is None:
            request = request_in_place(model, transcript.builder.older(self.cut), task_)
        else:
            part = written_part(transcript.builder.places(), asking.begin, self.cut, asking.record)
            self.next = part.next
            request = request_by_record(part.text, task_, asking.so_far)
        return msgspec.structs.replace(
            request,
            session_id=f"perdure-{self.agent.session_tag}-{self.run.conversation_id}",
            options=self.agent.settings.stream_options,
            load_blob=agent_blob(self.agent),
        )

    async def _answered(self, message: AssistantMessage) -> Next[Any]:
        text = text_of_answer(message)
        if problem := self._problem(message, text):
            return await self._unusable(problem, message)
        if self.next is None:
            return await _place(self.run, text, self.cut, self.model_name, message)
        async with self.run.transaction() as tx:
            await self._store(tx, message, "")
            going_on_ = Asking(record=self.asking.record, begin=self.next, so_far=text)
            return tx.goto(self.this.summarize, self.model_name, self.cut, self.replaced, self.most, going_on_)

    def _problem(self, message: AssistantMessage, text: str) -> Literal["", "empty", "refused", "length", "too_long"]:
        if message.stop == "refusal":
            return "refused"
        if not text or any(isinstance(block, ToolCall) for block in message.content):
            return "empty"
        if message.stop == "length":
            return "length"
        size = estimate_text(text)
        return "too_long" if size >= self.replaced or (self.most is not None and size > self.most) else ""

    async def _unusable(self, problem: str, message: AssistantMessage) -> Next[Any]:
        """An answer that is no summary: asked again in another way, a bounded number of times."""
        words = {
            "empty": "the model gave no summary",
            "refused": "the model declined to summarize",
            "length": "the model's summary was cut at its output limit",
            "too_long": "the summary is no smaller than what it would replace",
        }[problem]
        asking = self.asking
        async with self.run.transaction() as tx:
            await self._store(tx, message, words)
            if problem == "refused" or asking.tries >= TRIES:
                return tx.fail({"code": problem, "message": words})
            record = asking.record
            if problem == "empty" and record is None:  # it would rather go on with the task: show it a record instead
                record = _record_tokens(self.agent.models.model(self.model_name).context_window)
            again = msgspec.structs.replace(
                asking, record=record, shorter=problem != "empty", tries=asking.tries + 1, attempt=1
            )
            return tx.goto(self.this.summarize, self.model_name, self.cut, self.replaced, self.most, again)

    async def _failed(self, error: ModelError) -> Next[Any]:
        """The attempt is kept; then a smaller request, a durable pause, or the end."""
        asking = self.asking
        why = f"{error.code}: {error}"
        async with self.run.transaction() as tx:
            await self._store(tx, None, why)
            if isinstance(error, ContextTooLong):
                smaller = self._smaller()
                if smaller is None:
                    return tx.fail({"code": error.code, "message": str(error)})
                return tx.goto(self.this.summarize, self.model_name, self.cut, self.replaced, self.most, smaller)
            delay = next_attempt(error, asking.attempt, self.agent.settings.retry)
            if delay is None:
                return tx.fail({"code": error.code, "message": str(error)})
            until = tx.now_millis / 1000 + delay
            await show(
                tx,
                self.run.conversation_id,
                self.run.task_id,
                status="waiting",
                until=until,
                attempt=asking.attempt,
                error=why,
            )
            again = msgspec.structs.replace(asking, attempt=asking.attempt + 1)
            return tx.sleep(self.this.summarize, (), until, self.model_name, self.cut, self.replaced, self.most, again)

    def _smaller(self) -> Asking | None:
        asking = self.asking
        if asking.record is None:
            window = self.agent.models.model(self.model_name).context_window
            return msgspec.structs.replace(asking, record=_record_tokens(window), attempt=1)
        if asking.record // 2 < SMALLEST_PART:
            return None
        return msgspec.structs.replace(asking, record=asking.record // 2, attempt=1)

    async def _store(self, tx: Any, message: AssistantMessage | None, why: str) -> None:
        await store_attempt(tx, self.run.conversation_id, self.run.task_id, self.model_name, message, why)

    async def _show(self, **fields: Any) -> None:
        async with self.run.transaction() as tx:
            await show(tx, self.run.conversation_id, self.run.task_id, **fields)
