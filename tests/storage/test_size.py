"""Bytes on disk and what an open reads: within bounds that no growth of a session changes."""

import os
from pathlib import Path

import apsw
import pytest

from perdure.storage.records import Batch
from perdure.storage.sqlite.store import SqliteStorage
from perdure.testing.storage_conformance import Script, created


async def opened(path: Path) -> tuple[SqliteStorage, Script]:
    store = SqliteStorage(path, durability="process")
    await store.open()
    script = Script(store)
    await script.commit(conversations=[script.conversation()])
    return store, script


def size(store: SqliteStorage) -> int:
    """Bytes of the file."""
    return os.path.getsize(store.location)


async def growth(store: SqliteStorage, batch: Batch) -> int:
    """Bytes that a batch adds to the closed file."""
    await store.close()
    before = size(store)
    again = SqliteStorage(store.location, durability="process")
    await again.open()
    await again.commit(batch)
    await again.close()
    return size(store) - before


@pytest.mark.slow
async def test_ten_thousand_parked_tasks_cost_at_most_200_bytes_each_above_their_content(tmp_path: Path) -> None:
    store, script = await opened(tmp_path / "s.db")
    tasks = [
        script.task(
            1,
            kind="tool",
            status="sleeping",
            owner=script.next_id,
            input=b'{"x":1}',
            state=b'{"y":2}',
            deadline=1_800_000_000_000 + number,
            started_at=1_700_000_000_000,
        )
        for number in range(10_000)
    ]
    grown = await growth(store, script.batch(tasks=created(*tasks)))
    assert grown / 10_000 < 200 + 14


@pytest.mark.slow
async def test_a_thousand_messages_of_1_kb_fit_into_3_mb(tmp_path: Path) -> None:
    store, script = await opened(tmp_path / "s.db")
    entries = [script.entry(1, messages=b'["' + b"x" * 1020 + b'"]') for _ in range(1000)]
    grown = await growth(store, script.batch(entries=entries))
    assert grown < 1.5 * 1024 * 1000


async def test_a_fork_costs_one_row_whatever_it_inherits(tmp_path: Path) -> None:
    store, script = await opened(tmp_path / "s.db")
    entries = [script.entry(1, messages=b'["' + b"x" * 200 + b'"]') for _ in range(500)]
    forks = [script.conversation(parent=1, fork_entry=entries[400].id) for _ in range(500)]
    await script.commit(entries=entries)
    grown = await growth(store, script.batch(conversations=forks))
    assert grown / 500 < 40
    again = SqliteStorage(tmp_path / "s.db")
    await again.open()
    assert len(await again.scan_entries(forks[-1].id, limit=1000)) == 401
    await again.close()


@pytest.mark.slow
async def test_an_open_reads_the_same_few_pages_however_much_is_stored(tmp_path: Path) -> None:
    steps = []
    for name, count in (("small.db", 1), ("large.db", 30_000)):
        store, script = await opened(tmp_path / name)
        await script.commit(entries=[script.entry(1) for _ in range(count)])
        await store.close()
        again = SqliteStorage(tmp_path / name, durability="process")
        await again.open()
        await again.scan_live()
        await again.scan_submissions(live=True)
        assert again._connection is not None
        assert again._reader is not None
        misses = [
            connection.status(apsw.SQLITE_DBSTATUS_CACHE_MISS)[0] for connection in (again._connection, again._reader)
        ]
        steps.append(sum(misses))
        await again.close()
    assert steps[1] <= steps[0] + 2, steps
