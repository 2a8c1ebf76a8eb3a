"""Entries of an application's own kinds."""

from typing import Any

import msgspec
import pytest

from perdure.base.errors import InvalidDefinition, InvalidValue, TooNew
from perdure.base.ids import ROOT, EntryId
from perdure.session.entries import entry
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
