"""The small process between us and a command: everything the command starts ends with it.

Run as a script, isolated, with nothing of ours imported:

    python -I -S launcher.py <alive fd> <status fd> <argv …>

It is the reaper of all its descendants, so none escapes it by `&`, nohup, setsid, a double fork or an emptied
environment. When the command ends, or the alive pipe says "k", everything is asked to end, then killed. When the pipe
closes (our process died, even by kill -9) or SIGTERM comes, everything is killed at once. At the end one line goes to
the status pipe: exit code, signal, survivors; tabs between.
"""

import _signal as signal  # type: ignore[import-not-found]  # `signal` loads enum: a third of the time to start
import ctypes
import errno
import os
import select
import sys
import time

PR_SET_PDEATHSIG = 1  # linux/prctl.h
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
LEFTOVER_GRACE_SECONDS = 0.1
"""For what is about to end by itself when the command ends, as the writer behind `> >(tee log)`."""
TERM_GRACE_SECONDS = 0.5
"""Between the polite signal and the final one."""
KILL_SECONDS = 5.0
"""How long processes may resist being killed (waiting for a device) before they are named as survivors."""
FORKING_SECONDS = 30.0
"""How long processes that multiply are hunted."""
NAMED_SURVIVORS = 20
"""At most, so that the report fits into a pipe as a whole."""


def main() -> None:
    """Run the command, end what it left, tell how it went."""
    alive, status, argv, parent = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:], os.getppid()
    os.set_inheritable(alive, False)
    os.set_inheritable(status, False)
    wakes = catch_signals()
    prctl = ctypes.CDLL(None).prctl
    if prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        os.write(2, b"the launcher cannot become a subreaper\n")
        os._exit(125)
    prctl(PR_SET_PDEATHSIG, signal.SIGUSR2, 0, 0, 0)  # where a forked copy of our process keeps the pipe open
    child = start(argv)
    let_go_of_streams()
    why = watch(child, alive, wakes, parent)
    family = Family(child)
    if why == "ended":
        family.wait(LEFTOVER_GRACE_SECONDS)
    if why != "orphaned":
        family.end_politely()
    survivors = family.kill()
    report(status, family.status, survivors)


def catch_signals() -> int:
    """Signals arrive as bytes on a pipe, so that none can interrupt us halfway."""
    wakes, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGUSR2):
        signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who started us; it tells us through the pipe
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    return wakes


def start(argv: list[str]) -> int:
    """Fork and run the command in a process group of its own."""
    child = os.fork()
    if child:
        return child
    try:
        caught = (signal.SIGTERM, signal.SIGUSR2, signal.SIGHUP, signal.SIGINT)
        for number in (*caught, signal.SIGPIPE, signal.SIGXFSZ):  # the last two are Python's doing
            signal.signal(number, signal.SIG_DFL)
        os.setpgid(0, 0)
        os.execvp(argv[0], argv)
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode("utf-8", "replace"))
        os._exit(127 if error.errno == errno.ENOENT else 126)


def let_go_of_streams() -> None:
    """The command's streams end when its processes end, whatever we still do."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)


def watch(child: int, alive: int, wakes: int, parent: int) -> str:
    """Wait until the command has "ended", is to be "stopped", or we are "orphaned"."""
    process = os.pidfd_open(child)
    poll = select.poll()
    for descriptor in (process, alive, wakes):
        poll.register(descriptor, select.POLLIN)
    while os.getppid() == parent:
        ready = [descriptor for descriptor, _ in poll.poll()]
        if process in ready:
            return "ended"
        if alive in ready:
            return "stopped" if os.read(alive, 1) else "orphaned"
        if wakes in ready and signal.SIGTERM in os.read(wakes, 64):
            return "orphaned"
        # else SIGUSR2: a thread of our process ended, or all of it; then we have another parent now
    return "orphaned"


class Family:
    """The command and all its descendants. They are ours to reap, whoever forked them."""

    def __init__(self, child: int) -> None:
        self.child = child
        self.status: int | None = None

    def wait(self, seconds: float) -> bool:
        """Whether all have ended within the time."""
        end = time.monotonic() + seconds
        while self.reap():
            if time.monotonic() >= end:
                return False
            time.sleep(0.002)
        return True

    def reap(self) -> bool:
        """Collect those that have ended; whether any is left. Without a child there is no descendant either."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return True
                if pid == self.child:
                    self.status = os.waitstatus_to_exitcode(status)
        except ChildProcessError:
            return False

    def end_politely(self) -> None:
        """Ask all to end, and give them a moment."""
        if self.reap():
            for pid, (started, _) in descendants(os.getpid()).items():
                send(pid, started, signal.SIGTERM)
            self.wait(TERM_GRACE_SECONDS)

    def kill(self) -> list[str]:
        """Kill until none is left; name those that resist."""
        seen: set[tuple[int, str]] = set()
        begun = grown = time.monotonic()
        while self.reap():
            living = descendants(os.getpid())
            new = {(pid, started) for pid, (started, _) in living.items()} - seen
            now = time.monotonic()
            if new and now - begun < FORKING_SECONDS:
                grown = now
            elif now - grown > KILL_SECONDS:
                return [f"{pid} ({name})" for pid, (_, name) in living.items()]
            seen |= new
            for pid, (started, _) in living.items():
                send(pid, started, signal.SIGKILL)
            self.wait(0.01)
        return []


def send(pid: int, started: str, number: int) -> None:
    """Signal one process through a handle, if the number still means the process that was seen."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return  # it ended meanwhile
    try:
        if stat(pid)[2] == started:
            signal.pidfd_send_signal(handle, number)
    except OSError:
        pass  # it ended meanwhile, or belongs to somebody else: then it is named
    finally:
        os.close(handle)


def descendants(root: int) -> dict[int, tuple[str, str]]:
    """Every process below a process: its start time and name, by number."""
    children: dict[int, list[tuple[int, str, str]]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                name, parent, started = stat(int(entry))
            except OSError:
                continue
            children.setdefault(parent, []).append((int(entry), started, name))
    found: dict[int, tuple[str, str]] = {}
    above = [root]
    while above:
        for pid, started, name in children.get(above.pop(), ()):
            found[pid] = (started, name)
            above.append(pid)
    return found


def stat(pid: int) -> tuple[str, int, str]:
    """Name, parent and start time of a process."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        text = file.read().decode("utf-8", "replace")
    name, rest = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
    return "".join(c if c.isprintable() and c != "," else "?" for c in name), int(rest[1]), rest[19]


def report(status: int, code: int | None, survivors: list[str]) -> None:
    """The one line at the end."""
    exit_code = str(code) if code is not None and code >= 0 else ""
    number = str(-code) if code is not None and code < 0 else ""
    named = ", ".join(survivors[:NAMED_SURVIVORS])
    try:
        os.write(status, f"{exit_code}\t{number}\t{named}\n".encode("utf-8", "replace"))
    except BrokenPipeError:
        pass


if __name__ == "__main__":
    main()
    os._exit(0)  # nothing to tidy up: the interpreter's own end takes longer than ours
