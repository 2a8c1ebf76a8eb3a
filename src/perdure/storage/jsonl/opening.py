"""Opening: by the owner, who mends a torn tail and begins an epoch, and by readers, who change nothing."""

import contextlib
import os
from typing import Final

from perdure.base.errors import StorageCorrupt, StorageError
from perdure.storage.jsonl.file import LineFile, cannot
from perdure.storage.jsonl.index import Index
from perdure.storage.jsonl.lines import Mark, compose, header
from perdure.storage.jsonl.load import READ_AHEAD, Reach, begin, boot_id, read_on
from perdure.storage.jsonl.rewrite import is_due, remove_rest, rewrite
from perdure.storage.place import flush_folder
from perdure.storage.protocol import Durability

LOOP_BYTES: Final = 256 * 1024
"""Files above this are read beside the event loop: it would stand still for milliseconds."""


def file_size(path: str) -> int:
    """Bytes of the file; 0 if there is none."""
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def open_for_writing(path: str, durability: Durability) -> tuple[LineFile, Index]:
    """The file with its tail mended and a new epoch begun. The caller owns the store's lock."""
    new = not os.path.exists(path)
    file = LineFile(path, writable=True)
    try:
        index = Index(file.fetch)
        reach = _read_all(file, index, path)
        if reach.size > reach.end:
            _keep_aside(file, reach)
            file.cut(reach.end)
        file.end = reach.end
        if reach.end == 0:
            file.append(header())
        file.flush(file.end)
        if new:
            _flush_folder(path)
        remove_rest(path)
        if is_due(index, file.end):
            file, index = _smaller(file, index)
        _begin_epoch(file, index, durability)
    except BaseException:
        file.close()
        raise
    return file, index


def look(path: str) -> tuple[LineFile, Index]:
    """The file as far as it is whole, for a reader."""
    file = LineFile(path, writable=False)
    try:
        index = Index(file.fetch)
        file.end = _read_all(file, index, path).end
        if index.epoch == 0:
            raise StorageCorrupt(f"{path} is empty: no store was ever completed there")
    except BaseException:
        file.close()
        raise
    return file, index


def follow(path: str, file: LineFile, index: Index) -> tuple[LineFile, Index]:
    """The file and its index as they are now, for a reader: what an owner wrote since, in whichever file."""
    try:
        named = os.stat(path)
    except OSError:
        return file, index  # it was moved away: the open file is all there is
    if not os.path.samestat(named, os.fstat(file.descriptor)):
        found = look(path)
        file.close()
        return found
    if named.st_size != file.end:
        with open(file.descriptor, "rb", closefd=False, buffering=READ_AHEAD) as stream:
            file.end = read_on(stream, index, file.end, path).end
    return file, index


def _read_all(file: LineFile, index: Index, path: str) -> Reach:
    with open(file.descriptor, "rb", closefd=False, buffering=READ_AHEAD) as stream:
        start = begin(stream, path)
        if start == 0:
            return Reach(0, os.fstat(file.descriptor).st_size)
        return read_on(stream, index, start, path)


def _keep_aside(file: LineFile, reach: Reach) -> None:
    """A torn tail that is more than a part of one line may tell somebody something: it is kept beside the file."""
    tail = file.fetch(reach.end, reach.size - reach.end)
    if b"\n" not in tail:
        return
    name = f"{file.path}.torn-{reach.end}"
    try:
        with open(name, "wb") as aside:
            aside.write(tail)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise cannot(error, name) from error


def _smaller(file: LineFile, index: Index) -> tuple[LineFile, Index]:
    """The rewritten file; the old one where there is no room for it."""
    try:
        found = rewrite(file, index)
    except StorageError:
        return file, index
    file.close()
    return found


def _begin_epoch(file: LineFile, index: Index, durability: Durability) -> None:
    mark = Mark(
        seq=index.seq,
        next=index.next_id,
        epoch=index.epoch + 1,
        durability=durability,
        boot=boot_id(),
        flushed=file.end,
    )
    start = file.end
    line = compose(mark, {})
    file.append(line)
    file.flush(file.end)
    index.take(line, start)


def _flush_folder(path: str) -> None:
    try:
        flush_folder(os.path.dirname(path))
    except OSError as error:
        raise cannot(error, path) from error
