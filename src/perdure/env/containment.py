"""Finding and ending what a call left behind, by the tag in its environment. Nothing else is ever touched.

Needed where a launcher did not do its work: it was killed itself, or the whole machine's processes were frozen and
thawed without us. The tag is no proof of completeness: `env -i` removes it, and only the launcher sees such a process.
"""

import os
import signal
import time
from pathlib import Path
from typing import Final, NamedTuple

TAG_VARIABLE: Final = "PERDURE_CALL"
LAUNCHER: Final = str(Path(__file__).with_name("launcher.py"))
LAUNCHER_SECONDS: Final = 2.0
"""How long a launcher may take to end its descendants, which it knows better than we do, before it is killed too."""
REAP_SECONDS: Final = 5.0
"""How long tagged processes may resist before they are named."""
SCAN_PAUSE_SECONDS: Final = 0.01


class Tagged(NamedTuple):
    """A process that carries the tag."""

    pid: int
    started: str
    launcher: bool


def reap(tag: str) -> tuple[str, ...]:
    """Kill every process whose environment carries the tag; name those that cannot be killed. Blocking, seconds."""
    begin = time.monotonic()
    while True:
        found = tagged(tag)
        passed = time.monotonic() - begin
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


def tagged(tag: str) -> list[Tagged]:
    """Live processes with the tag, but for our own. Processes of other users cannot be seen, nor ended, by us."""
    wanted = f"{TAG_VARIABLE}={tag}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            if wanted not in Path("/proc", entry, "environ").read_bytes().split(b"\0"):
                continue
            state, started = _state(int(entry))
            if state != "Z":
                arguments = Path("/proc", entry, "cmdline").read_bytes().split(b"\0")
                found.append(Tagged(int(entry), started, os.fsencode(LAUNCHER) in arguments))
        except OSError:
            continue  # it ended meanwhile, or belongs to somebody else
    return found


def _send(process: Tagged, number: signal.Signals) -> None:
    """Through a handle, and only if the number still means the same process."""
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return
    try:
        if _state(process.pid)[1] == process.started:
            signal.pidfd_send_signal(handle, number)
    except OSError:
        pass  # it has ended; or it may not be signalled, and is named in the end
    finally:
        os.close(handle)


def _state(pid: int) -> tuple[str, str]:
    text = Path(f"/proc/{pid}/stat").read_bytes().decode("utf-8", "replace")
    fields = text[text.rindex(")") + 2 :].split()
    return fields[0], fields[19]


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_bytes().decode("utf-8", "replace").strip()
    except OSError:
        return "ended"
