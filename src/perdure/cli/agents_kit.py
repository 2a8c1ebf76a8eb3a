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

from perdure.base.errors import Error, InvalidValue
from perdure.base.text import printable
from perdure.cli.failure import exit_code
from perdure.subagents.client import Client, Outcome
from perdure.subagents.names import check_session, is_session
from perdure.subagents.paths import StateRoot

T = TypeVar("T")
PENDING, CONFLICT, REFUSED = 75, 3, 1
CODES = {"applied": 0, "rejected": REFUSED, "conflict": CONFLICT, "pending": PENDING}
as_json = click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output, whatever happens.")
request_id = click.option("--request", help="A name for this request: asked again, it is done once.")
wait_ms = click.option("--wait-ms", default=60_000, show_default=True, type=click.IntRange(0), help="For the decision.")


class Strict(click.Command):
    """A command that takes no option twice, and with `--json` says also what it refuses as JSON on standard output."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        as_json = "--json" in args
        try:
            if not ctx.resilient_parsing:
                self._once(ctx, list(args))
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if not as_json:
                raise
            click.echo(json.dumps({"error": "invalid-arguments", "reason": error.format_message()}))
            raise click.exceptions.Exit(error.exit_code) from error

    def _once(self, ctx: click.Context, args: list[str]) -> None:
        _, _, order = self.make_parser(ctx).parse_args(args)
        for param in self.params:
            if isinstance(param, click.Option) and not param.multiple and order.count(param) > 1:
                raise click.UsageError(f"{param.opts[0]} is given {order.count(param)} times", ctx)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except Error as error:
            if not ctx.params.get("as_json"):
                raise
            found: dict[str, Any] = {"error": error.code, "reason": error.what}
            if "request" in ctx.params:
                found = {"request": ctx.params["request"], "applied": False, **found}
            click.echo(json.dumps({**found, **({"hint": error.hint} if error.hint else {})}, ensure_ascii=False))
            return exit_code(error)


def client(*, listed: str | None = None) -> Client:
    """This command as a sender. A session that is named must have a name; an inherited one without is left out."""
    if listed is not None:
        return Client(StateRoot(), sender(), listed=check_session(listed))
    inherited = os.environ.get("PERDURE_SESSION", "")
    return Client(StateRoot(), sender(), listed=inherited if is_session(inherited) else None)


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
