"""Families of documents: many members of one kind, each under a key of its own, found without reading the others."""

import pytest

from perdure.base.errors import InvalidValue
from perdure.base.ids import ROOT
from perdure.session.documents import Document, document_family
from perdure.session.forks import fork
from perdure.storage.memory import MemoryStorage
from perdure.storage.open import open_storage
from perdure.storage.protocol import Storage
from tests.session.kit import Note, Plain, Plan, Trip, note, opened

Ticket = document_family("app.ticket", Plan, history="rewindable", fork="as_of")
Everyone = document_family("app.person", Plan, scope="session")


@pytest.fixture(params=["memory", "sqlite"])
def storage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Storage:
    """Each kind of store."""
    if request.param == "memory":
        return MemoryStorage()
    return open_storage(str(tmp_path_factory.mktemp("store") / "s.db"), durability="process")


async def add(session: Plain, *keys: str, conversation: int = ROOT, kind: Document[Plan] = Ticket) -> None:
    """Create members in a commit."""
    async with session.transaction() as tx:
        for key in keys:
            await tx.doc(kind, conversation if kind.scope == "conversation" else None, key=key, seed=Plan(stops=[key]))


async def test_keys_are_listed_in_order_by_their_beginnings_and_by_pages(storage: Storage) -> None:
    session = await opened(storage)
    keys = ["b/2", "a/10", "a/1", "ä", "a", "b/1", "日本", "a/\U0001f600"]
    await add(session, *keys)
    await add(session, "x", kind=Everyone)
    assert await session.document_keys(Ticket, ROOT) == sorted(keys)
    assert await session.document_keys(Ticket, ROOT, prefix="a/") == ["a/1", "a/10", "a/\U0001f600"]
    assert await session.document_keys(Ticket, ROOT, prefix="b/", after="b/1") == ["b/2"]
    assert await session.document_keys(Ticket, ROOT, prefix="none") == []
    assert await session.document_keys(Everyone) == ["x"]
    found: list[str] = []
    while page := await session.document_keys(Ticket, ROOT, after=found[-1] if found else None, limit=3):
        found += page
    assert found == sorted(keys)
    await session.close()


async def test_a_transaction_lists_what_it_created_and_not_what_it_retired(storage: Storage) -> None:
    session = await opened(storage)
    await add(session, "a", "b", "c", "d")
    async with session.transaction() as tx:
        await tx.retire(Ticket, ROOT, key="a")
        await tx.retire(Ticket, ROOT, key="c")
        await tx.doc(Ticket, ROOT, key="c", seed=Plan(stops=["again"]))
        await tx.doc(Ticket, ROOT, key="bb", seed=Plan(stops=[]))
        assert await tx.document_keys(Ticket, ROOT) == ["b", "bb", "c", "d"]
        assert await tx.document_keys(Ticket, ROOT, limit=2) == ["b", "bb"]
        assert await tx.document_keys(Ticket, ROOT, after="bb", limit=1) == ["c"]
        child = await fork(tx, ROOT, tx.append_entry(ROOT, Note("x")), owner=None)
        assert await tx.document_keys(Ticket, child) == ["b", "bb", "c", "d"]
    assert await session.document_keys(Ticket, ROOT) == ["b", "bb", "c", "d"]
    assert await session.document_keys(Ticket, child) == ["b", "bb", "c", "d"]
    assert await session.snapshot(Ticket, child, key="c") == {"stops": ["again"]}
    await session.close()


async def test_a_fork_begins_with_the_members_that_lived_at_its_entry(storage: Storage) -> None:
    session = await opened(storage)
    await add(session, "kept", "ended", "recreated")
    at = await note(session)
    async with session.transaction() as tx:
        await tx.retire(Ticket, ROOT, key="ended")
        await tx.retire(Ticket, ROOT, key="recreated")
    await add(session, "recreated", "later")
    async with session.transaction() as tx:
        (await tx.doc(Ticket, ROOT, key="recreated"))["stops"].append("second life")
        (await tx.doc(Ticket, ROOT, key="kept"))["stops"].append("changed")
    async with session.transaction() as tx:
        child = await fork(tx, ROOT, at, owner=None)
    assert await session.document_keys(Ticket, child) == ["ended", "kept", "recreated"]
    for key in ("ended", "kept", "recreated"):
        assert await session.snapshot(Ticket, child, key=key) == {"stops": [key]}
        assert await session.snapshot_at(Ticket, ROOT, at, key=key) == {"stops": [key]}
    assert await session.snapshot_at(Ticket, ROOT, at, key="later") is None
    assert await session.document_keys(Ticket, ROOT) == ["kept", "later", "recreated"]
    assert await session.snapshot(Ticket, ROOT, key="recreated") == {"stops": ["recreated", "second life"]}
    await session.close()


async def test_keys_are_text_and_belong_to_families_only() -> None:
    session = await opened()
    for wrong in ("", None, 5, b"k", "\ud800"):
        with pytest.raises(InvalidValue):
            await session.snapshot(Ticket, ROOT, key=wrong)  # type: ignore[arg-type]
    for read in (session.document_keys(Trip, ROOT), session.document_keys(Ticket), session.document_keys(Everyone, 5)):
        with pytest.raises(InvalidValue):
            await read


@pytest.mark.slow
async def test_a_member_of_a_large_family_is_found_as_fast_as_one_of_a_small(storage: Storage) -> None:
    """Counted in rows that storage hands out: a read of one document asks for one."""
    session = await opened(storage)
    for start in range(0, 5_000, 500):
        await add(session, *(f"{number:05}" for number in range(start, start + 500)))
    session.store.working.documents.clear()
    seen = 0
    scan = storage.scan_documents

    async def counted(*args: object, **options: object) -> object:
        nonlocal seen
        found = await scan(*args, **options)  # type: ignore[arg-type]
        seen += len(found)
        return found

    storage.scan_documents = counted  # type: ignore[method-assign,assignment]
    assert await session.snapshot(Ticket, ROOT, key="04321") == {"stops": ["04321"]}
    assert await session.snapshot(Trip, ROOT) is None
    assert await session.document_keys(Ticket, ROOT, prefix="0499", limit=3) == ["04990", "04991", "04992"]
    if not isinstance(storage, MemoryStorage):  # it looks through its dictionary by itself
        assert seen == 0
    await session.close()
