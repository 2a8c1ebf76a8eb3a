"""Named subagents that stay: they work in the background, are written to, and answer with messages."""

import re
from typing import Annotated, Any, Final, Literal, TypedDict

from msgspec import Meta

from perdure.base.ids import ConversationId, TaskId
from perdure.base.text import well_formed
from perdure.extensions.api import ToolContext
from perdure.extensions.documents import Document, document_family
from perdure.extensions.results import ToolError, Wait
from perdure.extensions.settled import SubmissionSettled
from perdure.extensions.tool import Tool
from perdure.extensions.work import Next, Signal, TaskRun, phase, task
from perdure.tools.subagent_roles import DepthDoc, Roles

NAME_LENGTH: Final = 64
MESSAGE_LENGTH: Final = 100_000
ANSWERED: Final = "answered"
Action = Literal["spawn", "message", "wait", "stop", "list"]

Ended: Signal[bool] = Signal("subagents.ended", schema=bool)
"""Nobody delivers it: an anchor stands until it is aborted."""


class Member(TypedDict):
    """A named subagent of a conversation."""

    call: int
    """The call that made it."""
    anchor: int
    conversation: int
    role: str | None
    reports: list[int]
    """Answers to come."""
    awaited: list[int]
    """Those of them that a waiting call takes: they come as its result, not as messages."""
    stopped: bool


MemberDoc: Document[Any] = document_family("subagents.member", Member, scope="conversation", fork="initial")
"""By name. A fork has none: they answer where they were asked."""


class Taken(TypedDict):
    """The reports that a call made, or waits for, by name; stored in the commit that does so."""

    reports: dict[str, list[int]]


TakenDoc: Document[Any] = Document("subagents.taken", Taken, scope="task")


@task("subagents.anchor", version=1)
class Anchor:
    """Owns a named subagent's conversation; stopping it stops that first."""

    name: str

    @phase(first=True)
    async def stand(self, run: TaskRun) -> Next[None]:
        return run.sleep(self.stand, [Ended.key("ended")])


@task("subagents.report", version=1)
class Report:
    """Hands one message to a subagent, and its answer to the conversation that it belongs to, once."""

    name: str
    conversation: int
    message: str

    @phase(first=True)
    async def ask(self, run: TaskRun) -> Next[str]:
        await self._submit(run)
        return run.sleep(self.hear, [SubmissionSettled.key(ANSWERED)])

    async def _submit(self, run: TaskRun) -> Any:
        """The submission; asked for again it is the same one."""
        child = run.conversation(ConversationId(self.conversation))
        return await child.submit(self.message, request_id=f"report:{run.task_id}", notify=(run.task_id, ANSWERED))

    @phase
    async def hear(self, run: TaskRun) -> Next[str]:
        state = await run.read_signal(SubmissionSettled, ANSWERED)
        settled = state.value if state is not None else None
        if settled is not None and settled.status == "done":
            text: str = (await (await self._submit(run)).wait()).text
        else:
            text = f"It ended without an answer: {settled.detail or settled.reason}" if settled else "It ended."
        async with run.transaction() as tx:  # whoever waits and whoever tells decide in one order
            member = await tx.value_of(MemberDoc, run.conversation_id, key=self.name)
            taken = False
            if isinstance(member, dict):
                taken = run.task_id in member["awaited"]
                left = {name: [id for id in member[name] if id != run.task_id] for name in ("reports", "awaited")}
                await tx.set(MemberDoc, run.conversation_id, {**member, **left}, key=self.name)
            return tx.complete(text) if taken else tx.goto(self.tell, text)

    @phase
    async def tell(self, run: TaskRun, text: str) -> Next[str]:
        said = f"Message from your subagent {self.name}:\n{text}"
        await run.conversation().submit(said, request_id=f"report:{run.task_id}", when_busy="steer")
        return run.complete(text)


def agents_tool(roles: Roles) -> Tool:
    """The tool that keeps named subagents."""

    async def agents(
        ctx: ToolContext[Any],
        action: Action,
        name: Annotated[str | None, Meta(description="Which one; spawn gives it this name")] = None,
        message: Annotated[
            Annotated[str, Meta(max_length=MESSAGE_LENGTH)] | None, Meta(description="For spawn and message")
        ] = None,
        role: Annotated[str | None, Meta(description="For spawn; left out: an agent like you")] = None,
    ) -> str | Wait[Any]:
        """Keep subagents that work in the background. Their answers come to you as messages; go on with your work.

        spawn: start one under a name with its first message. message: say something more to it. wait: wait for the
        answers that are to come, of one or of all. stop: end it for good. list: those there are.
        """
        if action == "list":
            return await _list(ctx)
        if action == "wait":
            return await _wait(ctx, name)
        if name is None or not _is_name(name):
            raise ToolError(f"a name has 1 to {NAME_LENGTH} letters, digits, - and _; got {name!r:.100}")
        if action == "stop":
            return await _stop(ctx, name)
        if message is None or not message.strip():
            raise ToolError(f"{action} needs a message")
        conversation = await (_spawn(ctx, roles, name, role) if action == "spawn" else _found(ctx, name))
        await _ask(ctx, name, conversation, well_formed(message))
        return f"{name} works on it; the answer comes as a message"

    agents.__doc__ = (agents.__doc__ or "") + (f"\n\nRoles:{roles.describe()}" if roles.describe() else "")
    return Tool(agents, name="agents", replay="safe")


def _is_name(name: str) -> bool:
    return re.fullmatch(rf"[\w-]{{1,{NAME_LENGTH}}}", name) is not None


async def _spawn(ctx: ToolContext[Any], roles: Roles, name: str, role: str | None) -> int:
    """Make the subagent, with its anchor and its row in one commit; a rerun of the call finds it."""
    chosen, depth = roles.chosen(role), await roles.below(ctx)
    async with ctx.transaction() as tx:
        member: Any = await tx.value_of(MemberDoc, ctx.conversation_id, key=name)
        if member is None or (member["stopped"] and member["call"] != ctx.task_id):
            anchor = tx.create_task(Anchor(name), conversation=ctx.conversation_id, background=True)
            made = tx.create_conversation(owner=anchor)
            await tx.set(DepthDoc, made, {"depth": depth})
            member = Member(
                call=ctx.task_id, anchor=anchor, conversation=made, role=role, reports=[], awaited=[], stopped=False
            )
            await tx.set(MemberDoc, ctx.conversation_id, member, key=name)
        elif member["call"] != ctx.task_id:
            raise ToolError(f"there is a {name} already: send it a message, or take another name")
    await roles.set_up(ctx, ctx.conversation(ConversationId(member["conversation"])), chosen, depth)
    return int(member["conversation"])


async def _found(ctx: ToolContext[Any], name: str) -> int:
    member = await ctx.read(MemberDoc, ctx.conversation_id, key=name)
    if member is None:
        raise ToolError(f"no subagent {name}; there are: {', '.join(await _names(ctx)) or 'none'}")
    if member["stopped"]:
        raise ToolError(f"{name} was stopped: spawn it anew")
    return int(member["conversation"])


async def _ask(ctx: ToolContext[Any], name: str, conversation: int, message: str) -> None:
    """Create the report of this call and enter it as an answer to come, in one commit; a rerun finds it done."""
    async with ctx.transaction() as tx:
        if await tx.value_of(TakenDoc, ctx.task_id) is not None:
            return
        member: Any = await tx.value_of(MemberDoc, ctx.conversation_id, key=name)
        report = tx.create_task(Report(name, conversation, message), conversation=ctx.conversation_id, background=True)
        await tx.set(MemberDoc, ctx.conversation_id, {**member, "reports": [*member["reports"], report]}, key=name)
        await tx.set(TakenDoc, ctx.task_id, {"reports": {name: [report]}})


async def _wait(ctx: ToolContext[Any], name: str | None) -> str | Wait[Any]:
    """Take the answers that are to come: mark them as awaited and park; the wake finds them."""
    taken = await ctx.read(TakenDoc, ctx.task_id)
    if taken is not None:
        said = []
        for who, reports in taken["reports"].items():
            for report in reports:
                outcome = await ctx.wait_task(TaskId(report))
                said.append(f"{who}: {outcome.result(str) if outcome.status == 'completed' else outcome.status}")
        return "\n\n".join(said)
    if name is not None:
        await _found(ctx, name)
    found: dict[str, list[int]] = {}
    async with ctx.transaction() as tx:
        for who in [name] if name is not None else await tx.document_keys(MemberDoc, ctx.conversation_id, limit=1000):
            member: Any = await tx.value_of(MemberDoc, ctx.conversation_id, key=who)
            if member is not None and member["reports"]:
                found[who] = list(member["reports"])
                awaited = [*member["awaited"], *(id for id in member["reports"] if id not in member["awaited"])]
                await tx.set(MemberDoc, ctx.conversation_id, {**member, "awaited": awaited}, key=who)
        if found:
            await tx.set(TakenDoc, ctx.task_id, {"reports": found})
    if not found:
        return "no answers are to come"
    return Wait(on=[TaskId(id) for reports in found.values() for id in reports])


async def _stop(ctx: ToolContext[Any], name: str) -> str:
    async with ctx.transaction() as tx:
        member: Any = await tx.value_of(MemberDoc, ctx.conversation_id, key=name)
        if member is None:
            raise ToolError(f"no subagent {name}")
        if member["stopped"]:
            return f"{name} is stopped"
        for id in [member["anchor"], *member["reports"]]:
            await tx.abort_task(TaskId(id), background=True)
        gone = {**member, "stopped": True, "reports": [], "awaited": []}
        await tx.set(MemberDoc, ctx.conversation_id, gone, key=name)
    return f"{name} is stopped"


async def _list(ctx: ToolContext[Any]) -> str:
    lines = []
    for name in await _names(ctx):
        member = await ctx.read(MemberDoc, ctx.conversation_id, key=name)
        if member is not None:
            state = "stopped" if member["stopped"] else "works" if member["reports"] else "idle"
            lines.append(f"{name}: {state}" + (f" ({member['role']})" if member["role"] else ""))
    return "\n".join(lines) or "no subagents"


async def _names(ctx: ToolContext[Any]) -> list[str]:
    async with ctx.transaction() as tx:
        return await tx.document_keys(MemberDoc, ctx.conversation_id, limit=1000)
