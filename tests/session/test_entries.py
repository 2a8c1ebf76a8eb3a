"""Entries of an application's own kinds."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.base.errors import InvalidDefinition, InvalidValue, NotFound, TooNew
from perdure.base.ids import ROOT, EntryId
from perdure.session.entries import entry
from perdure.session.forks import fork
from perdure.storage.memory import MemoryStorage
from perdure.storage.open import open_storage
from tests.session.kit import Note, opened

MADE: list[str] = []


@entry("app.told")
class Told:
    """An entry that a model reads."""

    text: str

    def to_model(self) -> list[Any]:
        """Counts how often it is asked."""
        MADE.append(self.text)
        return [{"role": "user", "content": self.text}]


@entry("app.note", version=2, migrate=lambda data, version: {"title": data["text"], "since": version})
class Newer:
    """The note's next version."""

    title: str
    since: int


async def test_an_entry_is_read_in_its_type_and_its_messages_are_made_once() -> None:
    MADE.clear()
    session = await opened()
    async with session.transaction() as tx:
        id = tx.append_entry(ROOT, Told("hi"))
        assert await tx.entry(Told, id) == Told("hi")
    async with session.transaction() as tx:
        assert await tx.entry(Told, id) == Told("hi")
        assert await tx.entry(Told, EntryId(999)) is None
        with pytest.raises(InvalidValue, match=r"app\.told"):
            await tx.entry(Note, id)
    stored = await session.storage.entry(id)
    assert stored is not None
    assert msgspec.json.decode(stored.messages) == [{"role": "user", "content": "hi"}]
    assert MADE == ["hi"]


async def test_an_older_entry_is_migrated_in_memory_and_a_newer_one_is_refused() -> None:
    session = await opened()
    async with session.transaction() as tx:
        old, new = tx.append_entry(ROOT, Note("x")), tx.append_entry(ROOT, Newer("y", 9))
    before = await session.storage.entry(old)
    async with session.transaction() as tx:
        assert await tx.entry(Newer, old) == Newer("x", 1)
        assert await tx.entry(Newer, new) == Newer("y", 9)
        with pytest.raises(TooNew):
            await tx.entry(Note, new)
    assert await session.storage.entry(old) == before


async def test_an_entry_that_does_not_fit_its_class_is_refused() -> None:
    session = await opened()
    async with session.transaction() as tx:
        with pytest.raises(InvalidValue, match="text"):
            tx.append_entry(ROOT, Note(5))  # type: ignore[arg-type]
        with pytest.raises(InvalidDefinition):
            tx.append_entry(ROOT, object())
    assert await session.storage.scan_entries(ROOT) == []
    with pytest.raises(InvalidDefinition):
        entry("a/b")


async def test_a_head_or_an_edit_that_its_conversation_does_not_see_is_refused() -> None:
    session = await opened()
    async with session.transaction() as tx:
        early = tx.append_entry(ROOT, Note("early"))
        late = tx.append_entry(ROOT, Note("late"))
        other = tx.put_conversation(owner=None)
    async with session.transaction() as tx:
        child = await fork(tx, ROOT, early, owner=None)
    before = session.seq
    for where, target in ((child, late), (other, early), (ROOT, EntryId(10**9))):
        for how in ("head", "edits"):
            with pytest.raises(NotFound, match=str(target)):
                async with session.transaction() as tx:
                    tx.append_entry(where, Note("x"), **{how: target})  # type: ignore[arg-type]
    assert session.seq == before
    async with session.transaction() as tx:
        mine = tx.append_entry(child, Note("x"), head=early)
        tx.append_entry(child, Note("y"), edits=mine)
        tx.append_entry(child, Note("z"), edits=early)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_hundred_thousand_entries_are_read_page_by_page(kind: str, tmp_path: Path) -> None:
    storage = MemoryStorage() if kind == "memory" else open_storage(str(tmp_path / "s.db"), durability="process")
    session = await opened(storage)
    count = 100_000 if kind == "sqlite" else 5_000
    data = b'{"text":"x"}'
    for _ in range(0, count, 5_000):
        async with session.transaction() as tx:
            for _ in range(5_000):
                tx.put_entry(ROOT, "app.note", data=data)
    ids: list[EntryId] = []
    async with session.transaction() as tx:
        while page := await tx.scan_entries(ROOT, after=ids[-1] if ids else None, limit=1_000):
            ids += [one.id for one in page]
        assert len(ids) == count
        assert ids == sorted(ids)
        middle = ids[count // 2]
        child = await fork(tx, ROOT, middle, owner=None)
        back = await tx.scan_entries(child, newest_first=True, limit=3)
        assert [one.id for one in back] == ids[count // 2 - 2 : count // 2 + 1][::-1]
        assert [one.id for one in await tx.scan_entries(child, after=ids[count // 2 - 2])] == ids[
            count // 2 - 1 : count // 2 + 1
        ]
        assert await tx.scan_entries(child, after=middle) == []
    backwards: list[EntryId] = []
    async with session.transaction() as tx:
        while page := await tx.scan_entries(
            child, before=backwards[-1] if backwards else None, newest_first=True, limit=1_000
        ):
            backwards += [one.id for one in page]
    assert backwards == ids[: count // 2 + 1][::-1]
    await session.close()
