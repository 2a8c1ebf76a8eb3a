"""The task of one call that a model made."""

from typing import Any

from perdure.agent.call_phases import CallPhases, with_diagnostics
from perdure.agent.calls import find_call
from perdure.agent.configure import add_tools
from perdure.agent.documents import LiveDoc
from perdure.agent.entries import ToolResultEntry, put
from perdure.base.delta import Operation
from perdure.base.ids import EntryId
from perdure.extensions.results import AddTools, ToolResult, stored_control
from perdure.models.messages import ToolCall, ToolResultMessage
from perdure.tasks.definition import task
from perdure.tasks.runtime import TaskRun
from perdure.tasks.transaction import TaskTransaction


@task("perdure.tool", version=1)
class ToolTask(CallPhases):
    """One call: the assistant entry that asked for it, and its position among that entry's calls."""

    answer: EntryId
    position: int

    async def find(self, run: TaskRun) -> ToolCall:
        """The call as the model wrote it."""
        return await find_call(run.host, run, self.answer, self.position)

    async def store(self, tx: TaskTransaction, run: TaskRun, call: ToolCall, result: ToolResult) -> Any:
        """The result's entry, its slot in the live document, and what it asks of the run."""
        message = ToolResultMessage(call.id, call.name, with_diagnostics(result), is_error=result.is_error)
        began = run.record.started_at
        seconds = None if began is None else max(0, tx.now_millis - began) / 1000  # gates, parks, reruns included
        shown = (("details", result.details), ("structured", result.structured), ("seconds", seconds))
        data = {key: value for key, value in shown if value is not None}
        put(tx, run.conversation_id, ToolResultEntry, message, task=run.task_id, data=data)
        if isinstance(result.control, AddTools):
            await add_tools(tx, run.conversation_id, result.control.names)
        live: Any = await tx.value_of(LiveDoc, run.conversation_id)
        if live is not None and str(run.task_id) in live["tools"]:  # else the run was closed
            done: dict[str, Any] = {"name": call.name, "call_id": call.id, "status": "done"}
            done |= {"is_error": result.is_error, "seconds": seconds}
            if result.control is not None:
                done["control"] = stored_control(result.control)
            if result.diagnostics:
                done["diagnostics"] = list(result.diagnostics)
            ops: list[Operation] = [{"op": "replace", "path": f"/tools/{run.task_id}", "value": done}]
            await tx.patch(LiveDoc, run.conversation_id, ops)
        return {"is_error": result.is_error}
