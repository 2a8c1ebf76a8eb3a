"""`perdure tour`: an agent at work is killed with -9, reopened, and finishes; then the proof."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import click

from perdure.base.errors import Error
from perdure.cli.show import say, table
from perdure.cli.tour_agent import REQUEST, ledger, open_tour, work
from perdure.models.messages import ToolResultMessage, text_of

START_SECONDS: Final = 15.0
"""How long the agent may take to reach its deployment."""


class TourFailed(Error):
    """The tour could not show what it promises."""

    code = "tour_failed"


@click.command("tour")
@click.option("--keep", is_flag=True, help="Keep the scratch folder, to look at it with the other commands.")
def command(keep: bool) -> int:
    """Watch an agent being killed at work and carrying on. Offline, no key, under 20 seconds."""
    folder = Path(tempfile.mkdtemp(prefix="perdure-tour-"))
    try:
        return tour(folder)
    finally:
        if keep:
            say(f"\nkept in {folder}")
        else:
            subprocess.run(["rm", "-rf", str(folder)], check=False)


def tour(folder: Path) -> int:
    """All of it; the exit code."""
    _scratch_repository(folder / "repo")
    say("1  An agent works on a scratch repository in a process of its own.")
    say(f"   You: {REQUEST}")
    agent = subprocess.Popen(
        [sys.executable, "-m", "perdure.cli.tour_agent", str(folder)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.DEVNULL,
    )
    try:
        _wait_for_deployment(folder, agent)
        say("   It read, edited and tested. Now it is in the middle of a deployment.\n")
        say(f"2  kill -9 {agent.pid}. No time to clean up, no time to say what was done.\n")
        agent.send_signal(signal.SIGKILL)
    finally:
        agent.kill()
        agent.wait()
    before = ledger(folder)
    began = time.perf_counter()
    say("3  This process opens the same session and submits the same request again.")
    answer = asyncio.run(work(folder))
    say(f"   Agent: {answer.text}")
    say(f"   (reopened and finished in {time.perf_counter() - began:.1f} s)\n")
    return asyncio.run(_proof(folder, before))


def _scratch_repository(path: Path) -> None:
    path.mkdir(parents=True)
    (path / "hello.py").write_text('print("Helo, world")\n')
    git = ["git", "-C", str(path), "-c", "user.name=tour", "-c", "user.email=tour@localhost"]
    try:
        for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "A greeting"]):
            subprocess.run([*git, *arguments], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise TourFailed(f"git does not work here: {error}", hint="install git") from error


def _wait_for_deployment(folder: Path, agent: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + START_SECONDS
    while "deploy" not in ledger(folder):
        if agent.poll() is not None or time.monotonic() > end:
            raise TourFailed("the agent did not get as far as its deployment", hint="run with PERDURE_DEBUG=1")
        time.sleep(0.02)


async def _proof(folder: Path, before: list[str]) -> int:
    """Count what happened from a ledger outside the store, and what the transcript says."""
    after = ledger(folder)
    async with open_tour(folder) as harness:
        root = await harness.root()
        messages = await root.messages()
        entries = await root.entries(limit=1000)
    results = [message for message in messages if isinstance(message, ToolResultMessage)]
    interrupted = [message for message in results if text_of(message).startswith("interrupted")]
    greeting = (folder / "repo" / "hello.py").read_text()
    checks: list[tuple[str, Any, Any]] = [
        ("deployments that really ran", after.count("deploy"), 1),
        ("calls the agent was told were interrupted", len(interrupted), 1),
        ("model requests before the kill", before.count("request"), 4),
        ("model requests after it (none repeated)", after.count("request") - before.count("request"), 2),
        ("answers", after.count("answer"), 1),
        ("user messages (submitted twice, stored once)", [e.kind for e in entries].count("perdure.user"), 1),
        ("the greeting is fixed", "Hello" in greeting, True),
    ]
    say("4  The proof, counted from a ledger outside the store:")
    rows = [
        [f"   {what}", str(found), str(wanted), "ok" if found == wanted else "FAILED"] for what, found, wanted in checks
    ]
    table(rows, ["   WHAT", "COUNTED", "PROMISED", ""])
    return 0 if all(found == wanted for _, found, wanted in checks) else 1
