"""Requests on their way: files in the state root's inbox, one folder for each sender.

A request is recorded when its file is there: it then survives the sender and is decided by whichever orchestrator comes
next. Files of one sender are decided in the order of their numbers, and a gap holds the later ones back.
"""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from perdure.subagents.paths import StateRoot, encoded
from perdure.subagents.processes import is_running, start_time

Kind = Literal[
    "run", "revise", "steer", "notify", "follow-up", "answer", "model", "stop", "drain", "resume", "stop-all", "pause",
    "prune", "restart",
]  # fmt: skip
SENDS: Final = ("steer", "notify", "follow-up", "answer", "model")
VERSION: Final = 1


class Sent(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A request as its sender recorded it."""

    request: str
    kind: Kind
    body: dict[str, Any]
    sender: str
    """Who asks: a session's id, `call:<wid>/<key>`, or `cli:<user>@<host>`. Not part of the content."""
    via: str = ""
    """"ui" where a person acted in a list or view."""
    origin: str | None = None
    """The parent session: it owns the run and gets its notices."""
    listed: str | None = None
    targets: list[str] = []
    """All targets of a send to several, as written; this is the request of one of them."""
    version: int = VERSION


class Outbox:
    """One sender's requests. An outbox belongs to one process; it numbers what it records from 1."""

    def __init__(self, root: StateRoot, sender: str) -> None:
        pid = os.getpid()
        name = f"{encoded(sender)[:80]}~{pid}.{start_time(pid)}.{secrets.token_hex(4)}"
        self.folder: Final = root.inbox / name
        self._nudge: Final = root.nudge
        self._next = 1

    def record(self, sent: Sent) -> Path:
        """Store a request so that it survives this process and the machine; it is there as a whole or not at all.

        Raises `OSError` if it cannot be stored; then nothing is there, and the same number is used again.
        """
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self.folder / f"{self._next:012d}.json"
        write_durably(path, msgspec.json.encode(sent))
        self._next += 1
        with contextlib.suppress(OSError):
            self._nudge.write_bytes(b"")
        return path


class Recorded(msgspec.Struct, kw_only=True):
    """A request file that was found."""

    folder: str
    number: int
    path: Path
    sent: Sent | None
    """None where the file is no request: it is reported, skipped, and never decided."""
    problem: str = ""


def write_durably(path: Path, content: bytes) -> None:
    """Replace a file as a whole, flushed to the disk before it has its name."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(partial, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def senders(root: StateRoot) -> list[str]:
    """The folders of all senders, in a steady order."""
    try:
        return sorted(entry.name for entry in os.scandir(root.inbox) if entry.is_dir())
    except FileNotFoundError:
        return []


def waiting(root: StateRoot, folder: str) -> Iterator[Recorded]:
    """A sender's files, by number."""
    names = (entry.name for entry in os.scandir(root.inbox / folder))
    for name in sorted(name for name in names if name.endswith(".json") and name[:-5].isdecimal()):
        path = root.inbox / folder / name
        found = Recorded(folder=folder, number=int(name[:-5]), path=path, sent=None)
        try:
            found.sent = msgspec.json.decode(path.read_bytes(), type=Sent)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            found.problem = str(error)
        yield found


def any_waiting(root: StateRoot) -> bool:
    """Whether some sender has a request that is not decided."""
    return any(True for folder in senders(root) for _ in waiting(root, folder))


def is_recorded(root: StateRoot, request: str) -> bool:
    """Whether a request of that id waits for its decision."""
    for folder in senders(root):
        try:
            if any(found.sent is not None and found.sent.request == request for found in waiting(root, folder)):
                return True
        except FileNotFoundError:
            continue  # its sender is over
    return False


def is_over(folder: str) -> bool:
    """Whether the process that a folder belongs to has ended: nothing will be recorded in it any more."""
    pid, _, rest = folder.rpartition("~")[2].partition(".")
    started, _, _ = rest.partition(".")
    return not (pid.isdecimal() and is_running(int(pid), started))


def remove_folder(root: StateRoot, folder: str) -> None:
    """Remove the folder of a sender that is over, and the partial files in it."""
    shutil.rmtree(root.inbox / folder, ignore_errors=True)
