"""`perdure agents send`, `stop`, `drain`, `stop-all`, `resume`, `start`."""

import json
from typing import Any

import click

from perdure.base.errors import InvalidValue
from perdure.cli.agents_kit import (
    CODES,
    Strict,
    as_json,
    client,
    reply_of,
    request_id,
    text_of,
    told,
    wait_for,
    wait_ms,
)
from perdure.subagents import starter
from perdure.subagents.paths import StateRoot

KINDS = ("steer", "notify", "follow-up", "answer", "model")
ONLY = {"qid": ("answer",), "rev": ("answer",), "model": ("model", "follow-up")}
"""Options that mean something with these kinds alone."""


@click.command("send", cls=Strict)
@click.argument("kind", type=click.Choice(KINDS))
@click.option("--to", multiple=True, help="<workflow>/<key>; several for all kinds but answer.")
@click.option("--message", help="The text; @file reads a file.")
@click.option("--model", help="For model, and for the generation that a follow-up opens.")
@click.option("--qid", help="The question that is answered.")
@click.option("--rev", type=int, help="Its revision.")
@click.option("--replaces", multiple=True, help="Earlier sends of this sender that this one takes the place of.")
@request_id
@wait_ms
@as_json
def send(
    kind: Any, to: tuple[str, ...], message: str | None, request: str | None, wait_ms: int, as_json: bool, **given: Any
) -> int:
    """Tell a subagent something."""
    body = {name: value for name, value in given.items() if value}
    for name in body:
        if kind not in ONLY.get(name, KINDS):
            raise InvalidValue(f"--{name} goes with {' and '.join(ONLY[name])}, not with {kind}")
    if kind == "model" and message is not None:
        raise InvalidValue("a model send carries no message")
    if "replaces" in body:
        body["replaces"] = list(body["replaces"])
        if len(to) > 1:
            raise InvalidValue("--replaces goes with one target")
    if message is not None:
        body["message"] = text_of(message)
    if kind != "model" and not body.get("message", "").strip():
        raise InvalidValue("the message is empty", hint="--message TEXT, or --message @file")
    if kind == "answer" and len(to) > 1:
        raise InvalidValue("an answer has one target")
    sender = client()
    if len(to) < 2:
        if to:
            body["to"] = to[0]
        return told(wait_for(sender.ask(kind, body, request=request, wait=wait_ms / 1000)), as_json)
    outcomes = wait_for(sender.ask_all(kind, body, list(to), request=request, wait=wait_ms / 1000))
    if as_json:
        click.echo(
            json.dumps({"targets": [{"to": name, **reply_of(one)} for name, one in zip(to, outcomes, strict=True)]})
        )
        codes = [CODES[one.state] for one in outcomes]
    else:
        codes = [told(one, False) for one in outcomes]
    return next((code for code in (3, 75, 1) if code in codes), 0)


@click.command("stop", cls=Strict)
@click.argument("to")
@request_id
@wait_ms
@as_json
def stop(to: str, request: str | None, wait_ms: int, as_json: bool) -> int:
    """Stop a call (<workflow>/<key>) or a workflow for good; what it edited stays as it is."""
    return told(wait_for(client().ask("stop", {"to": to}, request=request, wait=wait_ms / 1000)), as_json)


@click.command("drain", cls=Strict)
@click.argument("to", required=False)
@wait_ms
@as_json
def drain(to: str | None, wait_ms: int, as_json: bool) -> int:
    """Let what runs finish, and dispatch nothing more of what exists now."""
    return told(wait_for(client().ask("drain", {"to": to} if to else {}, wait=wait_ms / 1000)), as_json)


@click.command("stop-all", cls=Strict)
@wait_ms
@as_json
def stop_all(wait_ms: int, as_json: bool) -> int:
    """Cut off what runs; nothing is sealed, and everything can go on later."""
    return told(wait_for(client().ask("stop-all", {}, wait=wait_ms / 1000)), as_json)


@click.command("resume", cls=Strict)
@click.argument("to", required=False)
@wait_ms
@as_json
def resume(to: str | None, wait_ms: int, as_json: bool) -> int:
    """Go on with what is held or parked, in the same sessions."""
    return told(wait_for(client().ask("resume", {"to": to} if to else {}, wait=wait_ms / 1000)), as_json)


@click.command("start", cls=Strict)
def start() -> int:
    """Start the orchestrator if something waits for it. Silent otherwise."""
    root = StateRoot()
    if not starter.reachable(root) and wait_for(starter.has_work(root)):
        wait_for(starter.ensure(root))
    return 0
