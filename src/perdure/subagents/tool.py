"""The `subagents` tool: any agent of the harness starts and steers workflows, and is told what comes of them."""

import asyncio
import contextlib
import json
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Final, Literal, cast

import msgspec
from msgspec import Meta

from perdure import Document, Error, Extension, Harness, SectionContext, ToolContext, ToolError
from perdure.base.errors import InvalidValue
from perdure.subagents import rows, spool, starter, status
from perdure.subagents.client import Client, Outcome, connection, reading, say
from perdure.subagents.describe import describe
from perdure.subagents.discovery import discover
from perdure.subagents.file_changes import file_changes
from perdure.subagents.intake.run import check_agents
from perdure.subagents.notices import notice_request, open_notices
from perdure.subagents.paths import StateRoot
from perdure.subagents.spec import parse_run
from perdure.subagents.state import LiveDoc, Notice, NoticeDoc

Action = Literal["run", "agents", "send", "stop", "status", "describe", "drain", "resume"]
Kind = Literal["steer", "notify", "follow-up", "answer", "model"]
RECHECK_SECONDS: Final = 30.0
QUIT_SECONDS: Final = 3.0


class Parent(msgspec.Struct, kw_only=True):
    """Who this session is to the orchestrator."""

    id: str


ParentDoc: Document[Any] = Document("agents.parent", Parent, scope="session")


async def parent_id(session: Any) -> str:
    """The session's id, made when it is first needed and kept."""
    known = await session.snapshot(ParentDoc)
    if known is None:
        async with session.transaction() as tx:
            known = await tx.snapshot(ParentDoc)
            if known is None:
                known = Parent(id=f"s-{secrets.token_hex(8)}")
                await tx.set(ParentDoc, None, known)
    return str(known.id)


def subagents_tool(root: StateRoot | None = None) -> Extension:
    """An extension with the tool `subagents`. Run `deliver_notices` beside the harness, so that its agent is told."""
    home = root or StateRoot()
    extension = Extension("subagent_workflows")
    extension.add(ParentDoc)

    @extension.tool(replay="safe")
    async def subagents(
        ctx: ToolContext,
        action: Action | None = None,
        agent: str | None = None,
        task: str | None = None,
        tasks: list[dict[str, Any]] | None = None,
        chain: list[dict[str, Any]] | None = None,
        workflow: Annotated[str | None, Meta(description="A workflow script")] = None,
        args: Any = None,
        options: Annotated[
            dict[str, Any] | None,
            Meta(description="More fields of a run: model, cwd, usageBudget, name, schema, gate …"),
        ] = None,
        to: Annotated[
            str | list[str] | None, Meta(description="<workflow>/<key>, or a workflow; a send may have several")
        ] = None,
        kind: Kind | None = None,
        message: str | None = None,
        model: str | None = None,
        wid: str | None = None,
        request: Annotated[str | None, Meta(description="A name for the request: the same one is done once")] = None,
    ) -> str:
        """Start subagents that survive crashes, and steer them. Every run is asynchronous: you are told once, when it
        ends or when a subagent asks something.

        run: one `agent` with a `task`; `tasks` side by side; a `chain`, where {previous} is the output before; or a
        `workflow` script. agents: who there is. send: steer, notify, follow-up, answer or model, to <workflow>/<key>.
        stop: for good. status: what runs and asks; with `wid` one workflow. drain, resume: a hold that can be undone.
        """
        given = {"agent": agent, "task": task, "tasks": tasks, "chain": chain, "workflow": workflow, "args": args}
        sent = {"to": to, "kind": kind, "message": message, "model": model, "wid": wid}
        try:
            return await _act(ctx, home, action, {**given, **(options or {})}, sent, request)
        except InvalidValue as error:
            raise ToolError(str(error)) from error

    @extension.section("subagents")
    async def stands_open(ctx: SectionContext) -> str | None:
        return await _stands_open(home, await ctx.read(ParentDoc))

    return extension


async def _stands_open(root: StateRoot, parent: Parent | None) -> str | None:
    """What stands open now, of what this session has been told: an earlier notice may be out of date."""
    if parent is None:
        return None
    try:
        async with reading(root) as reader:
            found = [] if reader is None else await rows.rows(reader, NoticeDoc)
        held = await live_workflows(root, parent.id, held=True)
    except (OSError, Error):
        return None  # that is no reason to ask no model
    said = [f"Held until they are resumed (action resume): {', '.join(held)}."] if held else []
    asked = [one for one in found if one.kind == "question" and one.session == parent.id and one.presented]
    left = [f"- {one.text.splitlines()[0]}" for one in sorted(asked, key=lambda one: one.at) if one.resolved is None]
    if left:
        said.append("\n".join(["Questions of subagents that are open; all others are settled:", *left]))
    elif asked:
        said.append("Of the questions that subagents asked, all are settled.")
    return "\n\n".join(said) or None


async def _act(
    ctx: ToolContext,
    root: StateRoot,
    action: Action | None,
    run: dict[str, Any],
    sent: dict[str, Any],
    request: str | None,
) -> str:
    if os.environ.get("PERDURE_EXEC"):
        raise ToolError("subagents do not start subagents")
    body = {name: value for name, value in run.items() if value is not None}
    to, kind = sent["to"] or sent["wid"], sent["kind"]
    chosen = action or ("run" if body else "status")
    if isinstance(to, list) and chosen != "send":
        raise ToolError(f"{chosen} has one target; only a send may have several")
    if chosen == "agents":
        return await asyncio.to_thread(_agents, ctx.agent.cwd or ".")
    if chosen in ("status", "describe"):
        return await _see(root, to, chosen)
    sender = await _sender(ctx, root)
    name = request or f"t-{ctx.task_id}-{sender.sender}"
    if chosen == "run":
        return await _run(ctx, sender, {**({"model": sent["model"]} if sent["model"] else {}), **body}, name)
    if chosen == "send":
        if kind is None:
            raise ToolError("send needs a kind: steer, notify, follow-up, answer or model")
        fields = {field: sent[field] for field in ("to", "message", "model") if sent[field]}
        if isinstance(to, list):
            fields.pop("to")
            return _all_told(to, await sender.ask_all(kind, fields, to, request=name))
        return _told(await sender.ask(kind, fields, request=name))
    more = {"to": to} if to else {"session": sender.sender} if chosen in ("drain", "resume") else {}
    return _told(await sender.ask(cast(spool.Kind, chosen), more, request=name))


async def _sender(ctx: ToolContext, root: StateRoot) -> Client:
    known = await ctx.read(ParentDoc)
    if known is None:
        async with ctx.transaction() as tx:
            known = await tx.snapshot(ParentDoc)
            if known is None:
                known = Parent(id=f"s-{secrets.token_hex(8)}")
                await tx.set(ParentDoc, None, known)
    return Client(root, known.id, origin=known.id)


async def _run(ctx: ToolContext, sender: Client, body: dict[str, Any], request: str) -> str:
    body["cwd"] = _absolute(ctx.agent.cwd, str(body.get("cwd", ".")))
    launch = parse_run(body, body["cwd"])
    if await sender.known(request) is None:
        check_agents(launch, await asyncio.to_thread(discover, launch.cwd))
    outcome = await sender.ask("run", body, request=request)
    if outcome.state == "pending":
        return json.dumps({"submitted": {"rid": request}})
    return _told(outcome)


def _absolute(base: str | None, path: str) -> str:
    return os.path.abspath(os.path.join(base or os.getcwd(), path))


def _told(outcome: Outcome) -> str:
    if outcome.state == "applied":
        return json.dumps({"applied": True, **outcome.reply})
    if outcome.state == "pending":
        return json.dumps({"submitted": {"rid": outcome.request}, **outcome.reply})
    reason = str(outcome.reply.get("reason") or outcome.reply.get("error"))
    more = {name: value for name, value in outcome.reply.items() if name not in ("reason", "error")}
    raise ToolError(reason + (f" {json.dumps(more)}" if more else ""))


def _all_told(to: list[str], outcomes: list[Outcome]) -> str:
    """An entry for each target. It is an error only where nothing of it was applied or is under way."""
    if len(outcomes) == 1:
        return _told(outcomes[0])
    told = [
        {"to": target, "request": one.request, "state": one.state, **one.reply}
        for target, one in zip(to, outcomes, strict=True)
    ]
    if not any(one.state in ("applied", "pending") for one in outcomes):
        raise ToolError(json.dumps(told))
    return json.dumps(told)


def _agents(cwd: str) -> str:
    found = discover(cwd)
    lines = [
        f"{agent.name} ({agent.source}{f', {agent.model}' if agent.model else ''}): {agent.description}"
        for agent in found.agents.values()
    ]
    return "\n".join([*lines, *(f"problem: {one.problem}" for one in found.diagnostics)])


async def _see(root: StateRoot, wid: str | None, action: str) -> str:
    async with reading(root) as reader:
        if wid is None:
            return json.dumps(await status.status(reader, root))
        found = await describe(reader, root, wid.partition("/")[0])
        if action == "status" and reader is not None and "wid" in found:
            row = await rows.workflow(reader, found["wid"])
            if row is not None:
                found = await status.workflow_status(reader, row)
        return json.dumps(found)


# notices


@asynccontextmanager
async def deliver_notices(harness: Harness, root: StateRoot | None = None) -> AsyncIterator[None]:
    """While this is open, what subagents of this session need or have done is submitted to its root conversation: each
    revision once, also across restarts. Also starts the orchestrator anew if it died with work under way.

    Leaving it is quitting the session: what runs for it is held until it is resumed, unless the setting `onQuit` is
    `continue`. An error, a crash or a kill holds nothing.
    """
    home = root or StateRoot()
    working = asyncio.create_task(_deliver(harness, home), name="subagent notices")
    failed = False
    try:
        yield
    except Exception:
        failed = True
        raise
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        if not failed:
            await _quit(harness, home)


async def _quit(harness: Harness, root: StateRoot) -> None:
    """Hold what runs for this session, if anything does."""
    config, _ = status.load_config_or_problem(root)
    if config is None or config.on_quit == "continue" or not harness.session.usable:
        return
    session = await parent_id(harness.session)
    with contextlib.suppress(OSError, Error):
        if await live_workflows(root, session):
            await Client(root, session, origin=session).ask("pause", {"session": session}, wait=QUIT_SECONDS)


async def live_workflows(root: StateRoot, session: str, *, held: bool = False) -> list[str]:
    """The workflows of a session that are under way; with `held` those that wait to be resumed."""
    async with reading(root) as reader:
        found = [] if reader is None else [await rows.workflow(reader, wid) for wid in await rows.keys(reader, LiveDoc)]
    return [one.wid for one in found if one is not None and one.origin == session and one.held is held]


async def _deliver(harness: Harness, root: StateRoot) -> None:
    session = await parent_id(harness.session)
    client = Client(root, session, origin=session)
    while True:
        try:
            await _catch_up(harness, root, client, session)
            if starter.running(root) is None and await starter.has_work(root):
                await starter.ensure(root)
            async with connection(root) as (reader, writer):
                await say(writer, {"op": "notices", "session": session})
                while line := await reader.readline():
                    for notice in msgspec.convert(json.loads(line).get("notices", []), list[Notice]):
                        await _present(harness, client, notice)
        except (OSError, Error, ValueError) as error:
            if not harness.session.usable:
                return
            if not isinstance(error, OSError):
                harness.reports.add("subagent notices", error)
        await _something_happens(root)


async def _catch_up(harness: Harness, root: StateRoot, client: Client, session: str) -> None:
    """What came while no orchestrator or no session ran."""
    async with reading(root) as reader:
        found = [] if reader is None else await open_notices(reader, session)
    for notice in found:
        await _present(harness, client, notice)


async def open_for(root: StateRoot, session: str) -> list[str]:
    """Notices that a session has not been given, by id."""
    async with reading(root) as reader:
        found = [] if reader is None else await open_notices(reader, session)
    return [notice.id for notice in found if notice.resolved is None and notice.presented < notice.rev]


async def _present(harness: Harness, client: Client, notice: Notice) -> None:
    """Submit a revision under its own id, then say that it is stored. A repetition of either changes nothing."""
    if notice.presented >= notice.rev or notice.resolved is not None:
        return
    root = await harness.root()
    text = f"[subagents: {notice.kind} {notice.id}@{notice.rev}] {notice.text}"
    await root.submit(text, request_id=notice_request(notice), when_busy="steer")
    with contextlib.suppress(OSError):
        await client.presented(notice)


async def _something_happens(root: StateRoot) -> None:
    """Wait until an orchestrator listens, at most for a while."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(RECHECK_SECONDS):
            async for _ in file_changes(root.socket):
                for pause in (0.0, 0.1):  # its socket is there a moment before it listens
                    await asyncio.sleep(pause)
                    if starter.reachable(root):
                        return
