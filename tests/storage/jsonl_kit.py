"""What the tests of the file of lines share: files as a process leaves them, and what is in them afterwards."""

from pathlib import Path

import pytest

from perdure.base.errors import Error
from perdure.base.ids import ConversationId
from perdure.storage.jsonl.store import JsonlStorage
from perdure.storage.protocol import Durability
from perdure.testing.storage_conformance import Script
from tests.storage.test_faults import digest

ROOT = ConversationId(1)
TEXT = "ä\u2028日本👩"


async def filled(path: Path, entries: int = 20, durability: Durability = "power", *, closed: bool = True) -> bytes:
    """The content of a file with so many entries; not `closed`: as a killed process leaves it."""
    store = JsonlStorage(path, durability=durability)
    await store.open()
    script = Script(store)
    await script.commit(conversations=[script.conversation()])
    for number in range(entries):
        await script.commit(entries=[script.entry(1, data=f'"{number} {TEXT}"'.encode())])
    content = as_it_is(path)
    await store.close()
    if not closed:
        put(path, content)
    return as_it_is(path)


def as_it_is(path: Path) -> bytes:
    """What is in a file."""
    return path.read_bytes()


def put(path: Path, content: bytes) -> None:
    """Put that into a file."""
    path.write_bytes(content)


async def entries(path: Path) -> int:
    """Opens, counts, commits one more, closes, opens and counts again: what was there stays, and the new one is."""
    counts = []
    for _ in range(2):
        store = JsonlStorage(path)
        head = await store.open()
        found = await store.scan_entries(ROOT, limit=1000)
        counts.append(len(found))
        assert [one.data for one in found[:20]] == [f'"{n} {TEXT}"'.encode() for n in range(min(20, len(found)))]
        script = Script(store, seq=head.seq, next_id=max(head.next_id, 2))
        if len(counts) == 1 and head.seq:
            await script.commit(entries=[script.entry(1, data=f'"{counts[0]} {TEXT}"'.encode())])
        await store.close()
    assert counts[1] == counts[0] + 1
    return counts[0]


async def refused(path: Path, error: type[Error]) -> Error:
    """Both kinds of openers refuse the file and leave everything as it was. Gives the owner's error."""
    before = digest(path.parent)
    with pytest.raises(error) as caught:
        await JsonlStorage(path).open()
    with pytest.raises(error):
        await JsonlStorage(path, read_only=True).open()
    assert digest(path.parent) == before
    return caught.value


def lines_of(content: bytes) -> list[tuple[int, int]]:
    """Where each line begins and ends."""
    found, at = [], 0
    for line in content.split(b"\n")[:-1]:
        found.append((at, at + len(line) + 1))
        at += len(line) + 1
    return found
