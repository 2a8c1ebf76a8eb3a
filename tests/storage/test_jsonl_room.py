"""Files of lines where there is no room, no right to write, another owner, or a process that is killed."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from perdure.base.errors import StorageFull, StorageInUse
from perdure.storage.jsonl.store import JsonlStorage
from perdure.storage.protocol import Durability
from perdure.testing.storage_conformance import Script
from tests.storage.jsonl_kit import ROOT, filled
from tests.storage.test_faults import as_nobody, open_folder, set_mode, small_disk, small_files

__all__ = ["open_folder", "small_disk", "small_files"]


async def test_a_second_owner_is_refused_and_a_link_is_the_same_store(tmp_path: Path) -> None:
    store = JsonlStorage(tmp_path / "s.jsonl")
    await store.open()
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "s.jsonl")
    for name in ("s.jsonl", "link.jsonl"):
        with pytest.raises(StorageInUse) as caught:
            await JsonlStorage(tmp_path / name).open()
        assert caught.value.owner["pid"] == os.getpid()
    await store.close()


@pytest.mark.slow
async def test_a_folder_that_may_not_be_written_can_be_read(open_folder: Path) -> None:
    path = open_folder / "s.jsonl"
    await filled(path, entries=3)
    (open_folder / "s.jsonl.lock").unlink()
    set_mode(path, 0o444)
    set_mode(open_folder, 0o555)
    assert as_nobody(path) == ["refused: storage_read_only", "read: 3"]


async def fill_up(store: JsonlStorage) -> Script:
    """Commit until there is no room; the store must then stand exactly where the last good commit left it."""
    script = Script(store)
    await script.commit(conversations=[script.conversation()])
    large = b'"' + b"x" * 30_000 + b'"'
    with pytest.raises(StorageFull) as caught:
        await write_for_ever(script, large)
    assert caught.value.certain == "not_stored"
    assert len(await store.scan_entries(ROOT, limit=2000)) == script.seq - 1
    with pytest.raises(StorageFull):
        await script.commit(entries=[script.entry(1, data=large)])
    assert len(await store.scan_entries(ROOT, limit=2000)) == script.seq - 1
    return script


@pytest.mark.parametrize("durability", ["power", "process"])
async def test_a_commit_without_room_had_no_effect_and_the_next_may_fit(
    tmp_path: Path, durability: Durability, small_files: None
) -> None:
    store = JsonlStorage(tmp_path / "s.jsonl", durability=durability)
    await store.open()
    script = await fill_up(store)
    await script.commit(entries=[script.entry(1)])
    await store.close()
    again = JsonlStorage(tmp_path / "s.jsonl")
    assert (await again.open()).seq == script.seq
    await again.close()


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["power", "process"])
async def test_a_full_disk_refuses_and_goes_on_when_there_is_room(small_disk: Path, durability: Durability) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"\0" * 1_000_000)
    store = JsonlStorage(small_disk / "s.jsonl", durability=durability)
    await store.open()
    script = await fill_up(store)
    ballast.unlink()
    await script.commit(entries=[script.entry(1)])
    await store.close()
    again = JsonlStorage(small_disk / "s.jsonl")
    assert (await again.open()).seq == script.seq
    assert len(await again.scan_entries(ROOT, limit=2000)) == script.seq - 1
    await again.close()


async def write_for_ever(script: Script, data: bytes) -> None:
    """Commit until it fails."""
    while True:
        await script.commit(entries=[script.entry(1, data=data)])


WRITE = """
    import asyncio, sys
    from perdure.storage.jsonl.store import JsonlStorage
    from perdure.storage.records import Blob
    from perdure.testing.storage_conformance import Script, created

    async def main(path, durability):
        store = JsonlStorage(path, durability=durability)
        head = await store.open()
        script = Script(store, seq=head.seq, next_id=head.next_id)
        if head.seq == 0:
            await script.commit(conversations=[script.conversation()])
        while True:
            entries = [script.entry(1, data=b'"' + b"x" * 2000 + b'"') for _ in range(3)]
            blob = Blob(f"{script.seq:064x}", "text/plain", b"%d" % script.seq)
            await script.commit(entries=entries, tasks=created(script.task(1)), blobs=[blob])
            print(script.seq, flush=True)

    asyncio.run(main(*sys.argv[1:]))
"""


def killed_after(commits: int, path: Path, durability: str) -> int:
    """Let a process commit, kill it at no particular moment, and give the last commit that it acknowledged."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WRITE), str(path), durability],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)},
    )
    assert process.stdout is not None
    said = [process.stdout.readline() for _ in range(commits)]
    process.kill()
    rest, _ = process.communicate()
    return max(int(line) for line in [*said, *rest.split("\n")[:-1]])


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["power", "process"])
async def test_acknowledged_commits_survive_kill_9(tmp_path: Path, durability: str) -> None:
    path = tmp_path / "s.jsonl"
    for commits in (1, 40, 100):
        acknowledged = killed_after(commits, path, durability)
        store = JsonlStorage(path)
        head = await store.open()
        assert acknowledged <= head.seq <= acknowledged + 1
        found = await store.scan_entries(ROOT, limit=100_000)
        tasks = await store.scan_live(limit=100_000)
        assert len(found) == 3 * len(tasks)
        assert len({entry.seq for entry in found}) == len(tasks)
        for seq in {entry.seq for entry in found}:
            assert await store.blob(f"{seq - 1:064x}") is not None
        script = Script(store, seq=head.seq, next_id=head.next_id)
        await script.commit()
        await store.close()
