"""What a fork begins with, and what a rewindable document was at an entry."""

import pytest

from perdure.base.errors import InvalidValue, NotFound
from perdure.base.ids import ROOT, ConversationId, EntryId
from perdure.session.documents import Document
from perdure.session.forks import fork
from perdure.storage.memory import MemoryStorage
from perdure.storage.open import open_storage
from perdure.storage.protocol import Storage
from tests.session.kit import Current, Fresh, Member, Note, Plain, Plan, Trip, add_stop, note, opened


async def forked(session: Plain, parent: ConversationId, at: EntryId) -> ConversationId:
    async with session.transaction() as tx:
        return await fork(tx, parent, at, owner=None)


async def stops(session: Plain, kind: Document[Plan], conversation: ConversationId) -> list[str] | None:
    found = await session.snapshot(kind, conversation)
    return None if found is None else found["stops"]


@pytest.fixture(params=["memory", "sqlite"])
def storage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Storage:
    """Each kind of store."""
    if request.param == "memory":
        return MemoryStorage()
    return open_storage(str(tmp_path_factory.mktemp("store") / "s.db"))


async def test_a_fork_begins_with_what_each_kind_says(storage: Storage) -> None:
    session = await opened(storage)
    for kind in (Trip, Current, Fresh):
        await add_stop(session, kind, "early")
    at = await note(session)
    for kind in (Trip, Current, Fresh):
        await add_stop(session, kind, "late")
    child = await forked(session, ROOT, at)
    assert await stops(session, Trip, child) == ["early"]
    assert await stops(session, Current, child) == ["early", "late"]
    assert await stops(session, Fresh, child) is None
    await add_stop(session, Trip, "child", child)
    assert await stops(session, Trip, child) == ["early", "child"]
    assert await stops(session, Trip, ROOT) == ["early", "late"]
    await session.close()


async def test_a_commit_that_writes_entry_and_document_counts_for_that_entry(storage: Storage) -> None:
    session = await opened(storage)
    async with session.transaction() as tx:
        (await tx.doc(Trip, ROOT))["stops"].append("with it")
        at = tx.append_entry(ROOT, Note("x"))
    await add_stop(session, Trip, "later")
    assert await stops(session, Trip, await forked(session, ROOT, at)) == ["with it"]
    assert await session.snapshot_at(Trip, ROOT, at) == {"stops": ["with it"]}
    await session.close()


async def test_values_are_found_through_chains_of_forks(storage: Storage) -> None:
    session = await opened(storage)
    before = await note(session, "before")
    await add_stop(session, Trip, "root")
    at = await note(session)
    child = await forked(session, ROOT, at)
    await add_stop(session, Trip, "child", child)
    mine = await note(session, "mine", child)
    await add_stop(session, Trip, "child 2", child)
    grand = await forked(session, child, mine)
    await add_stop(session, Trip, "grand", grand)
    last = await note(session, "last", grand)
    assert await session.snapshot_at(Trip, grand, last) == {"stops": ["root", "child", "grand"]}
    assert await session.snapshot_at(Trip, grand, mine) == {"stops": ["root", "child"]}
    assert await session.snapshot_at(Trip, grand, at) == {"stops": ["root"]}
    assert await session.snapshot_at(Trip, grand, before) is None
    again = await forked(session, grand, at)
    assert await stops(session, Trip, again) == ["root"], "an inherited entry stands for its own conversation's value"
    unseen = await note(session, "after the fork")
    for conversation, entry in ((grand, unseen), (ROOT, mine), (child, EntryId(9999))):
        with pytest.raises(NotFound):
            await session.snapshot_at(Trip, conversation, entry)
        with pytest.raises(NotFound):
            await forked(session, conversation, entry)
    with pytest.raises(InvalidValue, match="history"):
        await session.snapshot_at(Current, ROOT, at)
    await session.close()


async def test_a_retired_incarnation_stays_readable_at_its_entries() -> None:
    session = await opened()
    await add_stop(session, Trip, "old")
    first = await note(session)
    async with session.transaction() as tx:
        await tx.retire(Trip, ROOT)
    gone = await note(session)
    await add_stop(session, Trip, "new")
    assert await session.snapshot_at(Trip, ROOT, first) == {"stops": ["old"]}
    assert await session.snapshot_at(Trip, ROOT, gone) is None
    assert await stops(session, Trip, await forked(session, ROOT, first)) == ["old"]


async def test_documents_of_kinds_unknown_to_the_code_are_copied_untouched() -> None:
    storage = MemoryStorage()
    session = await opened(storage)
    newer: Document[Plan] = Document("trip.plan", Plan, 7, history="rewindable", fork="as_of", migrate=lambda v, _: v)
    async with session.transaction() as tx:
        await tx.set(newer, ROOT, Plan(stops=["7"]))
        await tx.set(Member, ROOT, Plan(stops=["a"]), key="a")
    await session.close()
    session = await opened(storage)
    child = await forked(session, ROOT, await note(session))
    state = await session.store.document(("trip.plan", "conversation", child, None))
    assert state is not None
    assert (state.value, state.version) == ({"stops": ["7"]}, 7)
    assert await session.snapshot(Member, child, key="a") == {"stops": ["a"]}


async def test_a_fork_takes_what_its_own_transaction_changed(storage: Storage) -> None:
    session = await opened(storage)
    await add_stop(session, Current, "stored")
    await add_stop(session, Trip, "stored")
    async with session.transaction() as tx:
        plan, trip = await tx.doc(Current, ROOT), await tx.doc(Trip, ROOT)
        plan["stops"].append("mine")
        trip["stops"].append("mine")
        at = tx.append_entry(ROOT, Note("x"))
        child = await fork(tx, ROOT, at, owner=None)
        plan["stops"].append("after the fork")  # the draft goes on
        assert await tx.snapshot(Current, child) == {"stops": ["stored", "mine"]}
        assert await tx.snapshot(Trip, child) == {"stops": ["stored", "mine"]}
        (await tx.doc(Current, child))["stops"].append("child")
        grand = await fork(tx, child, at, owner=None)
    for kind, conversation, expected in (
        (Current, ROOT, ["stored", "mine", "after the fork"]),
        (Current, child, ["stored", "mine", "child"]),
        (Current, grand, ["stored", "mine", "child"]),
        (Trip, child, ["stored", "mine"]),
    ):
        assert await stops(session, kind, conversation) == expected
        assert len(await session.storage.scan_documents("conversation", conversation, kind=kind.kind)) == 1
    await session.close()


async def test_a_document_begun_in_the_forks_transaction_is_taken_too(storage: Storage) -> None:
    session = await opened(storage)
    async with session.transaction() as tx:
        (await tx.doc(Trip, ROOT))["stops"].append("new")
        child = await fork(tx, ROOT, tx.append_entry(ROOT, Note("x")), owner=None)
    assert await stops(session, Trip, child) == ["new"]
    await session.close()


async def test_what_a_fork_begins_with_can_be_changed_or_retired_at_once(storage: Storage) -> None:
    session = await opened(storage)
    await add_stop(session, Current, "root")
    at = await note(session)
    async with session.transaction() as tx:
        changed, gone = await fork(tx, ROOT, at, owner=None), await fork(tx, ROOT, at, owner=None)
        (await tx.doc(Current, changed))["stops"].append("child")
        assert await tx.retire(Current, gone)
        assert await tx.snapshot(Current, gone) is None
    assert await stops(session, Current, changed) == ["root", "child"]
    assert await stops(session, Current, gone) is None
    await session.close()
