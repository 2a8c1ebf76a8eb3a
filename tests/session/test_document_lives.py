"""Documents over time: through forks, checkpoints, versions and several lives; what was true at an entry stays so."""

from pathlib import Path
from typing import Any, TypedDict

import pytest

from perdure.base.errors import InvalidDefinition, TooNew
from perdure.base.ids import ROOT, ConversationId, EntryId
from perdure.session.documents import DELTAS_PER_BASE, Document
from perdure.session.forks import fork
from perdure.storage.jsonl.store import JsonlStorage
from perdure.storage.memory import MemoryStorage
from perdure.storage.open import open_storage
from perdure.storage.protocol import Storage
from tests.session.kit import Note, Plain, Plan, Trip, add_stop, note, opened


class Route(TypedDict):
    """What plans look like in version 2."""

    names: list[str]


class Journey(TypedDict):
    """What plans look like in version 3."""

    names: list[str]
    from_version: int


def journey(value: Any, version: int) -> Journey:
    """From any older version."""
    return {"names": value["stops" if version == 1 else "names"], "from_version": version}


Second: Document[Route] = Document(
    "trip.plan", Route, 2, history="rewindable", fork="as_of", migrate=lambda value, _: {"names": value["stops"]}
)
Third: Document[Journey] = Document("trip.plan", Journey, 3, history="rewindable", fork="as_of", migrate=journey)
Unmoved: Document[Journey] = Document("trip.plan", Journey, 3, history="rewindable", fork="as_of")


@pytest.fixture(params=["memory", "sqlite", "jsonl"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """Each kind of store."""
    match request.param:
        case "memory":
            return MemoryStorage()
        case "sqlite":
            return open_storage(tmp_path / "s.db", durability="process")
        case _:
            return JsonlStorage(tmp_path / "s.jsonl")


async def forked(session: Plain, parent: ConversationId, at: EntryId) -> ConversationId:
    async with session.transaction() as tx:
        return await fork(tx, parent, at, owner=None)


async def test_every_value_through_a_chain_of_forks_over_many_checkpoints_is_found_again(storage: Storage) -> None:
    session = await opened(storage)
    expected: list[tuple[ConversationId, EntryId, list[str]]] = []
    conversation, stops = ROOT, list[str]()
    for level in range(4):
        for number in range(DELTAS_PER_BASE // 2 + 7):
            async with session.transaction() as tx:
                (await tx.doc(Trip, conversation))["stops"].append(f"{level}.{number}")
                stops.append(f"{level}.{number}")
                expected.append((conversation, tx.append_entry(conversation, Note("x")), list(stops)))
        cut = len(expected) - 5  # the child begins a few entries before its parent's end
        stops = list(expected[cut][2])
        conversation = await forked(session, conversation, expected[cut][1])
    await session.close()
    session = await opened(storage)
    for where, entry, then in expected[::7]:
        assert await session.snapshot_at(Trip, where, entry) == {"stops": then}
    for _, entry, then in [one for one in expected if one[0] != conversation][-9:-4:2]:
        assert await session.snapshot_at(Trip, conversation, entry) == {"stops": then}
    assert await session.snapshot(Trip, conversation) == {"stops": stops}
    await session.close()


async def test_versions_are_read_as_they_were_stored_also_through_forks(storage: Storage) -> None:
    session = await opened(storage)
    await add_stop(session, Trip, "a")
    first = await note(session)
    async with session.transaction() as tx:
        (await tx.doc(Second, ROOT))["names"].append("b")
    second = await note(session)
    child = await forked(session, ROOT, first)
    grand = await forked(session, ROOT, second)
    assert await session.snapshot(Third, child) == {"names": ["a"], "from_version": 1}
    assert await session.snapshot(Third, grand) == {"names": ["a", "b"], "from_version": 2}
    assert await session.snapshot_at(Third, grand, first) == {"names": ["a"], "from_version": 1}
    assert await session.snapshot_at(Third, ROOT, second) == {"names": ["a", "b"], "from_version": 2}
    assert await session.snapshot_at(Trip, ROOT, first) == {"stops": ["a"]}, "an older program reads what it stored"
    for read in (session.snapshot_at(Trip, ROOT, second), session.snapshot(Trip, grand)):
        with pytest.raises(TooNew, match="version 2"):
            await read
    with pytest.raises(InvalidDefinition, match="migrate"):
        await session.snapshot_at(Unmoved, ROOT, first)
    async with session.transaction() as tx:
        (await tx.doc(Third, child))["names"].append("c")
    assert await session.snapshot(Third, child) == {"names": ["a", "c"], "from_version": 1}
    assert await session.snapshot(Third, ROOT) == {"names": ["a", "b"], "from_version": 2}
    last = await forked(session, child, await note(session, "x", child))
    assert await session.snapshot(Unmoved, last) == {"names": ["a", "c"], "from_version": 1}
    await session.close()


async def test_a_newer_value_refuses_writes_by_older_code_and_stays_as_it_is(storage: Storage) -> None:
    session = await opened(storage)
    async with session.transaction() as tx:
        await tx.set(Third, ROOT, Journey(names=["a"], from_version=3))
    before = session.seq
    for write in ("doc", "set", "patch"):
        with pytest.raises(TooNew):  # noqa: PT012
            async with session.transaction() as tx:
                tx.append_entry(ROOT, Note("goes with it"))
                match write:
                    case "doc":
                        (await tx.doc(Trip, ROOT))["stops"].append("b")
                    case "set":
                        await tx.set(Trip, ROOT, Plan(stops=[]))
                    case _:
                        await tx.patch(Trip, ROOT, [{"op": "replace", "path": "", "value": {"stops": []}}])
    assert session.seq == before
    assert await session.snapshot(Third, ROOT) == {"names": ["a"], "from_version": 3}
    await session.close()


async def test_each_life_of_a_document_is_found_at_the_entries_of_its_time(storage: Storage) -> None:
    session = await opened(storage)
    at: list[tuple[EntryId, list[str] | None]] = []
    for life in range(3):
        await add_stop(session, Trip, f"life {life}")
        at.append((await note(session), [f"life {life}"]))
        async with session.transaction() as tx:
            await tx.retire(Trip, ROOT)
            if life == 1:  # the next one begins in the same commit
                (await tx.doc(Trip, ROOT))["stops"].append("between")
        at.append((await note(session), ["between"] if life == 1 else None))
        if life == 1:
            async with session.transaction() as tx:
                await tx.retire(Trip, ROOT)
    await session.close()
    session = await opened(storage)
    for entry, stops in at:
        expected = None if stops is None else {"stops": stops}
        assert await session.snapshot_at(Trip, ROOT, entry) == expected
        assert await session.snapshot(Trip, await forked(session, ROOT, entry)) == expected
    assert await session.snapshot(Trip, ROOT) is None
    await session.close()


async def test_a_fork_made_where_its_parents_list_of_documents_was_read_before_sees_what_came_since(
    storage: Storage,
) -> None:
    session = await opened(storage)
    first = await note(session)
    assert await session.snapshot(Trip, await forked(session, ROOT, first)) is None
    await add_stop(session, Trip, "a")
    second = await note(session)
    assert await session.snapshot(Trip, await forked(session, ROOT, second)) == {"stops": ["a"]}
    async with session.transaction() as tx:
        await tx.retire(Trip, ROOT)
    third = await note(session)
    assert await session.snapshot(Trip, await forked(session, ROOT, third)) is None
    assert await session.snapshot(Trip, await forked(session, ROOT, second)) == {"stops": ["a"]}
    await session.close()
