"""Watching a document: whole, in order, bounded, with explicit ends."""

import asyncio
from typing import Any

import pytest

from perdure.base import delta
from perdure.base.errors import InvalidValue
from perdure.base.ids import ROOT
from perdure.session.documents import Document
from perdure.session.watch import FRAMES_KEPT
from tests.session.kit import FlushingStorage, Fresh, Plain, Plan, Trip, add_stop, opened, ready

PUSHED = 5


async def retire(session: Plain, kind: Document[Any]) -> None:
    async with session.transaction() as tx:
        await tx.retire(kind, ROOT)


async def test_every_commit_is_a_frame_and_its_operations_give_its_value() -> None:
    session = await opened()
    async with session.watch_document(Fresh, ROOT) as watch:
        value: Any = watch.value
        assert [value] == [None]
        for number in range(PUSHED):
            await add_stop(session, Fresh, str(number))
        for number in range(PUSHED):
            frame = await anext(watch)
            value = delta.apply(value, frame.ops)
            assert value == frame.value == watch.value == {"stops": [str(each) for each in range(number + 1)]}
            assert (frame.epoch, frame.seq) == (session.epoch, session.seq - PUSHED + 1 + number)


async def test_attaching_is_atomic_with_the_line() -> None:
    storage = FlushingStorage()
    session = await opened(storage)
    await add_stop(session, Fresh, "0")
    storage.at_once = False
    early = asyncio.create_task(add_stop(session, Fresh, "1"))
    await ready()
    attaching = asyncio.create_task(session.watches.attach(Fresh, session.store.key_of(Fresh, ROOT, None)))
    await ready()
    late = asyncio.create_task(add_stop(session, Fresh, "2"))
    await ready()
    assert not attaching.done(), "what is not flushed is not shown"
    storage.flush()
    await asyncio.gather(early, late)
    watch = await attaching
    assert watch.value == {"stops": ["0", "1"]}
    assert (await anext(watch)).value == {"stops": ["0", "1", "2"]}


async def test_an_attachment_that_is_cancelled_leaves_nothing_behind() -> None:
    storage = FlushingStorage()
    session = await opened(storage)
    storage.at_once = False
    early = asyncio.create_task(add_stop(session, Fresh, "1"))
    await ready()
    key = session.store.key_of(Fresh, ROOT, None)
    attaching = asyncio.create_task(session.watches.attach(Fresh, key))
    await ready()
    attaching.cancel()
    await ready()
    assert not session.watches.watched(key)
    storage.flush()
    await early


async def test_a_slow_consumer_gets_one_whole_value_in_place_of_what_it_missed() -> None:
    session = await opened()
    async with session.watch_document(Trip, ROOT) as watch:
        for number in range(FRAMES_KEPT):
            await add_stop(session, Trip, str(number))
        assert len(watch._frames) == FRAMES_KEPT
        await add_stop(session, Trip, "one too many")
        await add_stop(session, Trip, "after")
        whole, after = await anext(watch), await anext(watch)
        assert [op["path"] for op in whole.ops] == [""]
        assert delta.apply(None, whole.ops) == whole.value
        assert len(whole.value["stops"]) == FRAMES_KEPT + 1
        assert delta.apply(whole.value, after.ops) == after.value
        assert watch.ended is None


async def test_a_document_that_retires_ends_its_watch_with_no_value() -> None:
    session = await opened()
    await add_stop(session, Fresh, "0")
    async with session.watch_document(Fresh, ROOT) as watch:
        await add_stop(session, Fresh, "1")
        await retire(session, Fresh)
        await add_stop(session, Fresh, "another life")
        assert [frame.value["stops"] async for frame in watch] == [["0", "1"]]
        assert (watch.ended, watch.value) == ("retired", None)


async def test_a_close_ends_a_watch_after_what_was_delivered() -> None:
    session = await opened()
    async with session.watch_document(Fresh, ROOT) as watch:
        await add_stop(session, Fresh, "1")
        waiting = asyncio.create_task(_all(watch))
        await ready()
        await session.close()
        assert await waiting == [{"stops": ["1"]}]
        assert (watch.ended, watch.value) == ("closed", {"stops": ["1"]})


async def _all(watch: Any) -> list[Any]:
    return [frame.value async for frame in watch]


async def test_a_consumer_that_stops_gets_nothing_more() -> None:
    session = await opened()
    async with session.watch_document(Fresh, ROOT) as watch:
        await add_stop(session, Fresh, "1")
        watch.stop()
        assert await _all(watch) == []
    assert (watch.ended, watch.value) == ("stopped", None)
    assert not session.watches.watched(session.store.key_of(Fresh, ROOT, None))


async def test_a_rolled_back_block_is_no_frame() -> None:
    session = await opened()
    await add_stop(session, Fresh, "0")
    async with session.watch_document(Fresh, ROOT) as watch:
        with pytest.raises(ZeroDivisionError):  # noqa: PT012
            async with session.transaction() as tx:
                (await tx.doc(Fresh, ROOT))["stops"].append("no")
                raise ZeroDivisionError
        await add_stop(session, Fresh, "1")
        assert (await anext(watch)).value == {"stops": ["0", "1"]}


async def test_a_write_that_migrates_replaces_the_whole_value() -> None:
    session = await opened()
    await add_stop(session, Fresh, "0")
    newer: Document[Plan] = Document("trip.fresh", Plan, 2, migrate=lambda value, _: {"stops": ["moved"]})
    async with session.watch_document(newer, ROOT) as watch:
        assert watch.value == {"stops": ["moved"]}
        await add_stop(session, newer, "1")
        frame = await anext(watch)
        assert frame.ops == [{"op": "replace", "path": "", "value": {"stops": ["moved", "1"]}}]


async def test_debug_mode_freezes_what_is_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_DEBUG", "1")
    session = await opened()
    await add_stop(session, Fresh, "0")
    async with session.watch_document(Fresh, ROOT) as watch:
        await add_stop(session, Fresh, "1")
        frame = await anext(watch)
        for value in (watch.value, frame.value):
            with pytest.raises(InvalidValue):
                value["stops"] = []
            with pytest.raises(InvalidValue):
                value["stops"].append("no")
        assert frame.value == {"stops": ["0", "1"]}
