"""Debug mode: what is handed out is shared, and says so to whoever tries to change it."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from perdure.base.errors import InvalidValue
from perdure.base.ids import ROOT
from perdure.session.documents import Document
from tests.session.kit import Loose, note, opened

Kept: Document[Any] = Document("trip.kept", dict[str, Any], history="rewindable", initial=dict)


async def test_values_of_snapshots_and_frames_refuse_changes_and_their_copies_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PERDURE_DEBUG", "1")
    session = await opened()
    for kind in (Loose, Kept):
        async with session.transaction() as tx:
            await tx.set(kind, ROOT, {"list": [1, {"deep": []}]})
    at = await note(session)
    async with session.watch_document(Loose, ROOT) as watch:
        async with session.transaction() as tx:
            (await tx.doc(Loose, ROOT))["more"] = {}
        frame = await anext(watch)
        handed: list[Any] = [
            watch.value,
            frame.value,
            await session.snapshot(Loose, ROOT),
            await session.value_of(Loose, ROOT),
            await session.snapshot_at(Kept, ROOT, at),
        ]
    changes: list[Callable[[Any], Any]] = [
        lambda value: value.update(a=1),
        lambda value: value.pop("list"),
        lambda value: value["list"].append(1),
        lambda value: value["list"][1]["deep"].append(1),
        lambda value: value["list"].sort(),
    ]
    for value in handed:
        for change in changes:
            with pytest.raises(InvalidValue, match="shared"):
                change(value)
        for mine in (copy.deepcopy(value), {**value, "list": copy.copy(value["list"])}):
            mine["list"].append(2)
            mine["other"] = 1
        async with session.transaction() as tx:  # what was handed out may be put into another document
            await tx.set(Kept, ROOT, value)
            (await tx.doc(Kept, ROOT))["again"] = value
        kept: Any = await session.snapshot(Kept, ROOT)
        assert kept["again"] == value


async def test_without_debug_mode_nothing_is_copied() -> None:
    session = await opened()
    async with session.transaction() as tx:
        await tx.set(Loose, ROOT, {"a": []})
    assert await session.value_of(Loose, ROOT) is await session.value_of(Loose, ROOT)
