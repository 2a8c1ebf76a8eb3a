"""Finding and ending what a call left behind, by the tag in its environment. Nothing else is ever touched.

Needed where a launcher did not do its work: it was killed itself, or the whole machine's processes were frozen and
thawed without us. The tag is no proof of completeness: `env -i` removes it, and only the launcher sees such a process.
"""

import errno
import os
import signal
import time
from typing import Final, NamedTuple

TAG_VARIABLE: Final = "PERDURE_TOOL_CALL"
"""Marks what a call starts; its executions may be many."""
EXECUTION_VARIABLE: Final = "PERDURE_EXECUTION"
"""Marks what one execution starts."""
LAUNCHER: Final = os.path.join(os.path.dirname(__file__), "launcher.py")
FAR_LAUNCHER: Final = "perdure-launcher"
"""A word in the command line of what stands for the launcher on another machine."""
LAUNCHER_SECONDS: Final = 2.0
"""How long a launcher may take to end its descendants, which it knows better than we do, before it is killed too."""
REAP_SECONDS: Final = 5.0
"""How long tagged processes may resist before they are named."""
SCAN_PAUSE_SECONDS: Final = 0.01
NOT_OURS: Final = (errno.ENOENT, errno.ESRCH, errno.EACCES, errno.EPERM)
"""Why a process cannot be read that ended meanwhile, or belongs to somebody else."""


class Marked(NamedTuple):
    """A process that carries a mark. Number and start time together mean one process for ever."""

    pid: int
    started: str
    launcher: bool


def reap(tag: str) -> tuple[str, ...]:
    """Kill every process whose environment carries the tag; name those that cannot be killed. Blocking, seconds."""
    return _end(TAG_VARIABLE, tag, None)


def end_execution(mark: str, session: int | None) -> tuple[str, ...]:
    """The same for what a killed launcher has left: by its mark, or in the session that it led."""
    return _end(EXECUTION_VARIABLE, mark, session)


def end_marked(variable: str, value: str) -> tuple[str, ...]:
    """The same for any variable that marks what somebody started."""
    return _end(variable, value, None)


def _end(variable: str, value: str, session: int | None) -> tuple[str, ...]:
    begin = time.monotonic()
    while True:
        passed = time.monotonic() - begin
        try:
            found = marked(variable, value, session)
        except OSError as error:
            if passed > REAP_SECONDS:
                return (f"unknown ones: {error}",)
            time.sleep(SCAN_PAUSE_SECONDS)
            continue
        if not found:
            return ()
        if passed > REAP_SECONDS:
            return tuple(f"{process.pid} ({_name(process.pid)})" for process in found)
        launchers = [process for process in found if process.launcher]
        for process in found:
            if not process.launcher or passed > LAUNCHER_SECONDS:
                _send(process, signal.SIGKILL)
        for process in launchers:
            _send(process, signal.SIGTERM)
        time.sleep(SCAN_PAUSE_SECONDS)


def marked(variable: str, value: str, session: int | None = None) -> list[Marked]:
    """Live processes with the mark or of the session, but for our own. Those of other users show no environment.

    Raises `OSError` where the machine cannot tell, such as without a free descriptor: that nothing was seen then proves
    nothing.
    """
    wanted, found = f"{variable}={value}".encode("utf-8", "surrogatepass"), []
    for entry in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            state, of_session, started = _state(int(entry))
            if state == "Z" or (of_session != session and wanted not in _words(entry, "environ")):
                continue
            words = _words(entry, "cmdline")
            launcher = os.fsencode(LAUNCHER) in words or FAR_LAUNCHER.encode() in words
            found.append(Marked(int(entry), started, launcher))
        except OSError as error:
            if error.errno not in NOT_OURS:
                raise
    return found


def _send(process: Marked, number: signal.Signals) -> None:
    """Through a handle, and only if the number still means the same process."""
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return
    try:
        if _state(process.pid)[2] == process.started:
            signal.pidfd_send_signal(handle, number)
    except OSError:
        pass  # it has ended; or it may not be signalled, and is named in the end
    finally:
        os.close(handle)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _words(pid: str, what: str) -> list[bytes]:
    return _read(f"/proc/{pid}/{what}").split(b"\0")


def _state(pid: int) -> tuple[str, int, str]:
    """State, session and start time."""
    text = _read(f"/proc/{pid}/stat").decode("utf-8", "replace")
    fields = text[text.rindex(")") + 2 :].split()
    return fields[0], int(fields[3]), fields[19]


def _name(pid: int) -> str:
    try:
        return _read(f"/proc/{pid}/comm").decode("utf-8", "replace").strip()
    except OSError:
        return "ended"
