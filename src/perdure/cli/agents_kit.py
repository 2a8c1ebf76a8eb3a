"""What the agents' commands share: the sender, replies as text or JSON, exit codes."""

import asyncio
import getpass
import json
import os
import socket
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import click

from perdure.base.errors import InvalidValue
from perdure.base.text import printable
from perdure.subagents.client import Client, Outcome
from perdure.subagents.paths import StateRoot

T = TypeVar("T")
PENDING, CONFLICT, REFUSED = 75, 3, 1
CODES = {"applied": 0, "rejected": REFUSED, "conflict": CONFLICT, "pending": PENDING}
as_json = click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output, whatever happens.")
request_id = click.option("--request", help="A name for this request: asked again, it is done once.")
wait_ms = click.option("--wait-ms", default=60_000, show_default=True, type=click.IntRange(0), help="For the decision.")


def client(*, listed: str | None = None) -> Client:
    """This command as a sender."""
    return Client(StateRoot(), sender(), listed=listed or os.environ.get("PERDURE_SESSION") or None)


def sender() -> str:
    """Who asks: the call that this runs in, or a user at a machine."""
    call = os.environ.get("PERDURE_CALL")
    if call and os.environ.get("PERDURE_EXEC"):
        return f"call:{call}"
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"cli:{user}@{socket.gethostname()}"


def wait_for(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's work."""
    return asyncio.run(work)


def text_of(message: str | None) -> str:
    """A message, or the content of the file that `@path` names."""
    if message is None:
        return ""
    if not message.startswith("@"):
        return message
    try:
        return Path(message[1:]).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidValue(f"cannot read {message[1:]!r}: {error}") from error


def told(outcome: Outcome, as_json: bool) -> int:
    """Print what became of a request; the exit code."""
    if as_json:
        click.echo(json.dumps(reply_of(outcome), ensure_ascii=False))
        return CODES[outcome.state]
    reply = outcome.reply
    if outcome.state == "applied":
        shown = ", ".join(f"{name}: {_flat(value)}" for name, value in reply.items())
        click.echo(f"applied ({outcome.request})" + (f": {printable(shown)}" if shown else ""))
    elif outcome.state == "rejected":
        more = "".join(f"\n  {name}: {_flat(value)}" for name, value in reply.items() if name != "reason")
        click.echo(f"refused: {printable(str(reply.get('reason')))}{printable(more)}", err=True)
    elif outcome.state == "conflict":
        click.echo(f"conflict: another content was recorded as {outcome.request} before; nothing was sent", err=True)
    else:
        why = f": {reply['reason']}" if reply.get("reason") else ""
        click.echo(f"recorded as {outcome.request}, not decided yet{printable(why)}", err=True)
    return CODES[outcome.state]


def _flat(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def reply_of(outcome: Outcome) -> dict[str, Any]:
    """A reply as JSON."""
    found: dict[str, Any] = {"request": outcome.request, "spec_digest": outcome.digest}
    if outcome.state == "applied":
        return {**found, "applied": True, "created": outcome.created, **outcome.reply}
    if outcome.state == "rejected":
        return {**found, "applied": False, **outcome.reply}
    if outcome.state == "conflict":
        return {**found, "error": "request-conflict", "wid": outcome.wid, "state": outcome.reply.get("state")}
    return {**found, "pending": True, **outcome.reply}
