"""`perdure agents prune`, `restart`, `doctor`."""

import asyncio
import json
import os
import signal
import time

import click

from perdure.base.text import printable
from perdure.cli.agents_kit import PENDING, Strict, as_json, client, request_id, told, wait_for, wait_ms
from perdure.subagents import starter
from perdure.subagents.doctor import examine
from perdure.subagents.paths import StateRoot
from perdure.subagents.processes import is_running
from perdure.subagents.pruning import disk_bytes

SUCCESSOR_SECONDS = 10.0
"""So long the next one has to listen, before it is started from here."""


@click.command("prune", cls=Strict)
@click.argument("to", required=False)
@click.option("--older-than", type=float, default=0.0, help="Only those that ended so many days ago.")
@request_id
@wait_ms
@as_json
def prune(to: str | None, older_than: float, request: str | None, wait_ms: int, as_json: bool) -> int:
    """Remove ended workflows, the named one or all, with their sessions and artifacts."""
    root = StateRoot()
    before = disk_bytes(root.path / "workflows")
    body = {"to": to} if to else {}
    outcome = wait_for(
        client().ask("prune", {**body, "olderThanDays": older_than}, request=request, wait=wait_ms / 1000)
    )
    if outcome.state == "applied":
        deadline = time.monotonic() + 5
        gone = outcome.reply["pruned"]
        while any(root.workflow(wid).exists() for wid in gone) and time.monotonic() < deadline:
            time.sleep(0.02)
        outcome.reply["bytes"] = max(0, before - disk_bytes(root.path / "workflows"))
    return told(outcome, as_json)


@click.command("restart", cls=Strict)
@click.option(
    "--wait-ms", default=600_000, show_default=True, type=click.IntRange(0), help="For the end of the old one."
)
@as_json
def restart(wait_ms: int, as_json: bool) -> int:
    """Let a new orchestrator take over, with what is installed now. Hosts go on and are adopted: nothing is cut off."""
    root = StateRoot()
    card = starter.running(root)
    if card is None:
        click.echo(json.dumps({"restarted": False}) if as_json else "no orchestrator runs")
        return 0

    async def replace() -> int:
        assert card is not None
        os.kill(card.pid, signal.SIGHUP)
        deadline = time.monotonic() + wait_ms / 1000
        while is_running(card.pid, card.started):
            if time.monotonic() > deadline:
                why = "it was told to end and has not yet; it does once it can, and the next one goes on"
                if as_json:
                    click.echo(json.dumps({"restarted": False, "pending": True, "reason": why}))
                else:
                    click.echo(why, err=True)
                return PENDING
            await asyncio.sleep(0.02)
        deadline = time.monotonic() + SUCCESSOR_SECONDS
        while not await starter.answers(root) and time.monotonic() < deadline:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.02)
        await starter.ensure(root)
        fresh = starter.running(root)
        pid = None if fresh is None else fresh.pid
        click.echo(json.dumps({"restarted": True, "pid": pid}) if as_json else f"restarted (pid {pid})")
        return 0

    return wait_for(replace())


@click.command("doctor", cls=Strict)
@as_json
def doctor(as_json: bool) -> int:
    """Look for what needs a hand. Read-only; exits with 1 where there is something."""
    root = StateRoot()

    async def look() -> int:
        found = await examine(root)
        if as_json:
            click.echo(json.dumps(found, ensure_ascii=False))
        else:
            click.echo(f"{found['home']}: {found['disk'] / 1e6:.1f} MB")
            click.echo("workflows: " + (", ".join(f"{n} {w}" for w, n in found["workflows"].items()) or "none"))
            if found["cost"] is not None:
                click.echo("orchestrator: " + ", ".join(f"{name} {value}" for name, value in found["cost"].items()))
            for one in found["largest"]:
                click.echo(f"  {one['wid']}  {one['bytes'] / 1e6:.1f} MB")
            for one in found["findings"]:
                click.echo(printable(f"finding: {one['what']}\n  try: {one['command']}"))
            if not found["findings"]:
                click.echo("nothing needs a hand")
        return 1 if found["findings"] else 0

    return wait_for(look())
