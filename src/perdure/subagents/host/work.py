"""The session of a call, while its host has it: hand over the task, take deliveries, tell how it goes."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from perdure import (
    ROOT,
    Budget,
    Conversation,
    Harness,
    InvalidValue,
    Registry,
    Settings,
    Submission,
    TaskId,
    TaskTransaction,
    UserEntry,
    UserMessage,
)
from perdure.agent.submissions import dequeue, settle
from perdure.base.lazy import load
from perdure.env.local import LocalEnv
from perdure.extensions.settled import Settled
from perdure.models.protocol import Models
from perdure.subagents.config import AgentsConfig
from perdure.subagents.host.documents import (
    Asked,
    AskedDoc,
    Delivery,
    DeliveryDoc,
    Generation,
    GenerationDoc,
    Marker,
    MarkerDoc,
    ReportDoc,
    delivery_key,
)
from perdure.subagents.host.outcome import outcome, unfinished
from perdure.subagents.host.protocol_tools import QUESTIONS_READ, Answer, Interruption, protocol_tools
from perdure.subagents.host.texts import instructions, restart_note
from perdure.subagents.host.watched import WatchedModels
from perdure.subagents.protocol import Answered, Deliver, Launch, News, SetModel
from perdure.tools import coding_tools, search_tools

PROTOCOL_TOOLS: Final = ("ask", "report")
DEFAULT_TOOLS: Final = ("read", "write", "edit", "bash")
NESTED_TOOL: Final = "subagents"
"""Never offered: a subagent starts no others."""
BUILTIN: Final = ("coding", "search", "subagent_protocol")
"""Extensions of every host."""
TRANSCRIPT_PAGE: Final = 50
TOOL_RESULT: Final = "perdure.tool_result"
ERROR_LENGTH: Final = 2000
"""Characters of an error in the news."""
RESTARTS: Final = 1_000_000
"""Its orchestrator counts losses."""

Tell = Callable[[News], None]


class HostSession:
    """One execution on the call's session. `failed` is told of what ends it before its time."""

    def __init__(
        self,
        harness: Harness,
        launch: Launch,
        models: WatchedModels,
        tell: Tell,
        failed: Callable[[BaseException], None],
    ) -> None:
        self.harness = harness
        self.launch = launch
        self._models = models
        self._tell = tell
        self._failed = failed
        self._told_parked = False
        self._watching: asyncio.Task[None] | None = None
        self._question: tuple[str, int] | None = None
        self._over = False
        self._judging = asyncio.Lock()
        """Held while it is found out whether the run is over, and while something is handed in."""
        self._delivered: dict[str, str] = {}
        """Requests whose place in the transcript has not been told, by the keys of their submissions."""
        self._after = 0

    @property
    def _root(self) -> Conversation:
        return Conversation(self.harness, ROOT)

    # begin

    async def begin(self) -> None:
        """Store the marker, hand over the task, go on with what was cut off."""
        await self.harness.root()
        known = await self._clear_older()
        await self._mark()
        await self._configure()
        self._watching = asyncio.create_task(self._watch(), name="host watch")
        self._watching.add_done_callback(self._watched)
        if known is not None and self.launch.resumed:
            await self._go_on(known)  # stored before anything runs, so that it names all that was cut off
        await self._root.submit(self.launch.task, request_id=self.launch.task_id)
        await self.harness.resume()
        await self.look()

    async def _clear_older(self) -> Submission | None:
        """A generation that begins ends what an older one left open: its run, and its questions. Once the task is in
        the session that has been done; returns its submission then."""
        session = self.harness.session
        record = await session.store.submission_by_request(ROOT, self.launch.task_id)
        if record is not None:
            return Submission(self.harness, ROOT, record.id)
        await self._root.abort(background=True)  # what was queued there opens this one, or is dropped
        async with session.transaction() as tx:
            for asked in await self.questions():
                if asked.open and asked.generation != self.launch.generation:
                    asked.open, asked.task = False, None
                    await tx.set(AskedDoc, None, asked, key=asked.qid)
        return None

    async def _mark(self) -> None:
        launch = self.launch
        page = await self._root.entries(newest_first=True, limit=1)
        newest = page[0].id if page else 0
        used = _spent(await self._root.usage())
        async with self.harness.session.transaction() as tx:
            if await tx.value_of(GenerationDoc, key=str(launch.generation)) is None:
                begun = Generation(task_id=launch.task_id, baseline=used, after=newest)
                await tx.set(GenerationDoc, None, begun, key=str(launch.generation))
            marker = Marker(generation=launch.generation, at=tx.now_millis / 1000, after=newest)
            await tx.set(MarkerDoc, None, marker, key=launch.exec)
        self._after = newest

    async def _configure(self) -> None:
        launch = self.launch
        begun: Generation | None = await self.harness.session.snapshot(GenerationDoc, key=str(launch.generation))
        before = {} if begun is None else begun.baseline
        limits: dict[str, Any] = {}
        if "tokens" in launch.budget:
            limits["max_tokens"] = int(before.get("tokens", 0) + launch.budget["tokens"])
        if "costUsd" in launch.budget:
            limits["max_cost"] = before.get("costUsd", 0.0) + launch.budget["costUsd"]
        await self._root.configure(
            model=launch.model,
            thinking=launch.thinking,
            instructions=instructions(launch),
            cwd=launch.cwd,
            tools=self._tools(),
            budget=Budget(**limits) if limits else None,
        )

    def _tools(self) -> list[str]:
        """The tools of the launch, and those of the protocol. Raises `InvalidValue` for one that there is not."""
        extensions = self.harness.agent.registry.snapshot().extensions
        known = {name for one in extensions.values() for name in one.tools} - {NESTED_TOOL}
        more = [tool for name, one in extensions.items() if name not in BUILTIN for tool in one.tools]
        offered = [*DEFAULT_TOOLS, *more] if self.launch.tools is None else self.launch.tools
        missing = [name for name in offered if name not in known and name not in PROTOCOL_TOOLS]
        if missing and (self.launch.tools is not None or missing != [NESTED_TOOL]):
            usable = ", ".join(sorted(known.difference(PROTOCOL_TOOLS)))
            raise InvalidValue(f"no such tool: {', '.join(missing)}", hint=f"there are: {usable}")
        own = ["ask", *(["report"] if self.launch.schema is not None else [])]
        allowed = [name for name in offered if name in known and name not in PROTOCOL_TOOLS]
        return list(dict.fromkeys((*allowed, *own)))

    async def _go_on(self, task: Submission) -> None:
        """Tell the model of the interruption, once for this execution; that also starts a run where none is open."""
        status, cut = await task.status(), unfinished(await self._root.live())
        if not cut and await self._waited_on() is not None:
            return  # nothing was interrupted; what it must know comes with the answer
        if status == "queued" or (status == "placed" and not cut and not await self._used_tools()):
            return  # nothing had happened that it would have to know of: the request is just sent again
        note = restart_note(status, cut, schema=self.launch.schema is not None)
        request = f"note:{self.launch.exec}"
        if await self._running():  # it stands at the next boundary, and asks for no answer of its own
            await self._root.write(UserEntry(UserMessage(note)), request_id=request)
        else:
            await self._root.submit(note, request_id=request)

    async def _used_tools(self) -> bool:
        """Whether a call was made since the generation began."""
        begun: Generation | None = await self.harness.session.snapshot(GenerationDoc, key=str(self.launch.generation))
        after = 0 if begun is None else begun.after
        page = await self._root.entries(newest_first=True, limit=TRANSCRIPT_PAGE)
        return any(entry.id > after and entry.kind == TOOL_RESULT for entry in page)

    # deliveries

    async def deliver(self, said: Deliver) -> str:
        """Store a message once. A steer interrupts a question that is waited on: it becomes the call's result.

        `taken` while it waits for its place, `placed`, `interrupted`, `withdrawn`, or `held` once the run is over. Its
        record is stored first.
        """
        async with self._judging:
            if self._over:
                return "held"
            if said.kind == "steer" and (known := await self._interrupt(said)):
                return known
            busy = "follow_up" if said.kind == "follow-up" else "steer"
            key = delivery_key(self.launch.generation, said.request)
            async with self.harness.session.transaction() as tx:
                before: Delivery | None = await tx.snapshot(DeliveryDoc, key=key)
                if before is not None and before.how != "submitted":
                    return before.how
                await tx.set(DeliveryDoc, None, Delivery(how="submitted"), key=key)
            self._delivered[key] = said.request
            done = await self._root.submit(said.text, request_id=key, when_busy=busy)  # type: ignore[arg-type]
            return "taken" if await done.status() == "queued" else "placed"

    async def withdraw(self, request: str) -> str:
        """Take a message back, for all executions of this generation: `withdrawn`, or `placed`."""
        key = delivery_key(self.launch.generation, request)
        async with self._judging, self.harness.session.transaction() as tx:
            known: Delivery | None = await tx.snapshot(DeliveryDoc, key=key)
            if known is not None and known.how in ("interrupted", "answered"):
                return "placed"
            gone = await self._unqueue(tx, key)
            if gone:
                await tx.set(DeliveryDoc, None, Delivery(how="withdrawn"), key=key)
            return "withdrawn" if gone else "placed"

    async def _unqueue(self, tx: TaskTransaction, key: str) -> bool:
        """Withdraw a submission that waits for its place; False if it has it."""
        record = await self.harness.session.store.submission_by_request(ROOT, key)
        found = None if record is None else await tx.submission(record.id)
        if found is None or found.status != "queued":
            return found is None or found.entry is None
        settle(tx, found, Settled("unanswered", reason="withdrawn"))
        await dequeue(tx, ROOT, {found.id})
        return True

    async def _interrupt(self, said: Deliver) -> str | None:
        """Give a steer to the call that waits on a question; None if none does."""
        key = delivery_key(self.launch.generation, said.request)
        async with self.harness.session.transaction() as tx:
            known: Delivery | None = await tx.snapshot(DeliveryDoc, key=key)
            if known is not None and known.how != "submitted":
                return known.how
            for asked in await self.questions():
                if not asked.open or asked.task is None or tx.live_task(TaskId(asked.task)) is None:
                    continue
                if known is not None and not await self._unqueue(tx, key):
                    return "placed"  # it came before the question
                if await tx.signal(TaskId(asked.task), Interruption, "interruption", said.text) == "delivered":
                    asked.task = None
                    await tx.set(AskedDoc, None, asked, key=asked.qid)
                    await tx.set(DeliveryDoc, None, Delivery(how="interrupted"), key=key)
                    break
            else:
                return None
        await self.harness.resume()
        return "interrupted"

    async def answer(self, said: Answered) -> str:
        """Give the answer to the call that waits on the question: `delivered`; `held` if none does at the moment, and
        `closed` if the question is."""
        key = delivery_key(self.launch.generation, said.request)
        async with self.harness.session.transaction() as tx:
            if await tx.value_of(DeliveryDoc, key=key) is not None:
                return "delivered"
            found: Asked | None = await tx.snapshot(AskedDoc, key=said.qid)
            if found is None or not found.open:
                return "closed"
            if found.task is None:
                return "held"
            result = await tx.signal(TaskId(found.task), Answer, "answer", said.text)
            if result not in ("delivered", "duplicate"):
                return "held"
            found.open, found.task = False, None
            await tx.set(AskedDoc, None, found, key=said.qid)
            await tx.set(DeliveryDoc, None, Delivery(how="answered"), key=key)
        await self.harness.resume()
        return "delivered"

    async def set_model(self, said: SetModel) -> str:
        """From the next request on this model."""
        self._models.check(said.model)  # an unknown one is refused before anything changes
        await self._root.configure(model=said.model)
        self._models.allowed = said.model
        return "set"

    async def questions(self) -> list[Asked]:
        """All that was ever asked in this session."""
        session = self.harness.session
        keys = await session.document_keys(AskedDoc, limit=QUESTIONS_READ)
        found = [await session.snapshot(AskedDoc, key=key) for key in keys]
        return [one for one in found if one is not None]

    async def _waited_on(self) -> Asked | None:
        for one in await self.questions():
            if one.open and one.task is not None and self.harness.tasks.known(TaskId(one.task)) is not None:
                return one
        return None

    # what happens

    def _watched(self, watching: "asyncio.Task[None]") -> None:
        if not watching.cancelled():
            self._failed(watching.exception() or RuntimeError("the session tells nothing any more"))

    async def _watch(self) -> None:
        """Tell of calls and retries as they are committed, and look after each change whether the run is over."""
        async with self._root.events() as events:
            async for event in events:
                kind = type(event).__name__
                now = self.harness.session.clock.now()
                if kind == "ToolStart":
                    self._tell(News(what="tool", at=now, name=event.name, call=event.call_id))
                elif kind == "ToolEnd":
                    self._tell(News(what="tool-end", at=now, name=event.name, call=event.call_id))
                elif kind == "Retry":
                    self._tell(News(what="retry", at=now, error=event.error[:ERROR_LENGTH]))
                elif kind == "SubmissionChanged" and event.entry is not None and event.request_id in self._delivered:
                    self._tell(News(what="took", at=now, request=self._delivered.pop(event.request_id)))
                if kind not in ("MessageUpdate", "UsageChanged"):
                    await self.look(settle=kind in ("RunEnd", "SubmissionChanged", "InboxChanged"))

    async def look(self, *, settle: bool = True) -> None:
        """Tell of questions, of parking, and of the end of the run, once all before it was told."""
        async with self._judging:
            await self._look(settle)

    async def _look(self, settle: bool) -> None:
        now = self.harness.session.clock.now()
        asked = await self._waited_on()
        question = None if asked is None else (asked.qid, asked.rev)
        if question != self._question:
            self._question = question
            if asked is None:
                self._tell(News(what="question-closed", at=now))
            else:
                told = News(
                    what="question", at=asked.at, qid=asked.qid, rev=asked.rev, text=asked.text, task=asked.task or 0
                )
                self._tell(told)
        running = await self._running()
        wake = self.harness.wake()
        parked = running and not wake.active and wake.at is None
        if parked != self._told_parked:
            self._told_parked = parked
            self._tell(News(what="parked" if parked else "active", at=now))
        if settle and not self._over and await self._is_over():
            self._over = True
            self._tell(News(what="settled", at=now))

    async def _running(self) -> bool:
        live = await self._root.live()
        return live is not None and live["run"] is not None

    async def _is_over(self) -> bool:
        """The run has ended; or there is a report, after which nothing is asked or taken any more."""
        if await self.harness.session.value_of(ReportDoc, key=self.launch.exec) is not None:
            return True
        return (await outcome(self.harness.session, self.launch.task_id, self._after)).over

    async def close(self) -> None:
        """Leave everything as it is stored; nothing is settled."""
        if self._watching is not None:
            self._watching.remove_done_callback(self._watched)
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        await self.harness.close()


async def open_session(
    path: Any,
    launch: Launch,
    config: AgentsConfig,
    models: Models,
    tell: Tell,
    failed: Callable[[BaseException], None],
) -> HostSession:
    """Open the call's session for a launch; nothing is written yet. Raises `StorageInUse` if another host has it."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    watched = WatchedModels(models, launch.model, tell)
    extensions: list[Any] = [coding_tools, search_tools, protocol_tools(launch, watched.shut)]
    if config.extensions is not None:
        registry: Registry = load(config.extensions)
        extensions += registry.snapshot().extensions.values()
    harness = await Harness.open(
        path,
        registry=Registry(extensions),
        models=watched,
        env=lambda conversation, cwd: LocalEnv(cwd or launch.cwd),
        settings=Settings(restart_limit=RESTARTS),
    )
    return HostSession(harness, launch, watched, tell, failed)


def _spent(used: dict[str, Any]) -> dict[str, float]:
    return {
        "tokens": used["input"] + used["output"],
        "input": used["input"],
        "output": used["output"],
        "costUsd": used["cost"],
    }
