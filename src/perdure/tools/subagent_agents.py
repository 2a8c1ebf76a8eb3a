"""The tool that keeps named subagents."""

import re
from typing import Annotated, Any, Final, Literal, NamedTuple

from msgspec import Meta

from perdure.base.clock import MINUTE
from perdure.base.ids import ConversationId, TaskId
from perdure.base.text import well_formed
from perdure.extensions.api import ToolContext
from perdure.extensions.results import ToolError, ToolResult, Wait
from perdure.extensions.tool import Tool
from perdure.tools.subagent_roles import DepthDoc, Roles
from perdure.tools.subagent_team import MOST_NAMES, Alarm, Anchor, Member, MemberDoc, Report, TakenDoc, is_at_work

NAME_LENGTH: Final = 64
MESSAGE_LENGTH: Final = 100_000
"""Characters; what is longer belongs into a file."""
LONGEST_WAIT: Final = 7.0 * 24 * 60
"""Minutes."""
Action = Literal["spawn", "message", "wait", "stop", "list"]


class Found(NamedTuple):
    """What is known of a named subagent."""

    member: Any
    stands: bool
    """Whether it can still be asked."""
    coming: list[int]
    """Reports that are to come."""


def agents_tool(roles: Roles, most: int) -> Tool:
    """The tool that keeps named subagents, `most` of them at once in a conversation."""

    async def agents(
        ctx: ToolContext[Any],
        action: Action,
        name: Annotated[str | None, Meta(description="Which one; spawn gives it this name")] = None,
        message: Annotated[
            Annotated[str, Meta(max_length=MESSAGE_LENGTH)] | None, Meta(description="For spawn and message")
        ] = None,
        role: Annotated[str | None, Meta(description="For spawn; left out: an agent like you")] = None,
        minutes: Annotated[
            Annotated[float, Meta(gt=0, le=LONGEST_WAIT)] | None,
            Meta(description="For wait: how long at most; left out: until the answers are there"),
        ] = None,
    ) -> str | ToolResult | Wait[Any]:
        """Keep subagents that work in the background. Their answers come to you as messages; go on with your work.

        spawn: start one under a name with its first message. message: say something more to it. wait: wait for the
        answers that are to come, of one or of all. stop: end it for good. list: those there are.
        """
        if action == "list":
            return await _list(ctx)
        if action == "wait":
            return await _wait(ctx, None if name is None else _name(name), minutes)
        name = _name(name)
        if action == "stop":
            return await _stop(ctx, name)
        if message is None or not message.strip():
            raise ToolError(f"{action} needs a message")
        conversation = await (_spawn(ctx, roles, name, role, most) if action == "spawn" else _asked(ctx, name))
        await _ask(ctx, name, conversation, well_formed(message))
        text = f"{name} works on it; the answer comes as a message"
        return ToolResult(text, details={"name": name, "conversation": conversation})

    agents.__doc__ = (agents.__doc__ or "") + roles.describe()
    return Tool(agents, name="agents", replay="safe")


def _name(name: str | None) -> str:
    if name is None or re.fullmatch(rf"[\w-]{{1,{NAME_LENGTH}}}", name) is None:
        raise ToolError(f"a name has 1 to {NAME_LENGTH} letters, digits, - and _; got {ascii(name)[:100]}")
    return name


async def _find(tx: Any, conversation: ConversationId, name: str) -> Found | None:
    """What is true of a name in this block. Whether it stands is told by its anchor alone, whoever stopped that."""
    member = await tx.value_of(MemberDoc, conversation, key=name)
    if member is None:
        return None
    coming = [id for id in member["reports"] if tx.live_task(TaskId(id)) is not None]
    return Found(member, is_at_work(tx, member["anchor"]), coming)


async def _names(tx: Any, conversation: ConversationId) -> list[str]:
    found: list[str] = await tx.document_keys(MemberDoc, conversation, limit=MOST_NAMES)
    return found


async def _standing(tx: Any, conversation: ConversationId, name: str) -> Found:
    """One that can be asked. Raises `ToolError` that says what there is instead."""
    found = await _find(tx, conversation, name)
    if found is None:
        raise ToolError(f"no subagent {name}; there are: {', '.join(await _names(tx, conversation)) or 'none'}")
    if not found.stands:
        raise ToolError(f"{name} was stopped: spawn it anew")
    return found


async def _asked(ctx: ToolContext[Any], name: str) -> int:
    async with ctx.transaction() as tx:
        return int((await _standing(tx, ctx.conversation_id, name)).member["conversation"])


async def _spawn(ctx: ToolContext[Any], roles: Roles, name: str, role: str | None, most: int) -> int:
    """Make the subagent, with its anchor and its row in one commit; a rerun of the call finds it."""
    async with ctx.transaction() as tx:
        found = await _find(tx, ctx.conversation_id, name)
    if found is not None and found.member["call"] == ctx.task_id and await ctx.memo("agents.set_up") is not None:
        return int(found.member["conversation"])
    chosen, depth = roles.chosen(role), await roles.below(ctx)
    async with ctx.transaction() as tx:
        found = await _find(tx, ctx.conversation_id, name)
        if found is None or not found.stands:
            await _make_way(tx, ctx.conversation_id, most)
            anchor = tx.create_task(Anchor(name), conversation=ctx.conversation_id, background=True)
            made = tx.create_conversation(owner=anchor)
            await tx.set(DepthDoc, made, {"depth": depth})
            row = Member(
                call=ctx.task_id,
                anchor=anchor,
                conversation=made,
                role=role and well_formed(role),
                reports=[],
                waiting={},
            )
            await tx.set(MemberDoc, ctx.conversation_id, row, key=name)
        elif found.member["call"] != ctx.task_id:
            raise ToolError(f"there is a subagent {name} already: send it a message, or take another name")
        else:
            made = ConversationId(found.member["conversation"])
    await roles.set_up(ctx, ctx.conversation(made), chosen, depth)
    await ctx.memo("agents.set_up", 1)
    return int(made)


async def _make_way(tx: Any, conversation: ConversationId, most: int) -> None:
    """Refuse one more than there may be; give up the names of stopped ones once there are as many of those."""
    live: list[str] = []
    gone: list[str] = []
    for name in await _names(tx, conversation):
        found = await _find(tx, conversation, name)
        (live if found is not None and found.stands else gone).append(name)
    if len(live) >= most:
        raise ToolError(f"there are {len(live)} subagents, no more may be at once; stop one: {', '.join(live)}")
    for name in gone if len(gone) > most else ():
        await tx.retire(MemberDoc, conversation, key=name)


async def _ask(ctx: ToolContext[Any], name: str, conversation: int, message: str) -> None:
    """Create the report of this call and enter it as an answer to come, in one commit; a rerun finds it done."""
    async with ctx.transaction() as tx:
        if await tx.value_of(TakenDoc, ctx.task_id) is not None:
            return
        member = (await _standing(tx, ctx.conversation_id, name)).member
        report = tx.create_task(Report(name, conversation, message), owner=TaskId(member["anchor"]))
        row = {**member, "reports": [*member["reports"], report]}
        await tx.set(MemberDoc, ctx.conversation_id, row, key=name)
        await tx.set(TakenDoc, ctx.task_id, {"reports": {name: [report]}})


async def _wait(ctx: ToolContext[Any], name: str | None, minutes: float | None) -> str | Wait[Any]:
    """Take the answers that are to come: mark them as awaited and park; the wakes find them."""
    taken = await ctx.read(TakenDoc, ctx.task_id)
    reports: dict[str, list[int]] = taken["reports"] if taken is not None else await _take(ctx, name)
    if not reports:
        return "no answers are to come"
    alarm = None
    if minutes is not None:
        alarm = await ctx.create_task(Alarm(ctx.now() + minutes * MINUTE), key="agents.alarm")
    async with ctx.transaction() as tx:
        left = [id for ids in reports.values() for id in ids if tx.live_task(TaskId(id)) is not None]
        late = alarm is not None and tx.live_task(alarm) is None
        if left and not late:
            on = [*map(TaskId, left), *(() if alarm is None else (alarm,))]
            return Wait(on=on, policy="all_settled" if alarm is None else "any")
        for who in reports if left else ():
            await _give_back(tx, ctx, who)
        if alarm is not None:
            await tx.abort_task(alarm)
    said = []
    for who, ids in reports.items():
        for id in ids:
            said.append(f"{who}: {await _answer(ctx, id, came=id not in left)}")
    return "\n\n".join(said)


async def _answer(ctx: ToolContext[Any], report: int, *, came: bool) -> str:
    if not came:
        return "not there yet; the answer comes as a message"
    outcome = await ctx.wait_task(TaskId(report))
    if outcome.status == "completed":
        return outcome.result(str)
    return "it was stopped before it answered" if outcome.status == "aborted" else f"no answer: it {outcome.status}"


async def _take(ctx: ToolContext[Any], name: str | None) -> dict[str, list[int]]:
    """Enter this call as the one that takes the answers to come which no other call waits for."""
    taken: dict[str, list[int]] = {}
    async with ctx.transaction() as tx:
        if name is not None:
            await _standing(tx, ctx.conversation_id, name)
        for who in [name] if name is not None else await _names(tx, ctx.conversation_id):
            found = await _find(tx, ctx.conversation_id, who)
            if found is None or not found.stands:
                continue
            waiting = found.member["waiting"]
            free = [id for id in found.coming if not is_at_work(tx, waiting.get(str(id), 0))]
            if free:
                taken[who] = free
                row = {**found.member, "waiting": {**waiting, **{str(id): ctx.task_id for id in free}}}
                await tx.set(MemberDoc, ctx.conversation_id, row, key=who)
        if taken:
            await tx.set(TakenDoc, ctx.task_id, {"reports": taken})
    return taken


async def _give_back(tx: Any, ctx: ToolContext[Any], who: str) -> None:
    """Wait no longer: what has not come by now comes as a message."""
    member = await tx.value_of(MemberDoc, ctx.conversation_id, key=who)
    if member is not None:
        waiting = {id: call for id, call in member["waiting"].items() if call != ctx.task_id}
        await tx.set(MemberDoc, ctx.conversation_id, {**member, "waiting": waiting}, key=who)


async def _stop(ctx: ToolContext[Any], name: str) -> str:
    async with ctx.transaction() as tx:
        found = await _find(tx, ctx.conversation_id, name)
        if found is None:
            names = ", ".join(await _names(tx, ctx.conversation_id))
            raise ToolError(f"no subagent {name}; there are: {names or 'none'}")
        if found.stands:
            await tx.abort_task(TaskId(found.member["anchor"]), background=True)
            for id in found.coming:  # those of older stores belong to the conversation
                await tx.abort_task(TaskId(id))
    return f"{name} is stopped"


async def _list(ctx: ToolContext[Any]) -> str:
    lines = []
    async with ctx.transaction() as tx:
        for name in await _names(tx, ctx.conversation_id):
            found = await _find(tx, ctx.conversation_id, name)
            if found is not None:
                state = "stopped" if not found.stands else "works" if found.coming else "idle"
                lines.append(f"{name}: {state}" + (f" ({found.member['role']})" if found.member["role"] else ""))
    return "\n".join(lines) or "no subagents"
