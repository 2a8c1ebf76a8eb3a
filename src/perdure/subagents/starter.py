"""Starting the orchestrator: a process of its own, which outlives whoever started it."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from typing import Any, Final

import msgspec

from perdure import Error
from perdure.session.reader import read_session
from perdure.subagents import spool
from perdure.subagents.paths import HOME_VARIABLE, StateRoot
from perdure.subagents.processes import is_running

START_SECONDS: Final = 30.0
HELLO_SECONDS: Final = 1.0
TRIES: Final = 5
"""Somebody who starts one does not give up before so many were killed while they started."""
RUNNABLE: Final = ("pending", "running", "completing")
MODULE: Final = "perdure.subagents.orchestrator"
_started: list["subprocess.Popen[bytes]"] = []
"""Children of this process; looked after so that none that has ended stays as a zombie."""


class OrchestratorCard(msgspec.Struct, kw_only=True):
    """What the running orchestrator tells of itself, on its socket and in `orchestrator.json`."""

    pid: int
    started: str
    version: str
    protocol: int
    since: float
    stats: dict[str, Any] = {}


class NotStarted(Error):
    """The orchestrator could not be started. What was recorded is kept and decided by the next one."""

    code = "not_started"


def running(root: StateRoot) -> OrchestratorCard | None:
    """The orchestrator that runs now, by its card; None if there is none. Starts nothing."""
    try:
        card = msgspec.json.decode(root.about.read_bytes(), type=OrchestratorCard)
    except (OSError, msgspec.MsgspecError):
        return None
    return card if is_running(card.pid, card.started) else None


def reachable(root: StateRoot) -> bool:
    """Whether somebody listens on the orchestrator's socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(root.socket))
        except OSError:
            return False
    return True


async def has_work(root: StateRoot) -> bool:
    """Whether an orchestrator is wanted: requests are not decided, or something was under way or is due at some time
    when the last one ended."""
    if await asyncio.to_thread(spool.any_waiting, root):
        return True
    if not root.store.exists():
        return False
    async with read_session(root.store) as reader:
        storage, cursor = await reader.store.settled(), 0
        while page := await storage.scan_live(cursor=cursor, limit=1000):
            if any(task.status in RUNNABLE or task.deadline is not None for task in page):
                return True
            cursor = page[-1].id
    return False


def spawn(root: StateRoot) -> subprocess.Popen[bytes]:
    """Start the process. A second one finds the store taken and exits with 0."""
    root.path.mkdir(parents=True, exist_ok=True, mode=0o700)
    environment = {**os.environ, HOME_VARIABLE: str(root.path)}
    for name in ("PERDURE_EXEC", "PERDURE_CALL", "PERDURE_EXECUTION", "PERDURE_SESSION"):
        environment.pop(name, None)  # it must not end with the work that asked for it
    _started[:] = [process for process in _started if process.poll() is None]
    with open(root.path / "orchestrator.log", "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", MODULE],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            cwd="/",
            start_new_session=True,
        )
    _started.append(process)
    return process


async def answers(root: StateRoot) -> bool:
    """Whether an orchestrator says who it is, or is alive and says nothing: one that was killed still takes connections
    until its last thread is gone, and hangs up."""
    try:
        reader, writer = await asyncio.open_unix_connection(str(root.socket))
    except OSError:
        return False
    try:
        writer.write(b'{"op": "hello"}\n')
        async with asyncio.timeout(HELLO_SECONDS):
            return bool(await reader.readline())
    except TimeoutError:
        return True
    except (OSError, ValueError):
        return False
    finally:
        writer.close()


async def ensure(root: StateRoot, timeout: float = START_SECONDS) -> None:
    """Return once an orchestrator listens; start one if none does. Raises `NotStarted`."""
    if await answers(root):
        return
    process, tries = spawn(root), 1
    deadline = time.monotonic() + timeout
    while not await answers(root):
        code = process.poll()
        if code == 0 or (code is not None and code < 0 and tries < TRIES):
            process, tries = spawn(root), tries + (code < 0)  # it left the store to one that ended, or was killed
        elif code is not None:
            raise NotStarted(
                f"the orchestrator ended with {code}: {_last_words(root)}", hint=f"see {root.path / 'orchestrator.log'}"
            )
        if time.monotonic() > deadline:
            raise NotStarted("the orchestrator does not answer", hint="it may be stopped, or starting slowly")
        await asyncio.sleep(0.02)


def _last_words(root: StateRoot) -> str:
    try:
        lines = (root.path / "orchestrator.log").read_text("utf-8", "replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""
