"""Processes of executions: started on their own, marked, watched without polling, and ended to the last one."""

import asyncio
import contextlib
import os
import subprocess
import sys
from typing import Final

from perdure.env.containment import end_marked
from perdure.subagents.paths import HOME_VARIABLE, StateRoot
from perdure.subagents.processes import is_running, start_time
from perdure.subagents.state import Execution

EXECUTION_VARIABLE: Final = "PERDURE_EXEC"
CALL_VARIABLE: Final = "PERDURE_CALL"
STDERR_BYTES: Final = 256 * 1024

_ours: dict[int, "subprocess.Popen[bytes]"] = {}
"""Children of this process that are not reaped yet."""


def spawn_host(root: StateRoot, execution: Execution, cwd: str) -> tuple[int, str]:
    """Start a host in a session of its own; returns who it is. What it writes to standard error is kept, bounded."""
    folder = root.call(execution.wid, execution.key)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    environment = {
        **os.environ,
        HOME_VARIABLE: str(root.path),
        EXECUTION_VARIABLE: execution.exec,
        CALL_VARIABLE: f"{execution.wid}/{execution.key}",
        "PERDURE_NONCE": execution.nonce,
    }
    log = folder / "stderr.log"
    if log.exists() and log.stat().st_size > STDERR_BYTES:
        log.write_bytes(log.read_bytes()[-STDERR_BYTES // 2 :])
    with open(log, "ab") as errors:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "perdure.subagents.host"],  # nothing is imported from the call's folder
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=environment,
            cwd=cwd if os.path.isdir(cwd) else "/",
            start_new_session=True,
        )
    _ours[process.pid] = process
    return process.pid, start_time(process.pid)


async def ended(pid: int, started: str) -> None:
    """Return once that process has ended. Costs nothing meanwhile."""
    try:
        handle = os.pidfd_open(pid)
    except (ProcessLookupError, OSError):
        _reap(pid)
        return
    try:
        if not is_running(pid, started):
            return
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(handle, over.set)
        try:
            await over.wait()
        finally:
            loop.remove_reader(handle)
    finally:
        os.close(handle)
        _reap(pid)


def _reap(pid: int) -> None:
    process = _ours.get(pid)
    if process is not None and process.poll() is not None:
        del _ours[pid]


async def fence(execution: str, pid: int | None) -> tuple[str, ...]:
    """Kill everything that carries the execution's mark until nothing is left; names what cannot be killed."""
    survivors = await asyncio.to_thread(end_marked, EXECUTION_VARIABLE, execution)
    if pid is not None and pid in _ours:
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(_ours[pid].wait, 1.0)
        _reap(pid)
    return survivors
