"""Reading a file from its beginning or from where one stopped, and what to make of damage.

A line that is not whole is a *torn tail* if nothing behind it can have been acknowledged; then the file ends before
it. Everything else is damage in the middle: the store is refused, since it would go on with a shorter history.
"""

import os
from typing import BinaryIO, Final, NamedTuple

from perdure.base.errors import StorageCorrupt
from perdure.storage.jsonl.index import Index
from perdure.storage.jsonl.lines import check_header, header, is_whole, read

READ_AHEAD: Final = 1024 * 1024
"""Bytes read at a time while a file is gone through."""
BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"


class Reach(NamedTuple):
    """How far a file could be read."""

    end: int
    """The end of the last whole line."""
    size: int
    """The end of the file; more than `end` if the tail is torn."""


def boot_id() -> str:
    """This start of the machine; empty where the system does not tell."""
    try:
        with open(BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def begin(file: BinaryIO, path: str) -> int:
    """Check the first line; returns where the next one begins. 0: the file is empty, or its creation was cut short."""
    file.seek(0)
    first = file.readline(4096)
    if header().startswith(first) and not first.endswith(b"\n"):
        return 0
    check_header(first, path)
    return len(first)


def read_on(file: BinaryIO, index: Index, start: int, path: str) -> Reach:
    """Take all whole lines from `start` on. Raises `StorageCorrupt` with the offset of damage in the middle."""
    file.seek(start)
    offset = start
    while text := file.readline():
        if not is_whole(text):
            size = _judge(file, index, offset, path)
            return Reach(offset, size)
        try:
            index.take(text, offset)
        except StorageCorrupt as error:
            raise _damaged(path, offset, error.what) from error
        offset += len(text)
    return Reach(offset, offset)


def _judge(file: BinaryIO, index: Index, offset: int, path: str) -> int:
    """The line at `offset` is damaged. Returns the size of the file if everything from there on is a torn tail.

    With every commit flushed, or after a loss of power, what had not been flushed may be there in part. A process that
    dies leaves no hole: whole lines behind one then mean that something else damaged the file.
    """
    holes = index.durability == "power" or index.boot != boot_id()
    for text in file:
        if is_whole(text) and (not holes or read(text).flushed > offset):
            raise _damaged(path, offset, "a line is damaged")
    return os.fstat(file.fileno()).st_size


def _damaged(path: str, offset: int, what: str) -> StorageCorrupt:
    return StorageCorrupt(
        f"{path} is damaged at byte {offset}: {what}; it was left as it is",
        hint="`perdure repair PATH NEW` writes what stands before the damage to a new file; or restore a copy",
        offset=offset,
    )
