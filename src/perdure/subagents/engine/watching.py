"""Beside a living host: what is sent to the call goes in, what happens comes out, and limits are kept."""

import asyncio
from typing import Any, Final

from perdure import StorageError, TaskRun
from perdure.subagents import rows
from perdure.subagents.engine.activity import Activity
from perdure.subagents.engine.admission import wake_queue
from perdure.subagents.engine.call_steps import account, ask, used_up, wakes
from perdure.subagents.engine.connecting import connected
from perdure.subagents.engine.context import Orchestration
from perdure.subagents.engine.handing import delivered, mark_handed, taken_back
from perdure.subagents.engine.processes import ended
from perdure.subagents.engine.silence import CPU_SECONDS, end_silence, processor_ticks, raise_silence, silence_text
from perdure.subagents.events import append_event
from perdure.subagents.evidence import read_evidence
from perdure.subagents.host.link import HostGone, HostLink, HostRefused
from perdure.subagents.names import call_of
from perdure.subagents.protocol import Evidence, News
from perdure.subagents.state import Call, Delivery, Execution, ExecutionDoc, Exhausted, ExhaustedDoc, Workflow

REFUSALS: Final = 2
"""Refusals of a used-up window in a row that are believed; one of a probe is."""
RECONNECT_SECONDS: Final = 5.0
KEEP_SECONDS: Final = 1.0
"""How long a host is kept at least that something is on its way to."""


class Watcher:
    """One execution that runs. `watch` returns why it is over: settled, process-died, timeout, parked, held, exhausted,
    switch-timeout."""

    def __init__(
        self, orchestration: Orchestration, run: TaskRun, link: HostLink, wid: str, key: str, execution: Execution
    ) -> None:
        self._orchestration = orchestration
        self._clock = orchestration.harness.session.clock
        self._run = run
        self._link = link
        self._wid = wid
        self._key = key
        self._execution = execution
        self._changed = orchestration.changed(call_of(wid, key))
        self._handing_in = asyncio.Lock()
        """Nothing is handed to a host while it is being let go."""
        self._moved = asyncio.Event()
        """Something was heard, or a limit is due."""
        self._over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._activity = Activity(self._clock.monotonic())
        self._saved = self._clock.monotonic()
        self._accounted = 0
        self._requested = 0.0
        """When the last request began, by the host."""
        self._switch_since: float | None = None
        """By the clock of the rows: since when a slot has been reserved for a switch."""
        self._handed: set[str] = set()
        """What this host has and has not given a place."""
        self._kept_until = 0.0
        self._silent = False
        self._cpu: tuple[float, int] | None = None
        """When the processor time was looked at, and what it was."""

    async def watch(self) -> str:
        """Until the execution's end. The row of the call is kept on the way."""
        call = await self._call()
        self._activity = Activity(self._clock.monotonic(), call.active_ms / 1000)
        self._silent = call.waiting is not None and call.waiting.reason == "silent"
        work: list[asyncio.Future[Any]] = [
            asyncio.create_task(self._listen()),
            asyncio.create_task(self._serve()),
            asyncio.create_task(self._keep_limits()),
            asyncio.create_task(self._exit()),
        ]
        try:
            await asyncio.wait([self._over, *work], return_when=asyncio.FIRST_COMPLETED)
            while not self._over.done():
                for task in [one for one in work if one.done()]:
                    task.result()  # what went wrong in it is this task's fault
                    work.remove(task)
                await asyncio.wait([self._over, *work], return_when=asyncio.FIRST_COMPLETED)
            why = self._over.result()
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)
            await self._link.disconnect()
        await self._checkpoint()
        return why

    def _end(self, why: str) -> None:
        if not self._over.done():
            self._over.set_result(why)

    # what the host tells

    async def _listen(self) -> None:
        """Hear it to its end. A link that breaks while the host lives is made anew: it says again what was missed."""
        while True:
            async for news in self._link.news():
                self._activity.hear(news, self._clock.monotonic())
                self._moved.set()
                await self._heard(news)
            await self._link.disconnect()
            link = await connected(self._orchestration.root, self._execution, RECONNECT_SECONDS)
            if link is None:
                self._end("process-died")
                return
            self._link = link

    async def _heard(self, news: News) -> None:
        if self._silent:
            await self._recovered()
        match news.what:
            case "request":
                self._requested = news.at
                await self._asked_model(news)
            case "answer" if news.stop != "error":
                await self._answered()
            case "answer":
                await self._refused(news)
            case "question":
                async with self._run.transaction() as tx:
                    workflow, call = await self._rows(tx)
                    await ask(tx, workflow, call, news.qid, news.rev, news.text, news.task)
                    await rows.put_call(tx, call)
                self._changed.set()
            case "took":
                await self._delivered(news.request, "taken")
            case "question-closed" | "parked":
                self._changed.set()
            case "settled":
                self._end("settled")

    async def _asked_model(self, news: News) -> None:
        """A request goes out: a switch is used by it, and an answered question lies behind it."""
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
                call.wanted, self._switch_since = None, None
            if call.question is not None and call.question.answered is not None:
                call.question = None
            if call.question is None or call.question.answered is not None:
                call.phase = "running"
            await rows.put_call(tx, call)
            execution = await rows.read(tx, ExecutionDoc, self._execution.exec)
            if execution is not None and execution.model != news.model:
                before, execution.provider, execution.model = execution.provider, news.provider, news.model
                execution.reserved, execution.reserved_at = None, None
                await rows.write(tx, ExecutionDoc, execution.exec, execution)
                await wake_queue(tx, self._orchestration.config.current, before)  # its slot is free from now on
                self._execution = execution

    async def _answered(self) -> None:
        """The provider answers what was asked after it was found used up: it is not."""
        provider = self._execution.provider
        found: Exhausted | None = await rows.read(self._orchestration.harness.session, ExhaustedDoc, provider)
        if found is None or self._requested < found.since:
            return
        async with self._run.transaction() as tx:
            await tx.retire(ExhaustedDoc, key=provider)
            await wake_queue(tx, self._orchestration.config.current, provider)

    async def _refused(self, news: News) -> None:
        """Enough refusals of a used-up window end the execution, while its host would still try again."""
        if not self._activity.refusals:
            return
        found = await rows.read(self._orchestration.harness.session, ExhaustedDoc, self._execution.provider)
        probes = found is not None and found.probe == call_of(self._wid, self._key)
        if len(self._activity.refusals) < (1 if probes else REFUSALS):
            return
        async with self._run.transaction() as tx:
            _, call = await self._rows(tx)
            await used_up(tx, self._orchestration, call, self._execution, news.error)
        self._end("exhausted")

    async def _recovered(self) -> None:
        self._silent, self._cpu = False, None
        async with self._run.transaction() as tx:
            workflow, call = await self._rows(tx)
            await end_silence(tx, workflow, call)

    # what is sent to the call

    async def _serve(self) -> None:
        while True:
            self._changed.clear()
            workflow, call = await self._rows(self._orchestration.harness.session)
            if workflow.paused:
                self._end("held")
                return
            await self._find_reserved()
            for delivery in call.deliveries:
                if delivery.withdrawn is not None:
                    await self._take_back(delivery)
                    continue
                if delivery.request in self._handed:
                    continue  # its host has it
                if delivery.kind == "notify" and self._activity.asking:
                    continue  # it never interrupts a question
                if delivery.kind == "follow-up" and delivery.model is not None:
                    continue  # another model is another generation: this one's end opens it
                await self._deliver(delivery)
            await self._changed.wait()

    async def _deliver(self, delivery: Delivery) -> None:
        async with self._handing_in:
            if self._over.done() or not await mark_handed(self._run, self._execution, delivery):
                return  # the next execution gets it, or nobody does
            try:
                result = await self._hand_in(delivery)
            except HostGone:
                return  # whether it was stored is read when the host is gone
            except HostRefused as error:
                result = f"refused: {error}"
        if result == "held":
            return
        if result == "taken":
            self._handed.add(delivery.request)  # the receipt comes once it has its place
            return
        await self._delivered(delivery.request, result)

    async def _delivered(self, request: str, result: str) -> None:
        await delivered(self._run, self._orchestration, self._execution, request, result)

    async def _take_back(self, delivery: Delivery) -> None:
        """Withdraw what the host may have; what has its place stays."""
        async with self._handing_in:
            if self._over.done():
                return
            try:
                result = await self._link.withdraw(delivery.request)
            except (HostGone, HostRefused):
                return  # what became of it is read when the host is gone
        if result == "placed":
            await self._delivered(delivery.request, "taken")
        elif result == "withdrawn":
            await taken_back(self._run, self._execution, delivery.request)

    async def _find_reserved(self) -> None:
        """Since when a slot is reserved for a switch."""
        execution = await rows.read(self._orchestration.harness.session, ExecutionDoc, self._execution.exec)
        since = None if execution is None or execution.reserved is None else execution.reserved_at
        if since != self._switch_since:
            self._switch_since = since
            self._moved.set()

    async def _hand_in(self, delivery: Delivery) -> str:
        link = self._link
        if delivery.kind == "answer":
            return await link.answer(delivery.request, delivery.qid or "", delivery.rev or 0, delivery.text)
        if delivery.kind == "model":
            return await link.set_model(delivery.request, delivery.model or "")
        return await link.deliver(delivery.request, delivery.kind, delivery.text)

    # limits

    async def _exit(self) -> None:
        if self._execution.pid is not None:
            await ended(self._execution.pid, self._execution.started or "")
            self._end("process-died")  # what it said last is read from its session

    async def _keep_limits(self) -> None:
        """Wake when something was heard or a limit is due, and for nothing else."""
        limit = (await self._call()).spec.get("timeoutMs")
        timeout = None if limit is None else limit / 1000
        while True:
            self._moved.clear()
            left = [seconds for seconds in self._due(timeout).values() if seconds is not None]
            when = self._clock.now() + max(0.0, min(left)) if left else None
            cancel = None if when is None else self._clock.call_at(when, self._moved.set)
            try:
                await self._moved.wait()
            finally:
                if cancel is not None:
                    cancel()
            due = self._due(timeout)
            for why in ("timeout", "switch-timeout"):
                if (seconds := due[why]) is not None and seconds <= 0:
                    self._end(why)
                    return
            if due["parked"] is not None and due["parked"] <= 0:
                await self._let_go()
            if due["checkpoint"] is not None and due["checkpoint"] <= 0:
                await self._checkpoint()
            if due["silence"] is not None and due["silence"] <= 0:
                await self._look_at_silence()

    def _due(self, timeout: float | None) -> dict[str, float | None]:
        """Seconds until each limit; None for those that do not count now."""
        constants, activity, now = self._orchestration.config.current.k, self._activity, self._clock.monotonic()
        asks = activity.asking and activity.parked is not None
        silent, stuck = activity.silent_since(), activity.stuck_since()
        silences = [] if silent is None else [silent + constants.stall_ms / 1000 - now]
        if stuck is not None:
            silences.append(stuck + constants.progress_ms / 1000 - now)
        if self._cpu is not None:
            silences = [self._cpu[0] + CPU_SECONDS - now]
        return {
            "timeout": timeout - activity.active(now) if timeout is not None and activity.counts else None,
            "parked": max(activity.parked + constants.hibernate_ms / 1000, self._kept_until) - now
            if asks and activity.parked is not None
            else None,
            "switch-timeout": None
            if self._switch_since is None
            else self._switch_since + constants.switch_timeout_ms / 1000 - self._clock.now(),
            "checkpoint": self._saved + constants.checkpoint_ms / 1000 - now if activity.counts else None,
            "silence": min(silences) if silences and not self._silent else None,
        }

    async def _let_go(self) -> None:
        """The host is kept no longer for a question, if it still waits on it and nothing is on its way to it."""
        async with self._handing_in:
            evidence = await self._evidence()
            if evidence is None or evidence.question is None or evidence.unfinished:
                self._activity.parked = None  # what was heard is old: it tells when it parks again
            elif wakes(await self._call()):
                self._kept_until = self._clock.monotonic() + KEEP_SECONDS
            else:
                self._end("parked")

    async def _look_at_silence(self) -> None:
        """Processes that use the processor are not silent. Errors without end are, whatever else happens."""
        now = self._clock.monotonic()
        if self._activity.stuck_since() is None:
            try:
                ticks = await asyncio.to_thread(processor_ticks, self._execution.exec)
            except OSError as error:  # it is not known what its processes do: that says nothing against them
                self._orchestration.report("process scan", error)
                self._activity.moved(now)
                return
            before, self._cpu = self._cpu, (now, ticks)
            if before is None:
                return
            if ticks > before[1]:
                self._activity.moved(now)
                self._cpu = None
                return
        self._cpu = None
        async with self._run.transaction() as tx:
            workflow, call = await self._rows(tx)
            self._silent = await raise_silence(tx, workflow, call, silence_text(self._activity, now))
        if not self._silent:
            self._activity.moved(now)  # it is held, or known to wait: look again after the same time

    async def _evidence(self) -> Evidence | None:
        """What the host has stored so far; None where that cannot be read now."""
        store = self._orchestration.store_of(self._wid, self._key)
        try:
            return await read_evidence(store, self._execution.exec, self._execution.generation)
        except (OSError, StorageError) as error:
            self._orchestration.report("session of a call", error)
            return None

    async def _checkpoint(self) -> None:
        """Store the time and what was used so far."""
        now, activity = self._clock.monotonic(), self._activity
        self._saved = now
        spent = int(activity.active(now) * 1000)
        answered = activity.answered
        if spent <= (await self._call()).active_ms and answered == self._accounted:
            return
        evidence = await self._evidence()
        if evidence is None:
            return
        async with self._run.transaction() as tx:
            workflow, call = await self._rows(tx)
            call.active_ms = max(call.active_ms, spent)
            await account(tx, workflow, call, evidence)
            await rows.put_call(tx, call)
            await rows.put_workflow(tx, workflow)
        self._accounted = answered

    async def _call(self) -> Call:
        return (await self._rows(self._orchestration.harness.session))[1]

    async def _rows(self, reader: Any) -> tuple[Workflow, Call]:
        workflow = await rows.workflow(reader, self._wid)
        call = await rows.call(reader, self._wid, self._key)
        assert workflow is not None
        assert call is not None
        return workflow, call
