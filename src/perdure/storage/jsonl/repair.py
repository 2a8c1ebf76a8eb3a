"""The way out of a damaged file: everything before the damage becomes a new store; nothing is lost without a trace."""

import os
import shutil
from collections.abc import Iterator
from typing import BinaryIO

import msgspec

from perdure.base.errors import InvalidValue, StorageCorrupt
from perdure.storage.jsonl.blobs import folder_of
from perdure.storage.jsonl.file import LineFile, cannot
from perdure.storage.jsonl.index import Index
from perdure.storage.jsonl.lines import Mark, compose, is_whole, read
from perdure.storage.jsonl.load import READ_AHEAD, begin, boot_id, read_on
from perdure.storage.place import flush_folder, real_path


class Repaired(msgspec.Struct, frozen=True):
    """What a repair made of a file."""

    path: str
    """The new store."""
    seq: int
    """Its last commit."""
    offset: int
    """The byte of the damaged file at which it ends: the first that is damaged, or the end of the file."""
    rest: str | None
    """A file with the whole commits that stand behind the damage, for people; None: there are none."""
    lost_seqs: list[int]
    """The commits in that file."""


def repair(path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> Repaired:
    """Write a new store with all commits before the damage. The damaged file and its blobs stay as they are.

    Whole commits behind the damage go to `new_path` + ".rest"; the new store uses none of their ids or epochs again.
    Raises `StorageCorrupt` if not even the first line is whole, `InvalidValue` if `new_path` exists. A crash leaves a
    new file that can be removed.
    """
    old, new = real_path(path), real_path(new_path)
    for taken in (new, new + ".rest", folder_of(new)):
        if os.path.exists(taken):
            raise InvalidValue(f"{taken} exists already", hint="choose another place for the repaired store")
    source = LineFile(old, writable=False)
    try:
        with open(source.descriptor, "rb", closefd=False, buffering=READ_AHEAD) as stream:
            index = Index(source.fetch)
            offset = _reach(stream, index, old)
            return _write(stream, index, offset, old, new)
    except OSError as error:
        raise cannot(error, new) from error
    finally:
        source.close()


def _reach(stream: BinaryIO, index: Index, path: str) -> int:
    start = begin(stream, path)
    if start == 0:
        raise StorageCorrupt(f"{path} is empty: there is nothing to repair", offset=0)
    try:
        return read_on(stream, index, start, path).end
    except StorageCorrupt as damage:
        if damage.offset is None:
            raise
        return damage.offset


def _write(stream: BinaryIO, index: Index, offset: int, old: str, new: str) -> Repaired:
    lines = list(_behind(stream, offset))
    found = [read(line) for line in lines]
    mark = Mark(
        seq=index.seq,
        next=max([index.next_id, *(line.next for line in found)]),
        epoch=max([index.epoch, *(line.epoch for line in found)]) + 1,
        durability="power",
        boot=boot_id(),
        flushed=offset,
    )
    if os.path.isdir(folder_of(old)):
        shutil.copytree(folder_of(old), folder_of(new))
    file = LineFile(new, writable=True)
    try:
        stream.seek(0)
        _copy(stream, file, offset)
        file.append(compose(mark, {}))
        file.flush(file.end)
    finally:
        file.close()
    lost = {line.seq: text for line, text in zip(found, lines, strict=True) if line.seq and not line.epoch}
    if lost:
        with open(new + ".rest", "wb") as rest:
            rest.writelines(lost.values())
    flush_folder(os.path.dirname(new))
    return Repaired(new, index.seq, offset, new + ".rest" if lost else None, list(lost))


def _copy(stream: BinaryIO, file: LineFile, length: int) -> None:
    while length > 0:
        part = stream.read(min(length, READ_AHEAD))
        if not part:
            raise StorageCorrupt(f"{file.path} was cut off while it was read")
        file.append(part)
        length -= len(part)


def _behind(stream: BinaryIO, offset: int) -> Iterator[bytes]:
    """The whole lines from an offset on."""
    stream.seek(offset)
    for text in stream:
        if is_whole(text):
            yield text
