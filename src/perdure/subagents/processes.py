"""Who a process is: its number and the moment it started, as the kernel tells it, mean one process for ever."""

import os


def start_time(pid: int) -> str:
    """When a process started, in the kernel's ticks since the boot; empty if there is none. proc(5), field 22."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return ""
    return text[text.rindex(b")") + 2 :].split()[19].decode()


def state(pid: int) -> str:
    """The kernel's letter for what a process does; empty if there is none. Z: it has ended, nobody asked how."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return ""
    return text[text.rindex(b")") + 2 :][:1].decode()


def is_running(pid: int, started: str) -> bool:
    """Whether that very process still runs, or a thread of it: what it holds is held until the last one is gone."""
    return bool(started) and start_time(pid) == started and (state(pid) != "Z" or _has_threads(pid))


def _has_threads(pid: int) -> bool:
    try:
        return len(os.listdir(f"/proc/{pid}/task")) > 1
    except OSError:
        return False


def boot_id() -> str:
    """Changes when the machine boots: start times of earlier boots say nothing."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def me() -> tuple[int, str]:
    """This process."""
    return os.getpid(), start_time(os.getpid())
