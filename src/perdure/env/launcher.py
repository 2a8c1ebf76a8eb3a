"""The small process between us and a command: everything the command starts ends with it.

Run as a script, isolated, with nothing of ours imported:

    python -I -S launcher.py <alive fd> <status fd> <argv …>

It becomes the reaper of all its descendants, so none escapes by `&`, nohup, setsid or a double fork. The command ends:
its leftovers are killed. The alive pipe says "k" (stop) or ends because our process died, even by kill -9: everything
is killed. At the end it writes one line to the status pipe: code, signal, survivors.
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


class ParentDied(Exception):
    """Our process is gone."""


def main() -> None:
    alive, status, argv = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGTERM, parent_died)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who started us; it tells us through the pipe
    child = start(argv, alive, status)
    code = watch(child, alive)
    survivors = kill_all()
    report(status, code, survivors)


def parent_died(*_: object) -> None:
    raise ParentDied


def start(argv: list[str], alive: int, status: int) -> int:
    """Fork and run the command in a process group of its own."""
    child = os.fork()
    if child == 0:
        become(argv, alive, status)
    return child


def become(argv: list[str], alive: int, status: int) -> None:
    """In the forked child: turn into the command, or say why that is not possible."""
    try:
        os.setpgid(0, 0)
        os.close(alive)
        os.close(status)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        os.execvp(argv[0], argv)
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
        os._exit(127 if error.errno == errno.ENOENT else 126)


def watch(child: int, alive: int) -> int | None:
    """Wait for the command, or for the word to stop it. The wait status; None if it had to be killed."""
    process = os.pidfd_open(child)
    poll = select.poll()
    poll.register(process, select.POLLIN)
    poll.register(alive, select.POLLIN | select.POLLHUP)
    try:
        ready = dict(poll.poll())
        if process not in ready:
            if os.read(alive, 1) == b"k":
                stop_politely(child, process)
            return None
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    except ParentDied:
        return None


def stop_politely(child: int, process: int) -> None:
    """Ask the command's group to end, and give it a moment."""
    try:
        os.killpg(child, signal.SIGTERM)
    except ProcessLookupError:
        return
    poll = select.poll()
    poll.register(process, select.POLLIN)
    poll.poll(TERM_GRACE_SECONDS * 1000)


def kill_all() -> list[str]:
    """Kill every descendant until none is left; name those that resist."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    deadline = time.monotonic() + KILL_SECONDS
    while True:
        reap()
        living = descendants(os.getpid())
        if not living or time.monotonic() > deadline:
            return [f"{pid} ({name})" for pid, name in living.items()]
        for pid in living:
            kill(pid)
        time.sleep(0.005)


def kill(pid: int) -> None:
    """Kill one process. It is a descendant of ours and stays one until we reap it, so its number is not taken again."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def reap() -> None:
    """Collect descendants that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def descendants(root: int) -> dict[int, str]:
    """Every live process below a process, by number, with its name."""
    parents: dict[int, tuple[int, str]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb") as file:
                    text = file.read().decode("utf-8", "replace")
            except OSError:
                continue
            name, rest = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
            if rest[0] != "Z" or int(rest[1]) != root:
                parents[int(entry)] = (int(rest[1]), name)
    found: dict[int, str] = {}
    todo = [root]
    while todo:
        parent = todo.pop()
        for pid, (above, name) in parents.items():
            if above == parent and pid not in found:
                found[pid] = name
                todo.append(pid)
    return found


def report(status: int, code: int | None, survivors: list[str]) -> None:
    """One line: exit code, signal, survivors; tabs between."""
    exit_code = str(code) if code is not None and code >= 0 else ""
    number = str(-code) if code is not None and code < 0 else ""
    line = "\t".join([exit_code, number, ", ".join(survivors)])
    try:
        os.write(status, line.encode("utf-8", "replace") + b"\n")
    except BrokenPipeError:
        pass


if __name__ == "__main__":
    main()
