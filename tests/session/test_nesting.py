"""Values nested beyond reason, and values that hold themselves: refused as what they are, never a crash."""

from typing import Any

import pytest

from perdure.base.errors import InvalidValue
from perdure.base.ids import ROOT
from perdure.base.jsonvalue import DEPTH_LIMIT
from perdure.session.documents import Document, document_family
from perdure.session.entries import entry
from tests.session.kit import Loose, Note, opened


@entry("app.deep")
class Deep:
    """Data and messages of any shape."""

    value: Any

    def to_model(self) -> list[Any]:
        """The same once more."""
        return [self.value]


def deep(levels: int, kind: type) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value] if kind is list else {"a": value}
    return value


def endless() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


async def by_set(tx: Any, value: Any) -> None:
    await tx.set(Loose, ROOT, {"a": value})


async def by_draft(tx: Any, value: Any) -> None:
    (await tx.doc(Loose, ROOT))["a"] = value


async def by_append(tx: Any, value: Any) -> None:
    (await tx.doc(Loose, ROOT)).setdefault("a", []).append(value)


async def by_patch(tx: Any, value: Any) -> None:
    await tx.patch(Loose, ROOT, [{"op": "add", "path": "/a", "value": value}])


async def by_seed(tx: Any, value: Any) -> None:
    await tx.doc(document_family("trip.seeded", dict[str, Any]), ROOT, key="k", seed={"a": value})


async def by_initial(tx: Any, value: Any) -> None:
    await tx.doc(Document("trip.first", dict[str, Any], initial=lambda: {"a": value}), ROOT)


async def by_entry(tx: Any, value: Any) -> None:
    tx.append_entry(ROOT, Deep(value))


WAYS = (by_set, by_draft, by_append, by_patch, by_seed, by_initial, by_entry)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("levels", [DEPTH_LIMIT + 1, 900, 100_000, 0])
@pytest.mark.parametrize("kind", [list, dict])
async def test_what_is_nested_too_deeply_is_refused_and_nothing_is_stored(way: Any, levels: int, kind: type) -> None:
    session = await opened()
    before = session.seq
    value = deep(levels, kind) if levels else endless()
    with pytest.raises(InvalidValue):  # noqa: PT012
        async with session.transaction() as tx:
            tx.append_entry(ROOT, Note("goes with it"))
            await way(tx, value)
    assert session.seq == before
    async with session.transaction() as tx:
        await way(tx, deep(20, kind))
    assert session.seq == before + 1


@pytest.mark.slow
async def test_a_draft_that_grows_downwards_step_by_step_is_refused_at_the_end() -> None:
    session = await opened()
    with pytest.raises(InvalidValue, match="nested"):  # noqa: PT012
        async with session.transaction() as tx:
            place = await tx.doc(Loose, ROOT)
            for _ in range(3_000):
                place["a"] = {}
                place = place["a"]
    assert await session.snapshot(Loose, ROOT) is None


async def test_a_recursion_of_the_users_own_code_stays_what_it_is() -> None:
    session = await opened()

    def forever() -> None:
        forever()

    with pytest.raises(RecursionError):  # noqa: PT012
        async with session.transaction() as tx:
            await tx.doc(Loose, ROOT)
            forever()


async def test_a_migration_that_nests_too_deeply_is_refused_where_its_value_is_read() -> None:
    session = await opened()
    async with session.transaction() as tx:
        await tx.set(Loose, ROOT, {})
    newer: Document[Any] = Document("trip.loose", dict[str, Any], 2, migrate=lambda value, _: {"a": deep(5_000, list)})
    with pytest.raises(InvalidValue):
        await session.snapshot(newer, ROOT)
    assert await session.snapshot(Loose, ROOT) == {}
