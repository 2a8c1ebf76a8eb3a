"""The file of lines: what stands in it, its lines one by one, readers beside an owner, rewriting."""

import asyncio
import json
import os
import shutil
import threading
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.base.errors import StorageCorrupt, StorageError, StorageReadOnly, StorageRejected
from perdure.base.ids import ConversationId, DocumentId, EntryId, TaskId
from perdure.storage.jsonl import rewrite
from perdure.storage.jsonl.store import JsonlStorage
from perdure.storage.memory import MemoryStorage
from perdure.storage.protocol import Durability
from perdure.storage.records import Batch, Blob, DocumentCopy, TaskWrite
from perdure.testing.dump import dump
from perdure.testing.storage_conformance import Script, created, updated

ROOT = ConversationId(1)
SET_2 = b'[{"op":"replace","path":"","value":2}]'


async def opened(path: Path, durability: Durability = "process") -> tuple[JsonlStorage, Script]:
    """An open store with the root conversation, if it is new."""
    store = JsonlStorage(path, durability=durability)
    head = await store.open()
    script = Script(store, seq=head.seq, next_id=head.next_id)
    if head.seq == 0:
        await script.commit(conversations=[script.conversation()])
    return store, script


def lines(path: Path) -> list[dict[str, Any]]:
    """The file as any program reads it."""
    return [json.loads(line) for line in path.read_text("utf-8").split("\n")[:-1]]


async def test_a_commit_is_one_line_of_json_that_people_can_read(tmp_path: Path) -> None:
    store, script = await opened(tmp_path / "s.jsonl")
    entry = script.entry(1, messages='[{"role":"user","content":"Größe?\u2028"}]'.encode(), data=b'{"a": 1}')
    await script.commit(entries=[entry], tasks=created(script.task(1)))
    await store.close()
    written = [line for line in lines(tmp_path / "s.jsonl") if "seq" in line and "epoch" not in line]
    assert [line["seq"] for line in written] == [1, 2]
    assert written[1]["entries"][0]["messages"] == [{"role": "user", "content": "Größe?\u2028"}]
    assert written[1]["entries"][0]["data"] == {"a": 1}
    assert written[1]["tasks"][0]["status"] == "pending"
    assert "Größe" in (tmp_path / "s.jsonl").read_text("utf-8")


@pytest.mark.parametrize("body", [b"", b"{", b"1,2", b" 1", b"1 ", b"[1,\n2]", b'"a\nb"', b'"\\ud800"', b"NaN", b"'a'"])
async def test_content_that_is_no_json_on_one_line_is_refused_whole(tmp_path: Path, body: bytes) -> None:
    store, script = await opened(tmp_path / "s.jsonl")
    size = (tmp_path / "s.jsonl").stat().st_size
    with pytest.raises(StorageRejected):
        await store.commit(Batch(2, 9, entries=[script.entry(1, data=body)]))
    assert (tmp_path / "s.jsonl").stat().st_size == size
    await script.commit(entries=[script.entry(1)])
    await store.close()


async def test_text_that_cannot_be_encoded_is_refused_whole(tmp_path: Path) -> None:
    store, script = await opened(tmp_path / "s.jsonl")
    with pytest.raises(StorageRejected):
        await store.commit(Batch(2, 9, entries=[script.entry(1, kind="half \ud800")]))
    await script.commit(entries=[script.entry(1)])
    await store.close()


@pytest.mark.parametrize("digest", ["../escape", "a/b", "", "A" * 64, "..", "a" * 200, "nul\0"])
async def test_a_digest_that_is_no_file_name_of_ours_is_refused(tmp_path: Path, digest: str) -> None:
    store, script = await opened(tmp_path / "s.jsonl")
    with pytest.raises(StorageRejected):
        await store.commit(script.batch(blobs=[Blob(digest, "text/plain", b"x")]))
    assert not (tmp_path / "s.jsonl.blobs").exists()
    await store.close()


async def test_a_blob_is_a_file_beside_the_lines_and_damage_to_it_is_told(tmp_path: Path) -> None:
    store, script = await opened(tmp_path / "s.jsonl")
    blob = Blob("ab" * 32, "image/png", b"\x89PNG")
    await script.commit(blobs=[blob])
    file = tmp_path / "s.jsonl.blobs" / blob.digest
    assert file.read_bytes() == blob.content
    assert await store.blob(blob.digest) == blob
    file.write_bytes(b"\x89PNg")
    with pytest.raises(StorageCorrupt, match="damaged"):
        await store.blob(blob.digest)
    file.unlink()
    with pytest.raises(StorageCorrupt, match="cannot be read"):
        await store.blob(blob.digest)
    await store.close()


async def test_a_copy_of_the_files_is_a_copy_of_the_session_also_while_it_is_open(tmp_path: Path) -> None:
    store, script = await opened(tmp_path / "s.jsonl")
    blob = Blob("ab" * 32, "image/png", b"\x89PNG")
    entry = script.entry(1)
    await script.commit(entries=[entry], blobs=[blob])
    shutil.copy(tmp_path / "s.jsonl", tmp_path / "copy.jsonl")
    shutil.copytree(tmp_path / "s.jsonl.blobs", tmp_path / "copy.jsonl.blobs")
    copy, _ = await opened(tmp_path / "copy.jsonl")
    assert await copy.entry(entry.id) == entry
    assert await copy.blob(blob.digest) == blob
    await copy.close()
    await store.close()


async def test_a_reader_follows_an_owner_at_work_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    store, script = await opened(path)
    reader = JsonlStorage(path, read_only=True)
    head = await reader.open()
    assert (head.seq, head.epoch) == (1, 1)
    for count in range(1, 20):
        await script.commit(entries=[script.entry(1)])
        assert len(await reader.scan_entries(ROOT)) == count
    before = path.read_bytes()
    with pytest.raises(StorageReadOnly):
        await reader.commit(Batch(21, 100))
    with pytest.raises(StorageReadOnly):
        reader.commit_now(Batch(21, 100))
    assert path.read_bytes() == before
    await store.close()
    assert len(await reader.scan_entries(ROOT)) == 19
    await reader.close()


async def test_a_reader_sees_only_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    store, script = await opened(path)
    await store.close()
    reader = JsonlStorage(path, read_only=True)
    await reader.open()
    again, script = await opened(path)
    await script.commit(entries=[script.entry(1)])
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert await reader.scan_entries(ROOT) == []
    path.write_bytes(whole)
    assert len(await reader.scan_entries(ROOT)) == 1
    await reader.close()
    await again.close()


def garbage(script: Script, task: Any, count: int) -> list[Batch]:
    """Commits that replace one value again and again."""
    return [
        Batch(
            script.seq + 1 + number,
            script.next_id,
            tasks=updated(msgspec.structs.replace(task, state=b'"%05d%s"' % (number, b"x" * 3000))),
        )
        for number in range(count)
    ]


async def rich(script: Script) -> Any:
    """A session with some of everything; returns a task to go on with."""
    store = script.storage
    task, waiting = script.task(1, input=b'{"given":1}'), script.task(1, status="sleeping", deadline=9)
    kept, latest = script.document(rewindable=True, key="k"), script.document(kind="live")
    await script.commit(
        tasks=created(task, waiting),
        entries=[script.entry(1, head=EntryId(1)), script.entry(1)],
        submissions=[script.submission(1, request_id="r")],
        documents=[kept, latest],
        revisions=[script.base(kept, b"1"), script.base(latest, b"[]")],
        blobs=[Blob("ab" * 32, "text/plain", b"bytes")],
    )
    await script.commit(revisions=[script.delta(kept, SET_2), script.delta(latest, SET_2)])
    target = script.document("conversation", 1, rewindable=True)
    await script.commit(copies=[DocumentCopy(kept.id, script.seq, target)])
    await script.commit(revisions=[script.base(kept, b"4"), script.base(latest, b"5")])
    fork = script.conversation(parent=ROOT, fork_entry=EntryId(script.next_id - 4), owner=task.id)
    await script.commit(conversations=[fork], entries=[script.entry(fork.id)])
    await script.commit(tasks=[TaskWrite(msgspec.structs.replace(waiting, status="terminal", deadline=None), False)])
    assert await store.document(target.id) is not None
    return task


async def test_a_file_of_garbage_is_rewritten_between_two_commits_and_says_the_same(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    store, script = await opened(path)
    reader = JsonlStorage(path, read_only=True)
    await reader.open()
    shadow = MemoryStorage()
    await shadow.open()
    await Script(shadow).commit(conversations=[Script(shadow).conversation()])
    task, _ = await rich(script), await rich(Script(shadow, seq=1, next_id=2))
    sizes = []
    for batch in garbage(script, task, 800):
        await store.commit(batch)
        await shadow.commit(batch)
        sizes.append(path.stat().st_size)
    assert max(sizes) < 1.2 * rewrite.LEAST_BYTES
    assert sum(after < before for before, after in pairwise(sizes)) >= 2
    assert await dump(store) == await dump(shadow) == await dump(reader)
    await store.close()
    again = JsonlStorage(path)
    head = await again.open()
    assert (head.seq, head.epoch) == (script.seq + 800, 2)
    assert await dump(again) == await dump(shadow)
    assert await again.blob("ab" * 32) is not None
    assert sorted(os.listdir(tmp_path)) == ["s.jsonl", "s.jsonl.blobs", "s.jsonl.lock"]
    await again.close()
    await reader.close()


async def test_an_open_rewrites_as_well_and_removes_what_a_crash_left_of_one(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    store, script = await opened(path)
    task = await rich(script)
    limit, rewrite.LEAST_BYTES = rewrite.LEAST_BYTES, 10**9  # type: ignore[misc]
    try:
        for batch in garbage(script, task, 400):
            await store.commit(batch)
        full = await dump(store)
        await store.close()
    finally:
        rewrite.LEAST_BYTES = limit  # type: ignore[misc]
    assert path.stat().st_size > limit
    (tmp_path / "s.jsonl.new").write_bytes(b"half a file")
    again = JsonlStorage(path)
    await again.open()
    assert path.stat().st_size < 100_000
    assert not (tmp_path / "s.jsonl.new").exists()
    assert await dump(again) == full
    await again.close()


async def test_a_rewriting_without_room_leaves_the_file_and_commits_go_on(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    store, script = await opened(path)
    task = await rich(script)
    (tmp_path / "s.jsonl.new").mkdir()  # the new file cannot be made
    for batch in garbage(script, task, 700):
        await store.commit(batch)
    assert path.stat().st_size > rewrite.LEAST_BYTES
    (tmp_path / "s.jsonl.new").rmdir()
    full = await dump(store)
    await store.close()
    again = JsonlStorage(path)
    await again.open()
    assert await dump(again) == full
    await again.close()


async def test_reads_go_on_while_a_file_is_rewritten_and_a_cancelled_commit_leaves_it_whole(tmp_path: Path) -> None:
    store, script = await opened(tmp_path / "s.jsonl")
    task = await rich(script)
    batches = garbage(script, task, 400)
    for batch in batches:
        if not store.commit_now(batch):
            break
    commit = asyncio.create_task(store.commit(batch))
    await asyncio.sleep(0)
    found = await store.task(task.id)
    assert found is not None
    assert found.state.startswith(b'"%05d' % (batch.seq - script.seq - 2))
    commit.cancel()
    with pytest.raises(asyncio.CancelledError):
        await commit
    assert await store.commit(batch) == batch.seq
    await store.close()


async def test_a_cancelled_commit_is_stored_all_the_same_once_it_is_written(tmp_path: Path) -> None:
    store, script = await opened(tmp_path / "s.jsonl", "power")
    store._flush_seconds = 1.0  # a slow disk: flushes go to the thread
    commit = asyncio.create_task(store.commit(script.batch(entries=[script.entry(1)])))
    await asyncio.sleep(0)
    commit.cancel()
    with pytest.raises(asyncio.CancelledError):
        await commit
    script.seq += 1
    await script.commit(entries=[script.entry(1)])
    assert len(await store.scan_entries(ROOT)) == 2
    await store.close()


async def test_an_unflushed_commit_is_not_seen(tmp_path: Path) -> None:
    store, script = await opened(tmp_path / "s.jsonl", "power")
    store._flush_seconds = 1.0
    commit = asyncio.create_task(store.commit(script.batch(entries=[script.entry(1)])))
    await asyncio.sleep(0)
    assert await store.scan_entries(ROOT) == []
    await commit
    assert len(await store.scan_entries(ROOT)) == 1
    await store.close()


async def test_a_failed_flush_is_uncertain_and_closes_the_line(tmp_path: Path) -> None:
    store, script = await opened(tmp_path / "s.jsonl", "power")
    assert store._file is not None
    descriptor, store._file._descriptor = store._file._descriptor, os.open("/dev/null", os.O_RDONLY)
    os.close(descriptor)
    with pytest.raises(StorageError):
        await script.commit(entries=[script.entry(1)])
    await store.close()
    again = JsonlStorage(tmp_path / "s.jsonl")
    assert (await again.open()).seq == 1
    await again.close()


@pytest.mark.parametrize("durability", ["power", "process"])
async def test_nothing_stays_open_after_a_close(tmp_path: Path, durability: Durability) -> None:
    async def use() -> None:
        store, script = await opened(tmp_path / "s.jsonl", durability)
        reader = JsonlStorage(tmp_path / "s.jsonl", read_only=True)
        await reader.open()
        await script.commit(entries=[script.entry(1)])
        await store.close()
        await reader.close()

    await use()
    before, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    for _ in range(10):
        await use()
    assert (len(os.listdir("/proc/self/fd")), threading.active_count()) == (before, threads)


async def test_a_failed_open_lets_go_of_everything(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"foreign\n")
    for read_only in (False, True):
        store = JsonlStorage(path, read_only=read_only)
        with pytest.raises(StorageCorrupt):
            await store.open()
        assert len(os.listdir("/proc/self/fd")) == before


def in_a_child(work: Callable[[], object]) -> int:
    """What a forked process ends with: 7 if the store refused its work."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except StorageError:
            os._exit(7)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


async def test_a_forked_child_has_no_part_in_its_parents_store(tmp_path: Path) -> None:
    store, script = await opened(tmp_path / "s.jsonl")
    assert in_a_child(lambda: store.commit_now(script.batch())) == 7
    await script.commit(entries=[script.entry(1)])
    await store.close()


async def test_a_task_keeps_the_input_that_an_older_line_gives(tmp_path: Path) -> None:
    store, script = await opened(tmp_path / "s.jsonl")
    task = script.task(1, input=b'"' + b"x" * 5000 + b'"')
    await script.commit(tasks=created(task))
    grown = (tmp_path / "s.jsonl").stat().st_size
    for _ in range(10):
        await script.commit(tasks=updated(task))
    assert (tmp_path / "s.jsonl").stat().st_size - grown < 5000
    assert await store.task(task.id) == task
    ended = msgspec.structs.replace(task, status="terminal")
    await script.commit(tasks=updated(ended))
    await store.close()
    again, _ = await opened(tmp_path / "s.jsonl")
    assert await again.task(TaskId(task.id)) == ended
    assert await again.document(DocumentId(1)) is None
    await again.close()


@pytest.mark.slow
async def test_an_open_keeps_places_and_no_contents_in_memory(tmp_path: Path) -> None:
    store, script = await opened(tmp_path / "s.jsonl")
    for _ in range(30):
        await script.commit(entries=[script.entry(1, data=b'"' + b"x" * 1000 + b'"') for _ in range(1000)])
    await store.close()
    again = JsonlStorage(tmp_path / "s.jsonl")
    tracemalloc.start()
    try:
        await again.open()
        kept, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 60 * 30_000
    assert most < 10_000_000  # a line of a thousand entries and what is read ahead, not the file of 32 MB
    assert len(await again.scan_entries(ROOT, after=EntryId(20_000), limit=10)) == 10
    await again.close()
