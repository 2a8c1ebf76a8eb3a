"""Beside a living host: what is sent to the call goes in, what happens comes out, and limits are kept."""

import asyncio
import time
from typing import Any, Final

from perdure import TaskRun
from perdure.subagents import rows
from perdure.subagents.engine.call_steps import ask
from perdure.subagents.engine.context import Orchestration
from perdure.subagents.engine.processes import ended
from perdure.subagents.events import append_event
from perdure.subagents.host.link import HostGone, HostLink, HostRefused
from perdure.subagents.names import call_of
from perdure.subagents.paths import StateRoot
from perdure.subagents.processes import is_running
from perdure.subagents.protocol import News
from perdure.subagents.state import Call, Delivery, Execution, ExhaustedDoc, Workflow

CONNECT_SECONDS: Final = 30.0
CONNECT_PAUSE: Final = 0.02


async def connected(root: StateRoot, execution: Execution, patience: float = CONNECT_SECONDS) -> HostLink | None:
    """A link to the host, once it listens; None if it has ended, or does not listen in time."""
    deadline = time.monotonic() + patience
    while True:
        try:
            return await HostLink.connect(root, execution.exec)
        except (OSError, HostGone):
            pid, started = execution.pid, execution.started
            if pid is not None and not is_running(pid, started or ""):
                return None
            if time.monotonic() >= deadline:
                return None
            await asyncio.sleep(CONNECT_PAUSE)


class Watcher:
    """One execution that runs. `watch` returns why it is over: settled, exited, timeout, parked, held."""

    def __init__(
        self, orchestration: Orchestration, run: TaskRun, link: HostLink, wid: str, key: str, execution: Execution
    ) -> None:
        self._orchestration = orchestration
        self._run = run
        self._link = link
        self._wid = wid
        self._key = key
        self._execution = execution
        self._changed = orchestration.changed(call_of(wid, key))
        self._over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._open: set[str] = set()
        """Requests and calls that are under way: while there is one, time counts."""
        self._since: float | None = None
        self._active = 0.0
        self._parked_since: float | None = None
        self._asking = False

    async def watch(self) -> str:
        """Until the execution's end. The row of the call is kept on the way."""
        call = await self._call()
        self._active = call.active_ms / 1000
        work: list[asyncio.Future[Any]] = [
            asyncio.create_task(self._listen()),
            asyncio.create_task(self._serve()),
            asyncio.create_task(self._keep_limits()),
            asyncio.create_task(self._exit()),
        ]
        try:
            await asyncio.wait([self._over, *work], return_when=asyncio.FIRST_COMPLETED)
            for task in work:
                if task.done() and not task.cancelled() and task.exception() is not None and not self._over.done():
                    raise task.exception() or AssertionError
            why = await self._over
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)
        await self._checkpoint()
        return why

    def _end(self, why: str) -> None:
        if not self._over.done():
            self._over.set_result(why)

    # what the host tells

    async def _listen(self) -> None:
        async for news in self._link.news():
            await self._heard(news)
        await asyncio.sleep(0)
        pid, started = self._execution.pid, self._execution.started
        if pid is None or not is_running(pid, started or ""):
            self._end("exited")

    async def _heard(self, news: News) -> None:
        match news.what:
            case "request":
                self._opens("request")
                await self._asked_model(news)
            case "answer":
                self._closes("request")
                if news.stop != "error":
                    await self._answered()
            case "tool":
                self._opens(f"tool {news.call}")
            case "tool-end":
                self._closes(f"tool {news.call}")
            case "question":
                self._asking = True
                async with self._run.transaction() as tx:
                    workflow, call = await self._rows(tx)
                    await ask(tx, workflow, call, news.qid, news.rev, news.text, news.task)
                    await rows.put_call(tx, call)
            case "question-closed":
                self._asking = False
                self._changed.set()
            case "parked":
                self._parked_since = time.monotonic()
                self._closes_all()
                self._changed.set()
            case "active":
                self._parked_since = None
            case "settled":
                self._end("settled")

    async def _asked_model(self, news: News) -> None:
        call = await self._call()
        switched = call.wanted is not None and call.wanted == news.model
        if call.model == news.model and not switched and call.phase != "asking":
            return
        async with self._run.transaction() as tx:
            workflow, call = await self._rows(tx)
            if call.model != news.model:
                await append_event(tx, "model", workflow=workflow, call=call, model=news.model, before=call.model)
            call.model = news.model
            if switched:
                call.wanted = None
            if call.question is not None and call.question.answered is not None:
                call.question = None
            if call.question is None or call.question.answered is not None:
                call.phase = "running"
            await rows.put_call(tx, call)

    async def _answered(self) -> None:
        """The provider answers: it is not used up."""
        if await rows.read(self._orchestration.harness.session, ExhaustedDoc, self._execution.provider) is not None:
            async with self._run.transaction() as tx:
                await tx.retire(ExhaustedDoc, key=self._execution.provider)

    # what is sent to the call

    async def _serve(self) -> None:
        while True:
            self._changed.clear()
            workflow, call = await self._rows(self._orchestration.harness.session)
            if workflow.paused:
                self._end("held")
                return
            for delivery in call.deliveries:
                if delivery.kind == "notify" and self._asking:
                    continue  # it never interrupts a question
                await self._deliver(delivery)
            await self._changed.wait()

    async def _deliver(self, delivery: Delivery) -> None:
        try:
            result = await self._hand_in(delivery)
        except HostGone:
            return
        except HostRefused as error:
            result = f"refused: {error}"
        if result == "held":
            return
        async with self._run.transaction() as tx:
            workflow, call = await self._rows(tx)
            call.deliveries = [one for one in call.deliveries if one.request != delivery.request]
            if delivery.kind == "model" and result.startswith("refused"):
                call.wanted, call.switch_failed = None, result
            await append_event(
                tx, "delivered", workflow=workflow, call=call, by=delivery.request, kind=delivery.kind, result=result
            )
            await rows.put_call(tx, call)

    async def _hand_in(self, delivery: Delivery) -> str:
        link = self._link
        if delivery.kind == "answer":
            return await link.answer(delivery.request, delivery.qid or "", delivery.rev or 0, delivery.text)
        if delivery.kind == "model":
            return await link.set_model(delivery.request, delivery.model or "")
        if delivery.kind == "follow-up" and delivery.model:
            await link.set_model(f"{delivery.request}:model", delivery.model)
        return await link.deliver(delivery.request, delivery.kind, delivery.text)

    # limits

    async def _exit(self) -> None:
        if self._execution.pid is not None:
            await ended(self._execution.pid, self._execution.started or "")
            await asyncio.sleep(0.05)  # what it said last is still on the way
            self._end("exited")

    async def _keep_limits(self) -> None:
        """Count active time, keep the timeout, let go of who waits on a question."""
        call = await self._call()
        limit = call.spec.get("timeoutMs")
        constants = self._orchestration.config.current.k
        saved = time.monotonic()
        while True:
            pause = constants.checkpoint_ms / 1000
            if limit is not None and self._open:
                pause = min(pause, max(0.01, limit / 1000 - self._spent()))
            if self._parked_since is not None and self._asking:
                pause = min(pause, max(0.01, self._parked_since + constants.hibernate_ms / 1000 - time.monotonic()))
            await asyncio.sleep(min(pause, 0.25 if limit is not None else 1.0))
            if limit is not None and self._spent() * 1000 >= limit:
                self._end("timeout")
                return
            parked = self._parked_since
            if parked is not None and self._asking and time.monotonic() - parked >= constants.hibernate_ms / 1000:
                self._end("parked")
                return
            if time.monotonic() - saved >= constants.checkpoint_ms / 1000:
                saved = time.monotonic()
                await self._checkpoint()

    def _opens(self, what: str) -> None:
        if not self._open:
            self._since = time.monotonic()
        self._open.add(what)

    def _closes(self, what: str) -> None:
        self._open.discard(what)
        if not self._open and self._since is not None:
            self._active += time.monotonic() - self._since
            self._since = None

    def _closes_all(self) -> None:
        for what in list(self._open):
            self._closes(what)

    def _spent(self) -> float:
        return self._active + (time.monotonic() - self._since if self._since is not None else 0.0)

    async def _checkpoint(self) -> None:
        spent = int(self._spent() * 1000)
        if spent > (await self._call()).active_ms:
            async with self._run.transaction() as tx:
                _, call = await self._rows(tx)
                call.active_ms = max(call.active_ms, spent)
                await rows.put_call(tx, call)

    async def _call(self) -> Call:
        return (await self._rows(self._orchestration.harness.session))[1]

    async def _rows(self, reader: Any) -> tuple[Workflow, Call]:
        workflow = await rows.workflow(reader, self._wid)
        call = await rows.call(reader, self._wid, self._key)
        assert workflow is not None
        assert call is not None
        return workflow, call
