"""The small process between us and a command: everything the command starts ends with it.

Run as a script, isolated, with nothing of ours imported:

    python -I -S launcher.py <alive fd> <status fd> <argv …>

It is the reaper of all its descendants, so none escapes it by `&`, nohup, setsid, a double fork or an emptied
environment. When the command ends, its leftovers are killed. When the alive pipe says "k" the command is asked to end,
then killed. When the pipe closes (our process died, even by kill -9) or SIGTERM comes, everything is killed at once.
At the end one line goes to the status pipe: exit code, signal, survivors; tabs between.
"""

import ctypes
import errno
import os
import select
import signal
import sys
import time

PR_SET_PDEATHSIG = 1  # linux/prctl.h
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
TERM_GRACE_SECONDS = 0.5
"""Between the polite signal and the final one, when the command is to be stopped."""
KILL_SECONDS = 5.0
"""How long processes may resist being killed (waiting for a device) before they are named as survivors."""
SCAN_PAUSE_SECONDS = 0.002
"""Between two looks for processes that are left; short, because they may be starting others."""


def main() -> None:
    """Run the command, end what it left, tell how it went."""
    alive, status, argv = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    os.set_inheritable(alive, False)
    os.set_inheritable(status, False)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, note)  # from here on it is only ever noticed in `watch`
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who started us; it tells us by the pipe
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    if prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        os.write(2, b"the launcher cannot become a subreaper\n")
        os._exit(125)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)  # where a forked copy of our process keeps the pipe open
    child = start(argv)
    watch(child, alive, woken)
    code, survivors = kill_all(child)
    report(status, code, survivors)
    os._exit(0)


def note(*_: object) -> None:
    """Nothing to do here: the wakeup pipe carries the news."""


def start(argv: list[str]) -> int:
    """Fork and run the command in a process group of its own."""
    child = os.fork()
    if child:
        return child
    try:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.setpgid(0, 0)
        os.execvp(argv[0], argv)
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode("utf-8", "replace"))
        os._exit(127 if error.errno == errno.ENOENT else 126)


def watch(child: int, alive: int, woken: int) -> None:
    """Return when the command has ended, or, if it is to be stopped politely, has been given the time to."""
    process = os.pidfd_open(child)
    poll = select.poll()
    for descriptor in (process, alive, woken):
        poll.register(descriptor, select.POLLIN)
    ready = dict(poll.poll())
    if process in ready or alive not in ready or os.read(alive, 1) != b"k":
        return
    try:
        os.killpg(child, signal.SIGTERM)
    except (ProcessLookupError, PermissionError):
        return
    poll = select.poll()
    poll.register(process, select.POLLIN)
    poll.poll(TERM_GRACE_SECONDS * 1000)


def kill_all(child: int) -> tuple[int | None, list[str]]:
    """Kill every descendant until none is left. How the command ended, and the names of those that resist."""
    deadline = time.monotonic() + KILL_SECONDS
    code = None
    while True:
        for pid, status in reap():
            if pid == child:
                code = os.waitstatus_to_exitcode(status)
        living = descendants(os.getpid())
        if not living or time.monotonic() > deadline:
            return code, [f"{pid} ({name})" for pid, (name, _) in living.items()]
        for pid, (_, started) in living.items():
            kill(pid, started)
        time.sleep(SCAN_PAUSE_SECONDS)


def kill(pid: int, started: str) -> None:
    """Kill one process through a handle, if the number still means the one that was seen."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return
    try:
        seen = stat(pid)
        if seen is not None and seen[3] == started:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    except OSError:
        pass  # it ended, or runs as somebody else: then it is named at the end
    finally:
        os.close(handle)


def reap() -> list[tuple[int, int]]:
    """Collect descendants that have ended, with their wait status."""
    ended = []
    try:
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended.append(found)
    except ChildProcessError:
        pass
    return ended


def descendants(root: int) -> dict[int, tuple[str, str]]:
    """Every process below a process, by number, with its name and start time; but for zombies that are ours to reap."""
    children: dict[int, list[tuple[int, str, str]]] = {}
    for entry in os.listdir("/proc"):
        seen = stat(int(entry)) if entry.isdigit() else None
        if seen is not None and (seen[1] != "Z" or seen[2] != root):
            children.setdefault(seen[2], []).append((int(entry), seen[0], seen[3]))
    found: dict[int, tuple[str, str]] = {}
    todo = [root]
    while todo:
        for pid, name, started in children.get(todo.pop(), []):
            found[pid] = name, started
            todo.append(pid)
    return found


def stat(pid: int) -> tuple[str, str, int, str] | None:
    """Name, state, parent and start time of a process; None once it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return None
    end = text.rindex(")")
    fields = text[end + 2 :].split()
    return text[text.index("(") + 1 : end], fields[0], int(fields[1]), fields[19]


def report(status: int, code: int | None, survivors: list[str]) -> None:
    """Exit code or signal of the command, and what could not be ended."""
    exit_code = str(code) if code is not None and code >= 0 else ""
    number = str(-code) if code is not None and code < 0 else ""
    named = ", ".join(survivors).replace("\t", " ").replace("\n", " ")[:4000]  # a pipe takes 4096 bytes as a whole
    try:
        os.write(status, f"{exit_code}\t{number}\t{named}\n".encode("utf-8", "replace"))
    except BrokenPipeError:
        pass


if __name__ == "__main__":
    main()
