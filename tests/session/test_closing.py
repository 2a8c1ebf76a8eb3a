"""Closing while a commit is on its way: what is stored is told before the end is."""

import asyncio

from tests.session.kit import FlushingStorage, Global, add_stop, note, opened, publications, ready


async def test_a_commit_that_was_flushed_is_published_before_the_end_is_told() -> None:
    storage = FlushingStorage()
    session = await opened(storage)
    await add_stop(session, Global, "Rome", None)
    seen = publications(session)
    told: list[int] = []
    session.on_end.append(lambda error: told.append(len(seen)))
    async with session.watch_document(Global) as watch:
        storage.at_once = False
        commits = [asyncio.create_task(note(session)), asyncio.create_task(add_stop(session, Global, "Bonn", None))]
        await ready()
        storage.flush()  # the store is done; nobody has heard of it yet
        await session.close()
        await asyncio.gather(*commits)
        assert told == [len(commits)]
        assert [frame.value async for frame in watch] == [{"stops": ["Rome", "Bonn"]}]
        assert watch.ended == "closed"
