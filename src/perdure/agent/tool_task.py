"""The task of one tool call: resolve and ask the gates, record the intent, run, store the result."""

from typing import Any, Final

import msgspec

from perdure.agent.agent import Agent
from perdure.agent.attachments import missing
from perdure.agent.calls import (
    CallSite,
    call_site,
    check_call,
    error_result,
    ready_at_once,
    reap,
    reviewed_result,
)
from perdure.agent.configure import add_tools
from perdure.agent.documents import LiveDoc
from perdure.agent.entries import ToolResultEntry, put
from perdure.agent.invoke import invoke
from perdure.agent.usage import book
from perdure.base.delta import Operation
from perdure.base.ids import EntryId
from perdure.extensions.results import AddTools, ToolResult, stored_control
from perdure.models.messages import ToolCall, ToolResultMessage
from perdure.tasks.decisions import Next
from perdure.tasks.definition import phase, task
from perdure.tasks.runtime import TaskRun
from perdure.tasks.transaction import TaskTransaction

INTERRUPTED: Final = "the process ended while this call ran; it is not known how far it came, and it was not repeated"


@task("perdure.tool", version=1)
class ToolTask:
    """One call: the assistant entry that asked for it, and its position among that entry's calls."""

    answer: EntryId
    position: int

    @phase(first=True)
    async def call(self, run: TaskRun) -> Next[Any]:
        """Before the intent: everything here may run again after a crash."""
        agent: Agent = run.host
        site = await call_site(agent, run, self.answer, self.position)
        if isinstance(site, ToolCall):
            return await finish(run, site, error_result("tool_unavailable", f"no tool {site.name!r} here"), gone=True)
        checked = await check_call(site)
        if isinstance(checked, ToolResult):
            return await finish(run, site.call, checked)
        async with run.transaction() as tx:  # the intent: from here on it may have happened
            tx.checkpoint(self.execute, checked.arguments, site.tool.replay)
            await tx.patch(LiveDoc, run.conversation_id, [status_operation(run, "running")])
        return await _execute(run, site, checked.arguments)

    @phase
    async def begin(self, run: TaskRun, arguments: dict[str, Any], replay: str) -> Next[Any]:
        """A call whose intent was stored in the commit that created it, since nothing had to be asked before."""
        if run.cut:
            return await self.execute(run, arguments, replay)
        agent: Agent = run.host
        site = await call_site(agent, run, self.answer, self.position)
        if isinstance(site, ToolCall) or not ready_at_once(site):
            return run.goto(self.call)  # what is installed has changed since: checks and gates come first
        return await _execute(run, site, arguments)

    @phase
    async def execute(self, run: TaskRun, arguments: dict[str, Any], replay: str) -> Next[Any]:
        """Recovery: the intent is stored, and a crash or a close cut the call off, so it may have happened."""
        agent: Agent = run.host
        site = await call_site(agent, run, self.answer, self.position)
        if isinstance(site, ToolCall):
            return await finish(run, site, await interrupted(run, agent), gone=True)
        leftovers = await reap(site)
        if replay == "safe" and site.tool.replay == "safe":
            await clear_output(run, agent)
            return await _execute(run, site, arguments)
        result = await interrupted(run, agent)
        if leftovers:
            result = with_diagnostic(result, f"still running, and not to be ended: {', '.join(leftovers)}")
        return await finish(run, site.call, result)

    async def abort(self, run: TaskRun) -> Next[Any]:
        """The call was stopped; the model reads that, with the output that had come."""
        agent: Agent = run.host
        site = await call_site(agent, run, self.answer, self.position)
        call = site if isinstance(site, ToolCall) else site.call
        if not isinstance(site, ToolCall):
            await reap(site)
        result = error_result("aborted", "the call was stopped" + await committed_output(run, agent))
        names = await agent.names(run.conversation_id)
        for point in ("on_abort", "after_tool"):
            result = await reviewed_result(agent, run, names, call, point, result)
        async with run.transaction() as tx:
            await store_result(tx, run, call, result)
            return tx.aborted()


async def _execute(run: TaskRun, site: CallSite, arguments: dict[str, Any]) -> Next[Any]:
    return await finish(run, site.call, await invoke(site, arguments))


async def finish(run: TaskRun, call: ToolCall, result: ToolResult, *, gone: bool = False) -> Next[Any]:
    """`after_tool` hooks, then result entry, slot, usage and the task's end in one commit. `gone`: its tool is."""
    agent: Agent = run.host
    names = await agent.names(run.conversation_id)
    result = await reviewed_result(agent, run, names, call, "after_tool", result)
    lost = await agent.attachments.first_missing(result.content)
    if lost is not None:
        result = error_result("tool_error", str(missing(lost)))
    async with run.transaction() as tx:
        await store_result(tx, run, call, result)
        if gone:
            return tx.fail({"code": "tool_unavailable", "message": f"no tool {call.name!r}"})
        return tx.complete({"is_error": result.is_error})


async def store_result(tx: TaskTransaction, run: TaskRun, call: ToolCall, result: ToolResult) -> None:
    """The result's entry, its slot in the live document, and what the tool spent."""
    content = with_diagnostics(result)
    message = ToolResultMessage(call.id, call.name, content, is_error=result.is_error)
    data = {
        key: value
        for key, value in (("details", result.details), ("structured", result.structured))
        if value is not None
    }
    put(tx, run.conversation_id, ToolResultEntry, message, task=run.task_id, data=data or None)
    if result.usage is not None:
        await book(tx, run.conversation_id, "tools", call.name, result.usage)
    if isinstance(result.control, AddTools):
        await add_tools(tx, run.conversation_id, result.control.names)
    live: Any = await tx.value_of(LiveDoc, run.conversation_id)
    slot = None if live is None else live["tools"].get(str(run.task_id))
    if slot is None:
        return  # a nested call, or the run was closed
    done = {"name": call.name, "call_id": call.id, "status": "done", "is_error": result.is_error}
    if result.control is not None:
        done["control"] = stored_control(result.control)
    at = f"/tools/{run.task_id}"
    ops: list[Operation] = [{"op": "replace", "path": at, "value": done}]
    await tx.patch(LiveDoc, run.conversation_id, ops)


def status_operation(run: TaskRun, status: str) -> Operation:
    """Tells everyone who watches what the call does now."""
    return {"op": "replace", "path": f"/tools/{run.task_id}/status", "value": status}


async def committed_output(run: TaskRun, agent: Agent) -> str:
    """Output of a call that was cut off, as far as it had been committed."""
    live: Any = await agent.session.value_of(LiveDoc, run.conversation_id)
    slot = None if live is None else live["tools"].get(str(run.task_id))
    output = "" if slot is None else slot.get("output", "")
    return f"\nOutput so far:\n{output}" if output else ""


async def interrupted(run: TaskRun, agent: Agent) -> ToolResult:
    """What the model reads of a call that a crash cut off and that must not be repeated."""
    return error_result("interrupted", INTERRUPTED + await committed_output(run, agent))


async def clear_output(run: TaskRun, agent: Agent) -> None:
    """A safe call runs again: its output begins anew."""
    if not await committed_output(run, agent):
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
