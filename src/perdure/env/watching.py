"""What has changed below a folder since one last looked. Only the standard library: this also runs on the far side.

A look is a walk: nothing is missed that a walk can see, whatever the file system. Between two looks one sleeps, or
waits for word from the system where there is a library for that.
"""

import os
from typing import Literal

from perdure.env.globbing import MAX_VISITED, SKIPPED_FOLDERS

PAUSE_SECONDS = 0.5
"""Between two looks, where the system gives no word."""
LOOKING_SHARE = 4
"""A pause is at least this many times as long as the look before it: a huge tree does not keep a core busy."""

Kind = Literal["added", "modified", "deleted"]
State = dict[str, tuple[int, int, int]]
"""By relative path: inode, size, time of the last change in nanoseconds."""


def look(under: str) -> State:
    """Every file below a folder, or the one file, as it is now. Blocking; raises OSError where nothing is there."""
    if not os.path.isdir(under):
        return {os.path.basename(under): _mark(os.stat(under))}
    found: State = {}
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(os.path.join(under, folder)) as entries:
                for entry in entries:
                    path = os.path.join(folder, entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name not in SKIPPED_FOLDERS:
                            waiting.append(path)
                        continue
                    try:
                        found[path] = _mark(entry.stat(follow_symlinks=False))
                    except FileNotFoundError:
                        continue
        except OSError:
            if not folder:
                raise
        if len(found) > MAX_VISITED:
            raise OSError(f"more than {MAX_VISITED:,} files are too many to watch")
    return found


def look_again(under: str) -> State:
    """As `look`; where nothing is any more, nothing."""
    try:
        return look(under)
    except FileNotFoundError:
        return {}


def differences(before: State, now: State) -> list[tuple[Kind, str]]:
    """Kind ("added", "modified", "deleted") and path of what differs, by path."""
    found: list[tuple[Kind, str]] = [("added", path) for path in now.keys() - before.keys()]
    found += [("deleted", path) for path in before.keys() - now.keys()]
    found += [("modified", path) for path in now.keys() & before.keys() if now[path] != before[path]]
    return sorted(found, key=lambda change: change[1])


def _mark(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_ino, found.st_size, found.st_mtime_ns
