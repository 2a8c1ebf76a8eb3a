"""What a commit promises: its own reads, storing before showing, poisoning, pipelining."""

import asyncio

import pytest

from perdure.base.errors import (
    InvalidValue,
    Refused,
    SessionPoisoned,
    StorageFull,
    StorageRejected,
    StorageUncertain,
)
from perdure.base.ids import ROOT, ConversationId
from perdure.session.forks import fork
from perdure.storage.memory import MemoryStorage
from tests.session.kit import (
    FailingStorage,
    FlushingStorage,
    Fresh,
    Global,
    Note,
    Plain,
    add_stop,
    note,
    opened,
    publications,
    ready,
)


async def texts(tx: object, conversation: ConversationId, **how: object) -> list[bytes]:
    return [entry.data[9:-2] for entry in await tx.scan_entries(conversation, **how)]  # type: ignore[attr-defined]


async def test_reads_see_the_writes_of_their_block_scans_included() -> None:
    session = await opened()
    first = await note(session, "1")
    async with session.transaction() as tx:
        second = tx.append_entry(ROOT, Note("2"))
        assert (await tx.entry(Note, second)) == Note("2")
        assert await texts(tx, ROOT) == [b"1", b"2"]
        assert await texts(tx, ROOT, newest_first=True) == [b"2", b"1"]
        assert await texts(tx, ROOT, newest_first=True, limit=1) == [b"2"]
        assert await texts(tx, ROOT, after=first) == [b"2"]
        assert await texts(tx, ROOT, before=second) == [b"1"]
        other = tx.put_conversation(owner=None)
        assert (await tx.conversation(other)).id == other
        assert [one.id for one in await tx.scan_conversations()] == [ROOT, other]
        assert [one.id for one in await tx.scan_conversations(cursor=ROOT)] == [other]
        plan = await tx.doc(Fresh, ROOT)
        plan["stops"].append("Wien")
        assert await tx.snapshot(Fresh, ROOT) == {"stops": ["Wien"]}
        assert [one.kind for one in await tx.documents_alive("conversation", ROOT)] == ["trip.fresh"]


async def test_a_fork_reads_its_ancestors_in_the_transaction_that_makes_it() -> None:
    session = await opened()
    first = await note(session, "1")
    await note(session, "2")
    async with session.transaction() as tx:
        third = tx.append_entry(ROOT, Note("3"), head=first)
        child = await fork(tx, ROOT, first, owner=None)
        assert await texts(tx, child) == [b"1"]
        mine = tx.append_entry(child, Note("c"))
        assert await texts(tx, child) == [b"1", b"c"]
        assert await texts(tx, child, newest_first=True) == [b"c", b"1"]
        assert await texts(tx, child, after=first) == [b"c"]
        grand = await fork(tx, child, mine, owner=None)
        tx.append_entry(child, Note("later"))
        assert await texts(tx, grand) == [b"1", b"c"]
        assert await texts(tx, grand, before=mine) == [b"1"]
        assert await texts(tx, await fork(tx, ROOT, third, owner=None)) == [b"1", b"2", b"3"]
    async with session.transaction() as tx:
        assert await texts(tx, grand) == [b"1", b"c"]


async def test_a_fork_sees_the_stored_head_in_the_transaction_that_makes_it() -> None:
    session = await opened()
    first = await note(session)
    async with session.transaction() as tx:
        head = tx.put_entry(ROOT, "app.head", head=True)
    after = await note(session)
    async with session.transaction() as tx:
        early, late = await fork(tx, ROOT, first, owner=None), await fork(tx, ROOT, after, owner=None)
        assert await tx.stored_head(early) is None
        assert await tx.stored_head(late) == head
        assert await tx.stored_head(tx.put_conversation(owner=None)) is None


@pytest.mark.parametrize("stored", [False, True])
async def test_a_commit_of_unknown_outcome_poisons_the_session(stored: bool) -> None:
    storage = FailingStorage()
    session = await opened(storage)
    seen = publications(session)
    before = session.seq
    async with session.watch_document(Fresh, ROOT) as watch:
        error = StorageUncertain("the disk went away")
        storage.after, storage.before = (error, None) if stored else (None, error)
        with pytest.raises(StorageUncertain):
            await note(session)
        storage.after = storage.before = None
        assert [frame async for frame in watch] == []
        assert watch.ended == "closed"
    assert not seen
    assert session.seq == before
    for use in (note(session), session.snapshot(Fresh, ROOT), session.conversation(ROOT)):
        with pytest.raises(SessionPoisoned) as poisoned:
            await use
        assert poisoned.value.certain == "unknown"
        assert poisoned.value.__cause__ is error
    await session.close()
    again = await opened(storage.inner)
    assert len(await again.storage.scan_entries(ROOT)) == int(stored)
    assert await note(again) > 0


async def test_those_who_wait_learn_of_the_poisoning() -> None:
    storage = FailingStorage()
    session = await opened(storage)
    storage.gate = asyncio.Event()
    first, second = asyncio.create_task(note(session)), asyncio.create_task(note(session))
    await ready()
    storage.before = OSError("gone")
    storage.gate.set()
    with pytest.raises(OSError):
        await first
    with pytest.raises(SessionPoisoned):
        await second


async def test_a_rejected_batch_does_not_poison() -> None:
    storage = FailingStorage()
    session = await opened(storage)
    before = (session.seq, session.store.next_id)
    seen = publications(session)
    storage.before = StorageRejected("no")
    with pytest.raises(StorageRejected):
        await note(session)
    storage.before = None
    assert (session.seq, session.store.next_id, session.line.busy) == (*before, False)
    assert not seen
    await note(session)
    assert len(seen) == 1


async def test_the_poisoning_says_when_the_batch_certainly_had_no_effect() -> None:
    storage = FailingStorage()
    session = await opened(storage)
    storage.before = StorageFull("no room")
    with pytest.raises(StorageFull):
        await note(session)
    with pytest.raises(SessionPoisoned) as poisoned:
        await note(session)
    assert poisoned.value.certain == "not_stored"


async def pipelined() -> tuple[FlushingStorage, Plain]:
    storage = FlushingStorage()
    session = await opened(storage)
    await add_stop(session, Fresh, "Graz")
    storage.at_once = False
    return storage, session


async def test_the_next_block_runs_while_earlier_commits_flush_and_nothing_is_shown_before() -> None:
    storage, session = await pipelined()
    seen = publications(session)
    adds = [asyncio.create_task(add_stop(session, Fresh, stop)) for stop in ("Wien", "Linz", "Ulm")]
    await ready()
    assert len(storage.waiting) == 3, "all three were handed over"
    assert not seen
    reading = asyncio.create_task(session.value_of(Fresh, ROOT))
    await ready()
    assert not reading.done(), "a snapshot waits for the flush of what it shows"
    storage.flush(1)
    await ready()
    assert [one.documents[0].value for one in seen] == [{"stops": ["Graz", "Wien"]}]
    assert [add.done() for add in adds] == [True, False, False]
    assert not reading.done()
    storage.flush()
    await asyncio.gather(*adds)
    assert await reading == {"stops": ["Graz", "Wien", "Linz", "Ulm"]}
    assert [one.seq for one in seen] == [session.seq - 2, session.seq - 1, session.seq]


async def test_a_publication_comes_before_its_caller_goes_on() -> None:
    storage, session = await pipelined()
    order: list[str] = []
    session.listeners.append(lambda publication: order.append(f"published {publication.seq}"))

    async def one() -> None:
        await note(session)
        order.append("acknowledged")

    waiting = [asyncio.create_task(one()), asyncio.create_task(one())]
    await ready()
    storage.flush()
    await asyncio.gather(*waiting)
    assert order[0] == f"published {session.seq - 1}"
    assert order.index(f"published {session.seq}") < len(order) - 1 - order[::-1].index("acknowledged")


async def test_a_flush_on_the_spot_is_published_on_the_spot_but_never_before_an_earlier_one() -> None:
    storage = FlushingStorage()
    session = await opened(storage)
    storage.on_the_spot = True
    seen = publications(session)
    await note(session, "1")
    assert len(seen) == 1
    assert session.flushed == session.seq
    storage.on_the_spot = False
    storage.at_once = False
    first = asyncio.create_task(note(session, "2"))
    await ready()
    assert len(seen) == 1
    storage.on_the_spot = True
    await note(session, "3")  # flushes both
    await first
    assert [publication.seq for publication in seen] == [session.seq - 2, session.seq - 1, session.seq]
    assert session.flushed == session.seq
    await session.close()


async def test_a_caller_cancelled_while_its_commit_flushes_leaves_the_commit_alone() -> None:
    storage, session = await pipelined()
    seen = publications(session)
    caller = asyncio.create_task(note(session))
    await ready()
    caller.cancel()
    await ready()
    storage.flush()
    await ready()
    assert caller.cancelled()
    assert len(seen) == 1


async def test_a_failed_flush_poisons_and_everything_behind_it_is_uncertain() -> None:
    storage, session = await pipelined()
    seen = publications(session)
    callers = [asyncio.create_task(note(session)) for _ in range(3)]
    reading = asyncio.create_task(session.value_of(Fresh, ROOT))
    await ready()
    storage.flush(1)
    storage.broken = StorageUncertain("the disk went away")
    storage.flush()
    results = await asyncio.gather(*callers, reading, return_exceptions=True)
    assert isinstance(results[0], int)
    assert [type(result) for result in results[1:3]] == [StorageUncertain] * 2
    assert len(seen) == 1
    with pytest.raises(SessionPoisoned):
        await note(session)
    assert len(await storage.inner.scan_entries(ROOT)) == 1
    await session.close()


async def test_a_close_waits_for_all_flushes() -> None:
    storage, session = await pipelined()
    callers = [asyncio.create_task(note(session)) for _ in range(2)]
    await ready()
    closing = asyncio.create_task(session.close())
    await ready()
    assert not closing.done()
    storage.flush()
    await closing
    assert len(await asyncio.gather(*callers)) == 2


async def test_a_progress_commit_holds_nothing_but_patches() -> None:
    session = await opened()
    await add_stop(session, Global, "Wien", None)
    before = session.store.next_id
    async with session.transaction(progress=True) as tx:
        await tx.patch(Global, None, [{"op": "append", "path": "/stops/0", "value": "!"}])
        with pytest.raises(InvalidValue):
            tx.append_entry(ROOT, Note("no"))
        with pytest.raises(InvalidValue):
            tx.put_conversation(owner=None)
        with pytest.raises(Refused):
            await tx.doc(Fresh, ROOT)
    assert await session.snapshot(Global) == {"stops": ["Wien!"]}
    assert session.store.next_id == before


async def test_ids_and_seqs_go_on_after_a_reopen_in_a_new_epoch() -> None:
    storage = MemoryStorage()
    session = await opened(storage)
    first, epoch, seq = await note(session), session.epoch, session.seq
    await session.close()
    again = await opened(storage)
    assert again.epoch > epoch
    assert again.seq == seq
    assert await note(again) == first + 1
