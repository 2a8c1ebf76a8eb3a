"""The SQLite writer: order, groups, what a refused or cancelled commit means for others, and waiting for a lock."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import msgspec
import pytest

from perdure.base.errors import StorageBusy, StorageError, StorageRejected, StorageUncertain
from perdure.base.ids import ConversationId, EntryId
from perdure.storage.records import Batch, Entry, Revision
from perdure.storage.sqlite import store as store_module
from perdure.storage.sqlite import writer as writer_module
from perdure.storage.sqlite.store import SqliteStorage
from perdure.testing.storage_conformance import Script, created, updated

ROOT = ConversationId(1)


@pytest.fixture
async def power(tmp_path: Path) -> AsyncIterator[SqliteStorage]:
    store = SqliteStorage(tmp_path / "s.db", busy_timeout=0.05)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def process(tmp_path: Path) -> AsyncIterator[SqliteStorage]:
    store = SqliteStorage(tmp_path / "s.db", durability="process", busy_timeout=0.05)
    await store.open()
    yield store
    await store.close()


async def begin(store: SqliteStorage) -> Script:
    script = Script(store)
    await script.commit(conversations=[script.conversation()])
    return script


def queue(script: Script, store: SqliteStorage, size: int, *, progress: bool = False) -> "list[asyncio.Future[int]]":
    """Queue commits of one entry each."""
    futures = []
    for _ in range(size):
        futures.append(store.enqueue(script.batch(entries=[script.entry(1)], progress=progress)))
        script.seq += 1
    return futures


def transactions(store: SqliteStorage) -> list[str]:
    """Every statement that the writer runs from now on."""
    seen: list[str] = []
    assert store._connection is not None

    def trace(cursor: object, sql: str, bindings: object) -> bool:
        seen.append(sql)
        return True

    store._connection.exec_trace = trace
    return seen


async def test_power_is_pipelined_and_process_is_not(power: SqliteStorage) -> None:
    assert power.pipelined
    assert not SqliteStorage("x.db", durability="process").pipelined


async def test_queued_commits_are_done_in_order_and_share_transactions(power: SqliteStorage) -> None:
    script = await begin(power)
    seen = transactions(power)
    done: list[int] = []
    futures = queue(script, power, 40)
    for future in futures:
        future.add_done_callback(lambda one: done.append(one.result()))
    await asyncio.gather(*futures)
    assert done == list(range(2, 42))
    assert seen.count("COMMIT") <= 3
    assert seen.count(writer_module.FLUSHED) + seen.count(writer_module.UNFLUSHED) == 0
    assert len(await power.scan_entries(ROOT)) == 40


async def test_a_group_without_anything_to_acknowledge_is_not_flushed(power: SqliteStorage) -> None:
    script = await begin(power)
    document = script.document()
    await script.commit(documents=[document], revisions=[script.base(document, b"1")])
    seen = transactions(power)
    await script.commit(progress=True, revisions=[script.delta(document, b"[]")])
    assert seen[0] == writer_module.UNFLUSHED
    await script.commit(entries=[script.entry(1)])
    assert writer_module.FLUSHED in seen
    assert power._connection is not None
    assert power._connection.pragma("synchronous") == 2


async def test_progress_in_a_group_with_others_is_flushed_with_them(power: SqliteStorage) -> None:
    script = await begin(power)
    seen = transactions(power)
    futures = queue(script, power, 3, progress=True) + queue(script, power, 1)
    await asyncio.gather(*futures)
    assert power._connection is not None
    assert power._connection.pragma("synchronous") == 2
    assert seen.count(writer_module.FLUSHED) == 1


async def test_process_commits_never_flush_and_stay_on_the_loop(process: SqliteStorage) -> None:
    script = await begin(process)
    task = script.task(1)
    commit = process.commit(script.batch(tasks=created(task)))
    with pytest.raises(StopIteration) as returned:
        commit.send(None)
    assert returned.value.value == 2
    assert process._connection is not None
    assert process._connection.pragma("synchronous") == 1
    assert "perdure-commit" not in {thread.name for thread in threading.enumerate()}


async def test_a_large_batch_is_written_by_the_thread(process: SqliteStorage) -> None:
    script = await begin(process)
    entry = script.entry(1, data=b'"' + b"x" * writer_module.LOOP_BYTES + b'"')
    await script.commit(entries=[entry])
    assert "perdure-commit" in {thread.name for thread in threading.enumerate()}
    assert await process.entry(entry.id) == entry


async def test_a_refused_commit_in_a_group_takes_only_those_behind_it(power: SqliteStorage) -> None:
    script = await begin(power)
    good = queue(script, power, 3)
    bad = power.enqueue(Batch(script.seq + 1, script.next_id, entries=[Entry(EntryId(2), ROOT, 9, "k", 1)]))
    script.seq += 1
    behind = queue(script, power, 2)
    results = await asyncio.gather(*good, bad, *behind, return_exceptions=True)
    assert results[:3] == [2, 3, 4]
    assert all(isinstance(result, StorageRejected) for result in results[3:])
    assert len(await power.scan_entries(ROOT)) == 3
    script.seq = 4
    await script.commit(entries=[script.entry(1)])
    assert len(await power.scan_entries(ROOT)) == 4


async def test_cancelling_the_caller_does_not_cancel_the_commit(power: SqliteStorage) -> None:
    script = await begin(power)
    waiting = asyncio.ensure_future(power.commit(script.batch(entries=[script.entry(1)])))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    script.seq += 1
    direct = queue(script, power, 1)[0]
    direct.cancel()
    await script_after(script)
    assert len(await power.scan_entries(ROOT)) == 3


async def script_after(script: Script) -> None:
    await script.commit(entries=[script.entry(1)])


async def test_close_waits_for_what_is_queued(tmp_path: Path) -> None:
    store = SqliteStorage(tmp_path / "s.db")
    await store.open()
    script = await begin(store)
    futures = queue(script, store, 5)
    await store.close()
    assert [future.result() for future in futures] == [2, 3, 4, 5, 6]
    with pytest.raises(StorageError):
        store.enqueue(script.batch())
    again = SqliteStorage(tmp_path / "s.db")
    assert (await again.open()).seq == 6
    await again.close()


@pytest.mark.parametrize("durability", ["power", "process"])
async def test_a_lock_held_too_long_is_told_and_the_next_commit_goes_on(tmp_path: Path, durability: str) -> None:
    store = SqliteStorage(tmp_path / "s.db", durability=durability, busy_timeout=0.05)  # type: ignore[arg-type]
    await store.open()
    script = await begin(store)
    other = apsw.Connection(str(tmp_path / "s.db"))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageBusy) as caught:
        await store.commit(script.batch(entries=[script.entry(1)]))
    assert caught.value.certain == "not_stored"
    assert await store.scan_entries(ROOT) == []
    other.execute("ROLLBACK")
    other.close()
    await script.commit(entries=[script.entry(1)])
    await store.close()


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["power", "process"])
async def test_a_lock_held_for_a_while_is_waited_for_without_stopping_the_loop(tmp_path: Path, durability: str) -> None:
    store = SqliteStorage(tmp_path / "s.db", durability=durability)  # type: ignore[arg-type]
    await store.open()
    script = await begin(store)
    other = apsw.Connection(str(tmp_path / "s.db"))
    other.execute("BEGIN IMMEDIATE")
    commit = asyncio.ensure_future(script.commit(entries=[script.entry(1)]))
    longest, began = 0.0, time.monotonic()
    while time.monotonic() - began < 0.3:
        before = time.monotonic()
        await asyncio.sleep(0.005)
        longest = max(longest, time.monotonic() - before)
        assert await store.scan_entries(ROOT) == []
    assert not commit.done()
    other.execute("ROLLBACK")
    other.close()
    assert await commit == 2
    assert longest < 0.2
    await store.close()


async def test_after_an_open_outcome_nothing_more_is_stored(
    power: SqliteStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = await begin(power)
    assert power._writer is not None
    real = power._writer._commit

    def failing(before: tuple[int, int], stored: writer_module.Outcome) -> writer_module.Outcome:
        assert power._writer is not None
        return power._writer._commit_failed(apsw.IOError("the disk went away"), before)

    monkeypatch.setattr(power._writer, "_commit", failing)
    first, second = queue(script, power, 2)
    with pytest.raises(StorageUncertain) as caught:
        await first
    assert caught.value.certain == "unknown"
    with pytest.raises(StorageError):
        await second
    monkeypatch.setattr(power._writer, "_commit", real)
    script.seq = 1
    with pytest.raises(StorageRejected, match="open outcome"):
        await script.commit(entries=[script.entry(1)])


async def test_readers_do_not_keep_the_log_from_being_written_into_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "CHECKPOINT_PAGES", 20)
    store = SqliteStorage(tmp_path / "s.db", durability="process")
    await store.open()
    script = await begin(store)
    for _ in range(200):
        await script.commit(entries=[script.entry(1, data=b'"' + b"x" * 4000 + b'"')])
        await store.scan_entries(ROOT, limit=1)
        if store._checkpoint is not None:
            store._checkpoint.join()
    assert (tmp_path / "s.db-wal").stat().st_size < 60 * 4200
    assert (tmp_path / "s.db").stat().st_size > 100 * 4000
    await store.close()
    assert not (tmp_path / "s.db-wal").exists()


async def test_a_commit_ends_the_checkpoint_that_never_saw_the_end_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "CHECKPOINT_PAGES", 20)
    monkeypatch.setattr(store_module, "_checkpoint_file", lambda path: None)
    store = SqliteStorage(tmp_path / "s.db", durability="process")
    await store.open()
    script = await begin(store)
    for _ in range(200):
        await script.commit(entries=[script.entry(1, data=b'"' + b"x" * 4000 + b'"')])
        if store._checkpoint is not None:
            store._checkpoint.join()
    assert (tmp_path / "s.db-wal").stat().st_size < 60 * 4200
    await store.close()


async def test_an_update_leaves_a_large_input_alone(process: SqliteStorage, tmp_path: Path) -> None:
    script = await begin(process)
    task = script.task(1, input=b'"' + b"x" * 100_000 + b'"')
    await script.commit(tasks=created(task))
    before = (tmp_path / "s.db-wal").stat().st_size
    for step in range(10):
        await script.commit(tasks=updated(msgspec.structs.replace(task, status="running", state=b"%d" % step)))
    assert (tmp_path / "s.db-wal").stat().st_size - before < 10 * 4 * 4200


async def test_a_commit_of_an_unencodable_text_is_refused_whole(process: SqliteStorage) -> None:
    script = await begin(process)
    good, bad = script.entry(1), script.entry(1, kind="\ud800")
    with pytest.raises(StorageRejected):
        await process.commit(script.batch(entries=[good, bad]))
    wide = Revision(document=2**70, seq=2, base=True, version=1, body=b"1")  # type: ignore[arg-type]
    with pytest.raises(StorageRejected):
        await process.commit(script.batch(revisions=[wide]))
    assert await process.entry(good.id) is None
    await script.commit(entries=[script.entry(1)])


async def test_the_head_is_right_whether_records_tell_it_or_not(tmp_path: Path) -> None:
    """Where the newest entry tells the seq and the next id, the row of the head is not written."""
    path = tmp_path / "s.db"
    store = SqliteStorage(path, durability="process")
    await store.open()
    script = await begin(store)
    task, plain = script.task(1), script.entry(1)

    async def check() -> None:
        nonlocal store
        await store.close()
        store = SqliteStorage(path, durability="process")
        head = await store.open()
        assert (head.seq, head.next_id) == (script.seq, script.next_id)
        script.storage = store

    await script.commit(entries=[plain], tasks=created(task))
    await check()
    await script.commit(tasks=created(script.task(1)), entries=[script.entry(1)])
    await check()
    await script.commit(tasks=updated(msgspec.structs.replace(task, status="running")))
    await check()
    script.next_id += 5
    await script.commit(entries=[script.entry(1), script.entry(1)])
    await check()
    await script.commit(entries=[script.entry(1)], submissions=[script.submission(1)])
    await check()
    script.next_id += 3
    entries = [script.entry(1), script.entry(1)]
    await script.commit(entries=[*reversed(entries)])
    await check()
    late = script.entry(1)
    await script.commit(entries=[msgspec.structs.replace(late, id=EntryId(late.id - 6))], tasks=created(script.task(1)))
    await check()
    await script.commit(entries=[msgspec.structs.replace(script.entry(1), seq=1)])
    await check()
    await store.close()
