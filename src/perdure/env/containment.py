"""Finding and ending what a call left behind, by the tag in its environment. Nothing else is ever touched."""

import os
import signal
import time
from typing import Final

TAG_VARIABLE: Final = "PERDURE_CALL"
REAP_SECONDS: Final = 5.0
"""How long tagged processes may resist before they are named."""


def reap(tag: str) -> tuple[str, ...]:
    """Kill every process whose environment carries the tag; name those that cannot be killed. Blocking."""
    deadline = time.monotonic() + REAP_SECONDS
    while True:
        found = tagged(tag)
        if not found:
            return ()
        if time.monotonic() > deadline:
            return tuple(f"{pid} ({_name(pid)})" for pid in found)
        for pid, started in found.items():
            _kill(pid, started)
        time.sleep(0.005)


def tagged(tag: str) -> dict[int, str]:
    """Live processes with the tag, with the time they were started."""
    wanted = f"{TAG_VARIABLE}={tag}".encode()
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                carries = wanted in file.read().split(b"\0")
            if carries:
                state, started = _state(int(entry))
                if state != "Z":
                    found[int(entry)] = started
        except OSError:
            continue  # it ended meanwhile, or belongs to somebody else
    return found


def _kill(pid: int, started: str) -> None:
    """Through a handle, and only if the number still means the same process."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if _state(pid)[1] == started:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    except OSError:
        pass
    finally:
        os.close(handle)


def _state(pid: int) -> tuple[str, str]:
    with open(f"/proc/{pid}/stat", "rb") as file:
        text = file.read().decode("utf-8", "replace")
    fields = text[text.rindex(")") + 2 :].split()
    return fields[0], fields[19]


def _name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip()
    except OSError:
        return "ended"
