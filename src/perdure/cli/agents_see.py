"""`perdure agents status`, `describe`, `events`, `tail`: from committed rows, whether an orchestrator runs or not."""

import asyncio
import json
from contextlib import suppress
from typing import Any

import click
import msgspec

from perdure.base.errors import InvalidValue
from perdure.cli.agents_kit import PENDING, Strict, as_json, wait_for
from perdure.subagents import events as log
from perdure.subagents import rows, starter
from perdure.subagents import status as state
from perdure.subagents.client import connection, reading, say
from perdure.subagents.describe import describe as described
from perdure.subagents.paths import StateRoot
from perdure.subagents.rendering import brief_lines, event_line, workflow_lines
from perdure.subagents.state import Event

EXPIRED = 4


@click.command("status", cls=Strict)
@click.argument("wid", required=False)
@click.option("--key", help="One call, whole.")
@click.option("--full", is_flag=True, help="Outputs whole.")
@click.option("--tail", type=click.IntRange(1), help="The last lines of each output.")
@click.option("--grep", help="The lines of each output that match a regular expression.")
@as_json
def status(wid: str | None, as_json: bool, **options: Any) -> int:
    """Show what runs, asks and failed; with a workflow's id, that one."""
    if wid is None and any(options.values()):
        raise InvalidValue("key, full, tail and grep go with a workflow", hint="perdure agents status <wid> …")
    root = StateRoot()

    async def read() -> tuple[dict[str, Any], list[str]]:
        async with reading(root) as reader:
            if wid is None:
                found = await state.status(reader, root)
                return found, brief_lines(found)
            name = await described(reader, root, wid)
            workflow = None if reader is None else await rows.workflow(reader, str(name.get("wid", wid)))
            if workflow is None or reader is None:
                raise InvalidValue(f"no workflow {wid!r}: {name['state']}")
            found = await state.workflow_status(reader, workflow, **options)
            return found, workflow_lines(found)

    found, lines = wait_for(read())
    click.echo(json.dumps(found, ensure_ascii=False) if as_json else "\n".join(lines))
    return 0


@click.command("describe", cls=Strict)
@click.argument("name")
def describe(name: str) -> int:
    """Tell what became of a request id or a workflow, whole, as JSON."""
    root = StateRoot()

    async def read() -> dict[str, Any]:
        async with reading(root) as reader:
            return await described(reader, root, name)

    click.echo(json.dumps(wait_for(read()), ensure_ascii=False))
    return 0


@click.command("events", cls=Strict)
@click.argument("wid", required=False)
@click.option("--after", help="Print what follows this cursor.")
@click.option("--limit", type=click.IntRange(1), help=f"At most so many, and never more than {log.PAGE}.")
@click.option("--wait-ms", default=60_000, type=click.IntRange(0), help="Where no log exists yet.")
def events(wid: str | None, after: str | None, limit: int | None, wait_ms: int) -> int:
    """Print the event log after a cursor as lines of JSON, then its head; or the timeline of one workflow as text."""
    root = StateRoot()

    if wid is not None and (after is not None or limit is not None):
        raise InvalidValue("a workflow's timeline is printed whole: --after and --limit go without a workflow")
    if after is not None:
        try:
            log.parse_cursor(after)
        except InvalidValue as error:
            return _malformed(error)

    async def read() -> int:
        reason = await _log_is_there(root, wait_ms / 1000)
        async with reading(root) as reader:
            if reader is None:
                click.echo(json.dumps({"pending": True, **({"reason": reason} if reason else {})}))
                return PENDING
            if wid is not None:
                found = await described(reader, root, wid)
                for event in await log.of_workflow(reader, str(found.get("wid", wid))):
                    click.echo(event_line(event))
                return 0
            if after is None:
                click.echo(json.dumps({"head": await log.head(reader)}))
                return 0
            try:
                page = await log.after(reader, after, limit or log.PAGE)
            except log.CursorExpired as error:
                return _expired(error)
            for event in page.events:
                click.echo(msgspec.json.encode(event).decode())
            click.echo(json.dumps({"head": page.head, "more": page.more}))
            return 0

    return wait_for(read())


async def _log_is_there(root: StateRoot, seconds: float) -> str:
    """Where no log exists yet, start the orchestrator, which begins one. What prevents it; nothing if nothing does."""
    if root.store.exists() or not seconds:
        return ""
    try:
        await starter.ensure(root, seconds)
    except (starter.NotStarted, OSError) as error:
        return str(error)
    return ""


def _malformed(error: InvalidValue) -> int:
    click.echo(json.dumps({"error": "invalid-arguments", "reason": str(error)}))
    return 1


def _expired(error: log.CursorExpired) -> int:
    click.echo(json.dumps({"error": "cursor-expired", "head": error.head, "oldest": error.oldest}))
    return EXPIRED


@click.command("tail", cls=Strict)
@click.option("--after", help="Begin behind this cursor; without it, with what comes now.")
@click.option("--for-ms", type=click.IntRange(1), help="End after this time.")
def tail(after: str | None, for_ms: int | None) -> int:
    """Print events as they come, until interrupted or the orchestrator ends."""
    root = StateRoot()

    async def follow() -> int:
        async with reading(root) as reader:
            cursor = after
            if reader is not None:
                try:
                    cursor = await log.head(reader) if after is None else await _printed(reader, after)
                except log.CursorExpired as error:
                    return _expired(error)
                except InvalidValue as error:
                    return _malformed(error)
        if starter.running(root) is not None and cursor is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(None if for_ms is None else for_ms / 1000):
                    await _print_news(root, cursor)
        return 0

    return wait_for(follow())


async def _printed(reader: rows.Reader, after: str) -> str:
    """Print what is logged after a cursor; the newest one."""
    cursor, more = after, True
    while more:
        page = await log.after(reader, cursor)
        for event in page.events:
            click.echo(event_line(event))
        cursor, more = page.head, page.more
    return cursor


async def _print_news(root: StateRoot, cursor: str) -> None:
    """Print events as they come, until the orchestrator hangs up."""
    async with connection(root) as (reader, writer):
        await say(writer, {"op": "events", "after": cursor})
        while line := await reader.readline():
            found = json.loads(line)
            if "event" in found:
                click.echo(event_line(msgspec.convert(found["event"], Event)))
