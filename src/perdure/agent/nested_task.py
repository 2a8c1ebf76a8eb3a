"""The task of one call that a tool made of another."""

from typing import Any

from perdure.agent.call_phases import CallPhases
from perdure.agent.nested import NESTED, result_json
from perdure.extensions.results import ToolResult
from perdure.models.messages import ToolCall
from perdure.tasks.definition import task
from perdure.tasks.runtime import TaskRun
from perdure.tasks.states import Pending, Running, state_of
from perdure.tasks.transaction import TaskTransaction


@task(NESTED, version=1)
class NestedTool(CallPhases):
    """A call with its arguments as the calling tool gave them. Its result is the task's own, not in the transcript."""

    tool: str
    arguments: dict[str, Any]

    async def find(self, run: TaskRun) -> ToolCall:
        """The call under an id of its own."""
        return ToolCall(f"nested_{run.task_id}", self.tool, self.arguments)

    async def store(self, tx: TaskTransaction, run: TaskRun, call: ToolCall, result: ToolResult) -> Any:
        """The whole result is what the task completes with."""
        return result_json(result)

    async def is_abandoned(self, run: TaskRun) -> bool:
        """Whether the calling tool was cut off and must not run again, so that it never asks for this result."""
        caller = await run.host.session.store.task(run.record.owner)
        state = None if caller is None or caller.status not in ("pending", "running") else state_of(caller)
        if not isinstance(state, Pending | Running):
            return caller is None or caller.status in ("completing", "terminal")
        at = state.checkpoint
        return state.cut and at.phase in ("begin", "execute") and at.arguments.get("replay") != "safe"
