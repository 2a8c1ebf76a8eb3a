"""A subagent for one job: a conversation that the call owns. While it works, or waits, the call is a row."""

from typing import Annotated, Any, Final

from msgspec import Meta

from perdure.base.ids import ConversationId
from perdure.base.text import well_formed
from perdure.extensions.api import ConversationHandle, ToolContext
from perdure.extensions.results import Sleep, ToolError, ToolResult
from perdure.extensions.settled import Settled, SubmissionSettled
from perdure.extensions.tool import Tool
from perdure.tools.subagent_roles import DepthDoc, Roles
from perdure.tools.subagent_team import stop_members

ANSWERED: Final = "answered"
MADE: Final = "subagent.conversation"
TASK_LENGTH: Final = 100_000
"""Characters of a job; what is longer belongs into a file."""


def subagent_tool(roles: Roles) -> Tool:
    """The tool that gives a job to a subagent and waits for its answer, parked."""

    async def subagent(
        ctx: ToolContext[Any],
        task: Annotated[str, Meta(min_length=1, max_length=TASK_LENGTH, description="The job, with all it needs")],
        role: Annotated[str | None, Meta(description="Who does it; left out: an agent like you")] = None,
    ) -> ToolResult | Sleep[Any]:
        """Give a job to a subagent and get its answer. It does not see this conversation: say all that it needs."""
        settled = await ctx.read_signal(SubmissionSettled, ANSWERED)
        child = await _child(ctx, roles, role)
        if settled is None:
            await ctx.details({"conversation": child.id})
        # the same id finds the first submission again, whatever happened in between
        submission = await child.submit(well_formed(task), request_id="task", notify=(ctx.task_id, ANSWERED))
        if settled is None:
            return Sleep(signals=[SubmissionSettled.key(ANSWERED)])
        ended: Settled = settled.value
        async with ctx.transaction() as tx:  # what it kept in the background ends with its job
            await stop_members(tx, child.id)
        details = {"conversation": child.id}
        if ended.status != "done":
            raise ToolError(f"the subagent ended without an answer: {ended.detail or ended.reason}")
        return ToolResult((await submission.wait()).text, details=details)

    subagent.__doc__ = (subagent.__doc__ or "") + roles.describe()
    tool = Tool(subagent, name="subagent", replay="safe")

    @tool.cancel
    async def stopped(ctx: ToolContext[Any]) -> None:
        known = await ctx.memo(MADE, type=int)
        if known is not None:
            async with ctx.transaction() as tx:
                await stop_members(tx, ConversationId(known))

    return tool


async def _child(ctx: ToolContext[Any], roles: Roles, role: str | None) -> ConversationHandle:
    """The call's own conversation, whose agent is set before it gets its job. A rerun finds it."""
    known = await ctx.memo(MADE, type=int)
    if known is not None:  # whatever the host offers by now: it has its agent
        return ctx.conversation(ConversationId(known))
    chosen, depth = roles.chosen(role), await roles.below(ctx)
    async with ctx.transaction() as tx:
        mine = await tx.scan_conversations(owner=ctx.task_id, limit=1)
        made = mine[0].id if mine else tx.create_conversation(owner=ctx.task_id)
        if not mine:
            await tx.set(DepthDoc, made, {"depth": depth})
    child = ctx.conversation(made)
    await roles.set_up(ctx, child, chosen, depth)
    await ctx.memo(MADE, int(made))
    return child
