"""One mutation line: order, nesting, cancelling, closing."""

import asyncio
from typing import Any

import pytest

from perdure.base.errors import Error, InvocationEnded, NestedTransaction, NotFound, SessionClosed
from perdure.base.ids import ROOT, ConversationId
from perdure.session.line import Line
from tests.session.kit import FailingStorage, Fresh, Note, Plain, Trip, empty_plan, note, opened, publications, ready


async def appended(session: Plain, text: str, order: list[str]) -> None:
    async with session.transaction() as tx:
        order.append(text)
        await asyncio.sleep(0)
        tx.append_entry(ROOT, Note(text))


async def test_blocks_run_in_the_order_of_asking_one_at_a_time() -> None:
    session = await opened()
    seen = publications(session)
    order: list[str] = []
    await asyncio.gather(*(appended(session, str(number), order) for number in range(10)))
    assert order == [str(number) for number in range(10)]
    assert [one.seq for one in seen] == list(range(seen[0].seq, seen[0].seq + 10))
    assert [b'{"text":"%d"}' % number for number in range(10)] == [one.entries[0].data for one in seen]


async def test_a_block_within_a_block_is_refused_at_once_and_the_outer_one_lives() -> None:
    session = await opened()
    async with session.transaction() as tx:
        tx.append_entry(ROOT, Note("outer"))
        with pytest.raises(NestedTransaction):
            async with session.transaction():
                pass
        with pytest.raises(NestedTransaction):
            await session.snapshot_at(Trip, ROOT, (await tx.scan_entries(ROOT))[0].id)
    assert len(await session.storage.scan_entries(ROOT)) == 1


async def test_a_waiter_cancelled_before_its_turn_withdraws() -> None:
    session = await opened()
    order: list[str] = []
    async with session.transaction():
        waiting = [asyncio.create_task(appended(session, str(number), order)) for number in range(3)]
        await ready()
        waiting[0].cancel()
        waiting[1].cancel()
        await ready()
    await waiting[2]
    assert order == ["2"]
    assert not session.line.busy


async def test_a_waiter_cancelled_in_the_moment_of_its_turn_passes_it_on() -> None:
    line = Line()
    await line.acquire()
    first, second = asyncio.create_task(line.acquire()), asyncio.create_task(line.acquire())
    await ready()
    line.release()  # the turn is the first one's, who has not run yet
    first.cancel()
    await asyncio.wait_for(second, 1)
    assert first.cancelled()
    line.release()
    assert not line.busy


async def test_a_commit_admitted_to_storage_settles_though_its_caller_is_cancelled() -> None:
    storage = FailingStorage()
    session = await opened(storage)
    seen = publications(session)
    storage.gate = asyncio.Event()
    caller = asyncio.create_task(note(session))
    await ready()
    caller.cancel()
    await ready()
    assert (caller.cancelled(), session.line.busy) == (True, True), "the line is held until storage has settled"
    assert not seen
    storage.gate.set()
    await ready()
    assert not session.line.busy
    assert len(seen) == 1
    assert len(await session.storage.scan_entries(ROOT)) == 1


async def test_a_caller_cancelled_inside_its_block_rolls_back() -> None:
    session = await opened()
    seq = session.seq

    async def stuck() -> None:
        async with session.transaction() as tx:
            tx.append_entry(ROOT, Note("never"))
            await asyncio.Event().wait()

    caller = asyncio.create_task(stuck())
    await ready()
    caller.cancel()
    await ready()
    assert (session.seq, session.line.busy) == (seq, False)


async def test_a_transaction_is_unusable_before_and_after_its_block() -> None:
    session = await opened()
    tx = session.transaction()
    with pytest.raises(InvocationEnded):
        tx.append_entry(ROOT, Note("early"))
    async with tx:
        entry = tx.append_entry(ROOT, Note("in time"))
        draft = await tx.doc(Fresh, ROOT)
    for use in (
        lambda: tx.doc(Fresh, ROOT),
        lambda: tx.set(Fresh, ROOT, empty_plan()),
        lambda: tx.patch(Fresh, ROOT, []),
        lambda: tx.retire(Fresh, ROOT),
        lambda: tx.value_of(Fresh, ROOT),
        lambda: tx.find_entry(entry),
        lambda: tx.scan_entries(ROOT),
        lambda: tx.conversation(ROOT),
        lambda: tx.scan_conversations(),
    ):
        with pytest.raises(InvocationEnded):
            await use()
    with pytest.raises(InvocationEnded):
        tx.put_conversation(owner=None)
    with pytest.raises(InvocationEnded):
        async with tx:
            pass
    with pytest.raises(Error):
        draft["stops"].append("late")
    assert await session.snapshot(Fresh, ROOT) == {"stops": []}
    assert not session.line.busy


async def test_a_rolled_back_block_leaves_nothing() -> None:
    session = await opened()
    seen = publications(session)
    before = (session.seq, session.store.next_id)
    kept: Any = None
    with pytest.raises(ZeroDivisionError):  # noqa: PT012
        async with session.transaction() as tx:
            lost = tx.append_entry(ROOT, Note("gone"))
            tx.put_conversation(owner=None)
            kept = await tx.doc(Fresh, ROOT)
            kept["stops"].append("gone")
            raise ZeroDivisionError
    assert (session.seq, session.store.next_id) == before
    assert not seen
    assert await session.snapshot(Fresh, ROOT) is None
    with pytest.raises(Error):
        kept["stops"].append("late")
    assert await note(session) == lost, "the ids of a rolled-back block are given out again"


async def test_a_block_that_fails_at_its_end_leaves_nothing_either() -> None:
    session = await opened()
    before = (session.seq, session.store.next_id)

    async def refuse(tx: Any) -> None:
        raise ZeroDivisionError

    session.rules.append(refuse)
    with pytest.raises(ZeroDivisionError):
        await note(session)
    session.rules.clear()
    assert (session.seq, session.store.next_id, session.line.busy) == (*before, False)


async def test_a_block_without_writes_commits_nothing() -> None:
    storage = FailingStorage()
    session = await opened(storage)
    await note(session)
    async with session.transaction() as tx:
        await tx.doc(Fresh, ROOT)
    seen = publications(session)
    before = (session.seq, storage.commits)
    async with session.transaction() as tx:
        await tx.scan_entries(ROOT)
        plan = await tx.doc(Fresh, ROOT)
        assert plan["stops"] == []
        await tx.set(Fresh, ROOT, empty_plan())
        await tx.patch(Fresh, ROOT, [])
    assert (session.seq, storage.commits) == before
    assert not seen


async def test_an_entry_in_a_conversation_that_is_not_there_is_refused() -> None:
    session = await opened()
    with pytest.raises(NotFound):
        await note(session, "lost", ConversationId(999))
    assert not session.line.busy


async def test_a_long_hold_is_reported_with_both_stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    session = await opened()
    async with session.transaction():
        waiting = asyncio.create_task(note(session))
        await ready()
        assert session.line.long_hold() is None
        session.line._since -= 6
        report = session.line.long_hold()
        assert report is not None
        assert report["waiting"] == 1
        assert report["seconds"] >= 6
        assert "test_a_long_hold_is_reported_with_both_stacks" in report["stack"][0]
        assert any(line.endswith(" note") for line in report["waiter"])
    await waiting
    monkeypatch.setenv("PERDURE_DEBUG", "1")
    with pytest.raises(Error, match="held the line"):  # noqa: PT012
        async with session.transaction() as tx:
            tx.append_entry(ROOT, Note("slow"))
            waiting = asyncio.create_task(note(session))
            await ready()
            session.line._since -= 6
    await waiting
    assert len(await session.storage.scan_entries(ROOT)) == 2


async def test_a_close_refuses_those_who_wait_and_the_block_that_is_open() -> None:
    session = await opened()

    async def late() -> None:
        async with session.transaction() as tx:
            tx.append_entry(ROOT, Note("late"))
            await go.wait()

    go = asyncio.Event()
    holder = asyncio.create_task(late())
    await ready()
    waiter = asyncio.create_task(note(session))
    await ready()
    await session.close()
    with pytest.raises(SessionClosed):
        await waiter
    go.set()
    with pytest.raises(SessionClosed):
        await holder
    for use in (note(session), session.snapshot(Fresh, ROOT), session.conversation(ROOT)):
        with pytest.raises(SessionClosed):
            await use
    await session.close()


async def test_a_close_waits_for_the_commit_under_way() -> None:
    storage = FailingStorage()
    session = await opened(storage)
    storage.gate = asyncio.Event()
    caller = asyncio.create_task(note(session))
    await ready()
    closing = asyncio.create_task(session.close())
    await ready()
    assert not closing.done()
    storage.gate.set()
    await closing
    assert await caller > 0


async def test_a_block_that_was_cut_off_has_lost_the_line() -> None:
    session = await opened()
    go = asyncio.Event()
    txs: list[Any] = []

    async def stuck() -> None:
        async with session.transaction() as tx:
            txs.append(tx)
            tx.append_entry(ROOT, Note("stuck"))
            await go.wait()

    holder = asyncio.create_task(stuck())
    await ready()
    session.cut_off(txs[0])
    async with session.transaction() as tx:
        tx.append_entry(ROOT, Note("next"))
        go.set()
        with pytest.raises(InvocationEnded):
            await holder
        assert session.line.busy, "the line is still the second block's"
    assert [entry.data for entry in await session.storage.scan_entries(ROOT)] == [b'{"text":"next"}']
