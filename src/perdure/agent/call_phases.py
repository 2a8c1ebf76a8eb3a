"""What happens to a call of any kind: resolve and ask the gates, record the intent, run, store the result."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from perdure.agent.agent import Agent
from perdure.agent.attachments import missing
from perdure.agent.calls import (
    CallSite,
    Held,
    call_site,
    check_call,
    error_result,
    ready_at_once,
    reap,
    reviewed_result,
)
from perdure.agent.documents import LiveDoc
from perdure.agent.invoke import cancel_parked, invoke
from perdure.agent.nested import end_nested
from perdure.agent.parking import Park, Resumed, decide_gate, decide_park, is_unfit, stored_park
from perdure.agent.usage import book
from perdure.base.delta import Operation
from perdure.base.errors import NotFound
from perdure.base.text import well_formed
from perdure.extensions.results import ToolResult, bounded_text
from perdure.models.messages import ToolCall
from perdure.tasks.decisions import Next
from perdure.tasks.definition import phase
from perdure.tasks.runtime import TaskRun
from perdure.tasks.transaction import TaskTransaction

INTERRUPTED: Final = "the process ended while this call ran; it is not known how far it came, and it was not repeated"

PARKED: Final = ("sleeping", "waiting")
"""What a slot shows of a call that parked."""


class CallPhases:
    """The phases of a call. Where the call is found and where its result goes is the task's own."""

    async def find(self, run: TaskRun) -> ToolCall:
        """The call that was made."""
        raise NotImplementedError

    async def store(self, tx: TaskTransaction, run: TaskRun, call: ToolCall, result: ToolResult) -> Any:
        """Write the result where it is read; give what the task completes with."""
        raise NotImplementedError

    async def is_abandoned(self, run: TaskRun) -> bool:
        """Whether a call that was cut off is not to be gone on with, for nobody will read its result."""
        return False

    @phase(first=True)
    async def call(self, run: TaskRun) -> Next[Any]:
        """Before the intent: everything here may run again after a crash."""
        call = await self.find(run)
        if run.cut and await self.is_abandoned(run):
            return await self._finish(
                run, call, error_result("interrupted", "it had not begun, and nobody waits for it")
            )
        installed = run.host.registry.snapshot().version
        site = await call_site(run.host, run, call)
        if site is None:
            return await self._finish(run, call, _unavailable(call), gone=True)
        checked = await check_call(site)
        if isinstance(checked, Held):
            return await self._hold_back(run, call, checked, installed)
        if isinstance(checked, ToolResult):
            return await self._finish(run, call, checked)
        async with run.transaction() as tx:  # the intent: from here on it may have happened
            tx.checkpoint(self.execute, checked.arguments, site.tool.replay)
            await show_status(tx, run, "running")
        return await self._execute(run, site, checked.arguments, site.tool.replay)

    @phase
    async def begin(self, run: TaskRun, arguments: dict[str, Any], replay: str) -> Next[Any]:
        """A call whose intent was stored in the commit that created it, since nothing had to be asked before."""
        if run.cut:
            return await self.execute(run, arguments, replay)
        site = await call_site(run.host, run, await self.find(run))
        if site is None or not ready_at_once(site):
            return run.goto(self.call)  # what is installed has changed since: checks and gates come first
        return await self._execute(run, site, arguments, replay)

    @phase
    async def parked(self, run: TaskRun, arguments: dict[str, Any], replay: str, resumed: Resumed) -> Next[Any]:
        """The park is over: the intent is stored once more, with the wake, before the tool's code runs again."""
        call = await self.find(run)
        site = await call_site(run.host, run, call)
        if site is None:
            _tell_of_leftovers(run, call, resumed)
            return await self._finish(run, call, _unavailable(call), gone=True)
        policy = "safe" if replay == site.tool.replay == "safe" else "unsafe"
        resumed = msgspec.structs.replace(resumed, wake=run.wake)
        async with run.transaction() as tx:
            tx.checkpoint(self.execute, arguments, policy, resumed)
            await show_status(tx, run, "running")
        return await self._execute(run, site, arguments, policy, resumed)

    @phase
    async def execute(
        self, run: TaskRun, arguments: dict[str, Any], replay: str, resumed: Resumed | None = None
    ) -> Next[Any]:
        """Recovery: the intent is stored, and a crash or a close cut the call off, so it may have happened."""
        call = await self.find(run)
        site = await call_site(run.host, run, call)
        if site is None:
            _tell_of_leftovers(run, call, resumed)
            return await self._finish(run, call, await interrupted(run), gone=True)
        leftovers = await reap(site)
        if replay == "safe" and site.tool.replay == "safe" and not await self.is_abandoned(run):
            await clear_output(run)
            return await self._execute(run, site, arguments, replay, resumed)
        if resumed is not None:
            await cancel_parked(site, arguments, resumed)
        result = await interrupted(run)
        if leftovers:
            result = with_diagnostic(result, f"still running, and not to be ended: {', '.join(leftovers)}")
        return await self._finish(run, call, result)

    async def abort(self, run: TaskRun) -> Next[Any]:
        """The call was stopped; the model reads that, with the output that had come."""
        agent: Agent = run.host
        call = await self.find(run)
        site = await call_site(agent, run, call)
        parked = agent.left_parks.pop(run.task_id, None) or stored_park(run)
        if site is not None:
            await reap(site)
            if parked is not None:
                await cancel_parked(site, *parked)
        elif parked is not None:
            _tell_of_leftovers(run, call, parked[1])
        result = error_result("aborted", "the call was stopped" + await committed_output(run))
        names = await agent.names(run.conversation_id)
        for point in ("on_abort", "after_tool"):
            result = await reviewed_result(agent, run, names, call, point, result)
        async with run.transaction() as tx:
            await self._store(tx, run, call, result)
            return tx.aborted(result.content if isinstance(result.content, str) else None)

    async def _execute(
        self, run: TaskRun, site: CallSite, arguments: dict[str, Any], replay: str, resumed: Resumed | None = None
    ) -> Next[Any]:
        came = await invoke(site, arguments, resumed)
        if isinstance(came, Park):
            decision = await self._park(run, site, arguments, replay, came)
        else:
            decision = await self._finish(run, site.call, came)
        site.agent.left_parks.pop(run.task_id, None)
        return decision

    async def _park(
        self, run: TaskRun, site: CallSite, arguments: dict[str, Any], replay: str, came: Park
    ) -> Next[Any]:
        """The tool returned a park. One that cannot be is an error result: the call has run."""
        try:
            kept = came.kept()
            async with run.transaction() as tx:
                decision = decide_park(tx, came.park, self.parked, arguments, replay, kept)
                await show_status(tx, run, came.status, came.output)
        except Exception as error:
            if not is_unfit(error):
                raise
            result = error_result("invalid_park", bounded_text(well_formed(str(error))))
            return await self._finish(run, site.call, msgspec.structs.replace(result, diagnostics=came.diagnostics))
        return decision

    async def _hold_back(self, run: TaskRun, call: ToolCall, held: Held, installed: int) -> Next[Any]:
        """A gate sleeps: the whole phase runs again on every wake, and when other code is installed."""
        try:
            async with run.transaction() as tx:
                again = run.host.registry.snapshot().version != installed
                decision = decide_gate(tx, held.sleep, self.call, again=again)
                await show_status(tx, run, "sleeping")
        except Exception as error:
            if not is_unfit(error):
                raise
            text = bounded_text(well_formed(f"gate {held.gate} failed: {error}"))
            return await self._finish(run, call, error_result("blocked", text))
        return decision

    async def _finish(self, run: TaskRun, call: ToolCall, result: ToolResult, *, gone: bool = False) -> Next[Any]:
        """`after_tool` hooks, then the result, what it spent and the task's end in one commit. `gone`: its tool is."""
        agent: Agent = run.host
        names = await agent.names(run.conversation_id)
        result = await reviewed_result(agent, run, names, call, "after_tool", result)
        lost = await agent.attachments.first_missing(result.content)
        if lost is not None:
            result = error_result("tool_error", str(missing(lost)))
        async with run.transaction() as tx:
            value = await self._store(tx, run, call, result)
            await end_nested(agent, tx, run)
            if gone:
                return tx.fail({"code": "tool_unavailable", "message": f"no tool {call.name!r}", "result": value})
            return tx.complete(value)

    async def _store(self, tx: TaskTransaction, run: TaskRun, call: ToolCall, result: ToolResult) -> Any:
        if result.usage is not None:
            await book(tx, run.conversation_id, "tools", call.name, result.usage)
        return await self.store(tx, run, call, result)


def _tell_of_leftovers(run: TaskRun, call: ToolCall, resumed: Resumed | None) -> None:
    """The host learns that what a parked call began outside may still be there: the code that could end it is gone."""
    if resumed is not None:
        gone = NotFound(f"no tool {call.name!r} is here to clean up after a call that had parked")
        run.host.report(f"tool {call.name}: cancel", gone)


def _unavailable(call: ToolCall) -> ToolResult:
    return error_result("tool_unavailable", f"no tool {call.name!r} here")


async def show_status(tx: TaskTransaction, run: TaskRun, status: str, output: Sequence[Operation] = ()) -> None:
    """Tell everyone who watches what a call with a slot does now, and what was left of its output."""
    live: Any = await tx.value_of(LiveDoc, run.conversation_id)
    slot = None if live is None else live["tools"].get(str(run.task_id))
    if slot is None:
        return
    at = f"/tools/{run.task_id}"
    ops: list[Operation] = [{"op": "replace", "path": f"{at}/status", "value": status}]
    if slot.get("output") and slot["status"] in PARKED:
        ops.append({"op": "replace", "path": f"{at}/output", "value": ""})  # each run begins with none
    ops += output
    await tx.patch(LiveDoc, run.conversation_id, ops)


async def committed_output(run: TaskRun) -> str:
    """Output of a call that was cut off, as far as it had been committed."""
    live: Any = await run.host.session.value_of(LiveDoc, run.conversation_id)
    slot = None if live is None else live["tools"].get(str(run.task_id))
    output = "" if slot is None else slot.get("output", "")
    return f"\nOutput so far:\n{output}" if output else ""


async def interrupted(run: TaskRun) -> ToolResult:
    """What the model reads of a call that a crash cut off and that must not be repeated."""
    return error_result("interrupted", INTERRUPTED + await committed_output(run))


async def clear_output(run: TaskRun) -> None:
    """A safe call runs again: its output begins anew."""
    if not await committed_output(run):
        return
    async with run.transaction() as tx:
        at = f"/tools/{run.task_id}/output"
        await tx.patch(LiveDoc, run.conversation_id, [{"op": "replace", "path": at, "value": ""}])


def with_diagnostic(result: ToolResult, text: str) -> ToolResult:
    """The result with one more line for the model."""
    return msgspec.structs.replace(result, diagnostics=[*(result.diagnostics or []), text])


def with_diagnostics(result: ToolResult) -> Any:
    """The content with its diagnostics as one marked block at the end."""
    if not result.diagnostics:
        return result.content
    block = "\n\n[diagnostics]\n" + "\n".join(result.diagnostics)
    if isinstance(result.content, str):
        return result.content + block
    return [*result.content, {"type": "text", "text": block}]
