"""Rewriting a file compactly: the newest of everything, many records to a line, into a new file that takes its place.

The old file stays as it is until the new one is whole and on the disk; a crash before that leaves a file `.new`,
which the next owner removes.
"""

import contextlib
import os
from collections.abc import Iterator
from typing import Final

import msgspec

from perdure.base.errors import StorageCorrupt
from perdure.storage.jsonl import content
from perdure.storage.jsonl.file import LineFile, cannot
from perdure.storage.jsonl.index import Index
from perdure.storage.jsonl.lines import Mark, compose, header
from perdure.storage.jsonl.sorted import Places
from perdure.storage.place import flush_folder

LINE_BYTES: Final = 64 * 1024
"""Bytes of records in one line of a rewritten file: large enough to save the lines' own bytes, small enough to read."""
LEAST_BYTES: Final = 1024 * 1024
"""Files smaller than this are never rewritten: it would save nothing that anybody notices."""

Record = tuple[str, bytes]
"""Section, and the record as JSON."""


def is_due(index: Index, size: int) -> bool:
    """Whether more than half of the file is garbage."""
    return size > LEAST_BYTES and size - index.used > size // 2


def remove_rest(path: str) -> None:
    """Remove what a crash left of a rewriting."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_new(path))


def rewrite(old: LineFile, index: Index) -> tuple[LineFile, Index]:
    """Write the new file and put it in place; returns it with its index. The old one is still open, without a name.

    Raises `StorageFull` and other errors of storage; the old file is then still in place.
    """
    path = old.path
    remove_rest(path)
    new = LineFile(_new(path), writable=True)
    try:
        fresh = Index(new.fetch)
        new.append(header())
        for records in _lines(old, index):
            _put(new, fresh, compose(Mark(as_of=index.seq), records))
        mark = Mark(
            seq=index.seq,
            next=index.next_id,
            epoch=index.epoch,
            durability=index.durability,
            boot=index.boot,
            flushed=new.end,
        )
        _put(new, fresh, compose(mark, {}))
        new.flush(new.end)
        try:
            os.replace(_new(path), path)
            flush_folder(os.path.dirname(path))
        except OSError as error:
            raise cannot(error, path) from error
    except BaseException:
        new.close()
        remove_rest(path)
        raise
    new.path = path
    return new, fresh


def _new(path: str) -> str:
    return path + ".new"


def _put(file: LineFile, index: Index, line: bytes) -> None:
    start = file.end
    file.append(line)
    index.take(line, start)


def _lines(old: LineFile, index: Index) -> Iterator[dict[str, list[bytes]]]:
    """The records in portions of one line."""
    records: dict[str, list[bytes]] = {}
    weight = 0
    for section, text in _records(old, index):
        records.setdefault(section, []).append(text)
        weight += len(text)
        if weight >= LINE_BYTES:
            yield records
            records, weight = {}, 0
    if records:
        yield records


def _records(old: LineFile, index: Index) -> Iterator[Record]:
    """Everything that is of use, in an order in which it can be read."""
    for conversation in index.conversations.values():
        yield "conversations", content.encode(conversation)
    yield from _as_they_are("entries", old, index.entries)
    for id in index.tasks.places:
        yield "tasks", _task(old, index, id)
    yield from _as_they_are("submissions", old, index.submissions.places)
    for document in index.documents.all.values():
        yield "documents", content.encode(document)
    for id, steps in index.documents.history.items():
        for step in steps:
            stored = content.decoded(old.fetch(step.offset, step.length), content.StoredRevision)
            stored.document = id  # the rows of a copy stand where its source wrote them
            yield "revisions", content.encode(stored)
    for blob in index.blobs.values():
        yield "blobs", content.encode(blob)


def _as_they_are(section: str, old: LineFile, places: Places) -> Iterator[Record]:
    for id in places:
        place = places.find(id)
        assert place is not None
        yield section, old.fetch(*place)


def _task(old: LineFile, index: Index, id: int) -> bytes:
    """The newest of a task, with its input."""
    place, source = index.tasks.places.find(id), index.tasks.inputs.find(id)
    assert place is not None
    text = old.fetch(*place)
    if source is None:
        return text
    stored = content.decoded(text, content.StoredTask)
    stored.input = content.decoded(old.fetch(*source), content.StoredTask).input
    if isinstance(stored.input, msgspec.UnsetType):
        raise StorageCorrupt(f"{old.path} has lost the input of task {id}")
    return content.encode(stored)
