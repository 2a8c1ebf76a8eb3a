"""The session of a call, while its host has it: hand over the task, take deliveries, tell how it ended."""

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
    TaskId,
    UserMessage,
)
from perdure.agent.documents import InboxDoc
from perdure.base.lazy import load
from perdure.env.local import LocalEnv
from perdure.models.protocol import Models
from perdure.subagents.config import AgentsConfig
from perdure.subagents.host.documents import (
    Asked,
    AskedDoc,
    Generation,
    GenerationDoc,
    Marker,
    MarkerDoc,
    Settlement,
    SettlementDoc,
    TakenDoc,
)
from perdure.subagents.host.protocol_tools import Answer, Interruption, protocol_tools
from perdure.subagents.host.watched import WatchedModels
from perdure.subagents.protocol import Answered, Deliver, Launch, News, SetModel
from perdure.tools import coding_tools, search_tools

PROTOCOL_TOOLS: Final = ("ask", "report")
DEFAULT_TOOLS: Final = ("read", "write", "edit", "bash")
PAUSE: Final = "An earlier run of yours was cut off."
GONE: Final = "Whatever processes your tools had started, background ones too, are gone: look before you wait for them."
TRANSCRIPT_PAGE: Final = 50
TOOL_RESULT: Final = "perdure.tool_result"

Tell = Callable[[News], None]


class HostSession:
    """One execution on the call's session."""

    def __init__(self, harness: Harness, launch: Launch, models: WatchedModels, tell: Tell) -> None:
        self.harness = harness
        self.launch = launch
        self._models = models
        self._tell = tell
        self._told_parked = False
        self._watching: asyncio.Task[None] | None = None
        self._question: tuple[str, int] | None = None
        self._over = asyncio.Event()

    @property
    def _root(self) -> Conversation:
        return Conversation(self.harness, ROOT)

    async def begin(self) -> None:
        """Store the marker, hand over the task, go on with what was cut off."""
        launch, session = self.launch, self.harness.session
        root = await self.harness.root()
        newest = await self._newest_entry()
        used = await root.usage()
        async with session.transaction() as tx:
            generation: Any = await tx.value_of(GenerationDoc, key=str(launch.generation))
            if generation is None:
                begun = Generation(task_id=launch.task_id, baseline=_spent(used), after=newest)
                await tx.set(GenerationDoc, None, begun, key=str(launch.generation))
            if await tx.value_of(MarkerDoc, key=launch.exec) is None:
                marker = Marker(generation=launch.generation, at=tx.now_millis / 1000, after=newest)
                await tx.set(MarkerDoc, None, marker, key=launch.exec)
        await self._configure(root, generation)
        self._watching = asyncio.create_task(self._watch(), name="host watch")
        unfinished = await self._unfinished() if launch.resumed else []
        submission = await root.submit(launch.task, request_id=launch.task_id)
        if launch.resumed:
            await self._go_on(root, submission, unfinished)
        await self.harness.resume()
        await self.look()

    async def _configure(self, root: Conversation, generation: Any) -> None:
        launch = self.launch
        offered = DEFAULT_TOOLS if launch.tools is None else tuple(launch.tools)
        known = {name for each in (coding_tools, search_tools) for name in each.tools} | set(self._more_tools())
        missing = [name for name in offered if name not in known and name not in PROTOCOL_TOOLS]
        if missing:
            raise InvalidValue(f"no such tool: {', '.join(missing)}", hint=f"there are: {', '.join(sorted(known))}")
        own = ["ask", *(["report"] if launch.schema is not None else [])]
        limits: dict[str, Any] = {}
        baseline = (generation or {}).get("baseline", {}) or _spent(await root.usage())
        if "tokens" in launch.budget:
            limits["max_tokens"] = int(baseline.get("tokens", 0) + launch.budget["tokens"])
        if "costUsd" in launch.budget:
            limits["max_cost"] = baseline.get("costUsd", 0.0) + launch.budget["costUsd"]
        await root.configure(
            model=launch.model,
            thinking=launch.thinking,
            instructions=_instructions(launch),
            cwd=launch.cwd,
            tools=[name for name in dict.fromkeys((*offered, *own)) if name not in ("subagents",)],
            budget=Budget(**limits) if limits else None,
        )

    def _more_tools(self) -> list[str]:
        snapshot = self.harness.agent.registry.snapshot()
        return [name for extension in snapshot.extensions.values() for name in extension.tools]

    async def _go_on(self, root: Conversation, submission: Any, unfinished: list[str]) -> None:
        """Tell the model of the interruption, once for this execution; that also starts a run where none is open."""
        status = await submission.status()
        parked = await self._waits_on_question()
        if parked and not unfinished:
            return  # it waits on its question: nothing was interrupted that it would have to know of
        if status == "queued" or (status == "placed" and not await self._used_tools()):
            return  # nothing had happened that it would have to know of: the request is just sent again
        lines = [PAUSE if status == "placed" else "Go on with your task.", GONE]
        if unfinished:
            lines.append(f"Of these calls it is not known whether they took effect: {', '.join(unfinished)}.")
        if status == "unanswered":
            lines.append("Your last run ended without a usable answer. Finish the task and give the answer.")
        if self.launch.schema is not None:
            lines.append("End by calling `report`.")
        await root.submit(" ".join(lines), request_id=f"note:{self.launch.exec}", when_busy="steer")

    async def _used_tools(self) -> bool:
        """Whether a call was made since the generation began."""
        begun: Generation | None = await self.harness.session.snapshot(GenerationDoc, key=str(self.launch.generation))
        page = await self._root.entries(newest_first=True, limit=TRANSCRIPT_PAGE)
        return any(entry.id > (begun.after if begun else 0) and entry.kind == TOOL_RESULT for entry in page) or bool(
            await self._unfinished()
        )

    async def _waits_on_question(self) -> bool:
        found = [one for one in await self.questions() if one.open and one.task is not None]
        return any(self.harness.tasks.known(TaskId(one.task or 0)) is not None for one in found)

    async def _unfinished(self) -> list[str]:
        """Names of the calls that ran when the last execution was cut off."""
        live = await self._root.live()
        return running_calls(live)

    async def _newest_entry(self) -> int:
        page = await self._root.entries(newest_first=True, limit=1)
        return page[0].id if page else 0

    # deliveries

    async def deliver(self, said: Deliver) -> str:
        """Store a message once. A steer interrupts a question that is waited on: it becomes the call's result."""
        asked = await self._waited_on()
        if said.kind == "steer" and asked is not None and asked.task is not None:
            async with self.harness.session.transaction() as tx:
                if await tx.value_of(TakenDoc, key=said.request) is not None:
                    return "taken"
                result = await tx.signal(TaskId(asked.task), Interruption, "interruption", said.text)
                if result == "delivered":
                    asked.task = None
                    await tx.set(AskedDoc, None, asked, key=asked.qid)
                    await tx.set(TakenDoc, None, {}, key=said.request)
            if result == "delivered":
                await self.harness.resume()
                return "interrupted"
        busy = "follow_up" if said.kind == "follow-up" else "steer"
        await self._root.submit(said.text, request_id=said.request, when_busy=busy)  # type: ignore[arg-type]
        async with self.harness.session.transaction() as tx:
            await tx.set(TakenDoc, None, {}, key=said.request)
        return "taken"

    async def answer(self, said: Answered) -> str:
        """Give the answer to the call that waits on the question; `held` if none does at the moment."""
        async with self.harness.session.transaction() as tx:
            if await tx.value_of(TakenDoc, key=said.request) is not None:
                return "delivered"
            found: Asked | None = await tx.snapshot(AskedDoc, key=said.qid)
            if found is None or not found.open:
                return "closed"
            if found.task is None:
                return "held"
            result = await tx.signal(TaskId(found.task), Answer, "answer", said.text)
            if result in ("delivered", "duplicate"):
                found.open, found.task = False, None
                await tx.set(AskedDoc, None, found, key=said.qid)
                await tx.set(TakenDoc, None, {}, key=said.request)
        await self.harness.resume()
        return result

    async def set_model(self, said: SetModel) -> str:
        """From the next request on this model."""
        self._models.check(said.model)  # an unknown one is refused before anything changes
        await self._root.configure(model=said.model)
        self._models.allowed = said.model
        return "set"

    async def questions(self) -> list[Asked]:
        """All that was ever asked in this session."""
        session = self.harness.session
        keys = await session.document_keys(AskedDoc, limit=1000)
        found = [await session.snapshot(AskedDoc, key=key) for key in keys]
        return [one for one in found if one is not None]

    async def _waited_on(self) -> Asked | None:
        for one in await self.questions():
            if one.open and one.task is not None and self.harness.tasks.known(TaskId(one.task)) is not None:
                return one
        return None

    # what happens

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
                    self._tell(News(what="retry", at=now, error=event.error[:2000]))
                if kind not in ("MessageUpdate", "UsageChanged"):
                    await self.look(settle=kind in ("RunEnd", "SubmissionChanged", "InboxChanged"))

    async def look(self, *, settle: bool = True) -> None:
        """Tell of questions, of parking, and of the end of the run, once all before it was told."""
        asked = await self._waited_on()
        question = None if asked is None else (asked.qid, asked.rev)
        if question != self._question:
            self._question = question
            if asked is not None:
                self._tell(
                    News(
                        what="question", at=asked.at, qid=asked.qid, rev=asked.rev, text=asked.text,
                        task=asked.task or 0,
                    )
                )  # fmt: skip
            else:
                self._tell(News(what="question-closed", at=self.harness.session.clock.now()))
        live = await self._root.live()
        idle = live["run"] is None and not await self._queued()
        parked = not idle and not self.harness.wake().active
        if parked != self._told_parked:
            self._told_parked = parked
            self._tell(News(what="parked" if parked else "active", at=self.harness.session.clock.now()))
        if idle and settle and not self._over.is_set():
            self._over.set()
            await self._settle()

    async def _queued(self) -> bool:
        inbox: Any = await self.harness.session.value_of(InboxDoc, ROOT)
        return inbox is not None and bool(inbox["items"])

    async def _settle(self) -> None:
        """The run is over: store how, then tell."""
        launch, session = self.launch, self.harness.session
        submission = await self._root.submit(launch.task, request_id=launch.task_id)
        settled = await submission.settled()
        newest = await self._last_answer()
        async with session.transaction() as tx:
            if await tx.value_of(SettlementDoc, key=launch.exec) is None:
                found = Settlement(
                    status=newest[0] or settled.status, reason=newest[1] or settled.reason or "",
                    detail=newest[2] or settled.detail or "", text=newest[3], stop=newest[4], at=tx.now_millis / 1000,
                )  # fmt: skip
                await tx.set(SettlementDoc, None, found, key=launch.exec)
        self._tell(News(what="settled", at=session.clock.now()))

    async def _last_answer(self) -> tuple[str, str, str, str, str]:
        """How the newest input of the conversation ended: status, reason, detail, text, stop."""
        messages = await self._root.messages()
        last = messages[-1] if messages else None
        if last is None or isinstance(last, UserMessage) or last.role != "assistant":
            return "unanswered", "", "", "", ""
        stop = str(getattr(last, "stop", ""))
        text = str(last.text)
        calls = any(type(block).__name__ == "ToolCall" for block in last.content)  # type: ignore[union-attr]
        if calls or stop in ("aborted", "error") or not text.strip():
            return "unanswered", "", "", "", stop
        return "done", "", "", text, stop

    async def close(self) -> None:
        """Leave everything as it is stored; nothing is settled."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)


async def open_session(path: Any, launch: Launch, config: AgentsConfig, models: Models, tell: Tell) -> HostSession:
    """Open the call's session for a launch; nothing is written yet."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    extensions: list[Any] = [coding_tools, search_tools, protocol_tools(launch)]
    if config.extensions is not None:
        registry = load(config.extensions)
        extensions += [one for one in registry.snapshot().extensions.values() if one not in extensions]
    clock = _clock()
    watched = WatchedModels(models, launch.model, tell, clock)
    harness = await Harness.open(
        path,
        registry=Registry(extensions),
        models=watched,
        env=lambda conversation, cwd: LocalEnv(cwd or launch.cwd),
        settings=Settings(restart_limit=1_000_000),
    )
    return HostSession(harness, launch, watched, tell)


def _clock() -> Callable[[], float]:
    from_time: Callable[[], float] = load("time:time")
    return from_time


def _spent(used: dict[str, Any]) -> dict[str, float]:
    tokens = used["input"] + used["output"] + used["cache_read"] + used["cache_write"]
    return {"tokens": tokens, "input": tokens - used["output"], "output": used["output"], "costUsd": used["cost"]}


def _instructions(launch: Launch) -> str:
    """The agent's prompt; what the protocol asks of every subagent comes after it."""
    own = "You are a subagent: you work on one task, and your last message is what comes of it."
    prompt = str(launch.agent.get("prompt", "")).strip()
    ending = " End by calling `report`." if launch.schema is not None else ""
    return "\n\n".join(part for part in (prompt, own + ending) if part)


def running_calls(live: Any) -> list[str]:
    """Names of the calls that run, as the live document shows them; a question that is waited on is none of them."""
    slots = () if live is None else live["tools"].values()
    return [str(slot["name"]) for slot in slots if slot["status"] == "running" and slot["name"] != "ask"]
