"""Files that are damaged, foreign, newer, full or not to be written: told clearly, and left as they were."""

import contextlib
import hashlib
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from perdure.base.errors import (
    Error,
    StorageCorrupt,
    StorageError,
    StorageFull,
    StorageReadOnly,
    TooNew,
)
from perdure.base.ids import ConversationId
from perdure.storage.records import Batch
from perdure.storage.sqlite.connect import APPLICATION_ID, SCHEMA_VERSION
from perdure.storage.sqlite.store import SqliteStorage
from perdure.testing.storage_conformance import Script

ROOT = ConversationId(1)
NOBODY = 65534


def digest(folder: Path) -> dict[str, str]:
    """Every file but the lock."""
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.iterdir())
        if file.suffix != ".lock"
    }


async def filled(path: Path, entries: int = 50) -> None:
    """A closed store with some entries."""
    store = SqliteStorage(path, durability="process")
    await store.open()
    script = Script(store)
    await script.commit(conversations=[script.conversation()])
    for _ in range(entries):
        await script.commit(entries=[script.entry(1, data=b'"' + b"x" * 1000 + b'"')])
    await store.close()


async def refused(path: Path, error: type[Error]) -> str:
    """Both kinds of openers refuse the file and leave everything as it was. Gives the owner's message."""
    before = digest(path.parent)
    with pytest.raises(error) as caught:
        await SqliteStorage(path).open()
    with pytest.raises(error):
        await SqliteStorage(path, read_only=True).open()
    assert digest(path.parent) == before
    return str(caught.value)


@pytest.mark.parametrize("content", [b"x", b"\0" * 5000, b"not a database at all\n" * 100, os.urandom(20_000)])
async def test_garbage_is_refused_untouched(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "s.db").write_bytes(content)
    await refused(tmp_path / "s.db", StorageCorrupt)


@pytest.mark.parametrize("log", [False, True])
async def test_the_database_of_another_program_is_refused_untouched(tmp_path: Path, log: bool) -> None:
    path = tmp_path / "s.db"
    other = sqlite3.connect(path)
    if log:
        other.execute("PRAGMA journal_mode=WAL")
    other.execute("CREATE TABLE theirs(x)")
    other.execute("INSERT INTO theirs VALUES (1)")
    other.commit()
    if not log:
        other.close()
    assert "another program" in await refused(path, StorageCorrupt)
    other.close()


async def test_a_store_of_a_newer_version_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await filled(path)
    newer = apsw.Connection(str(path))
    newer.pragma("user_version", SCHEMA_VERSION + 1)
    newer.close()
    assert "newer version" in await refused(path, TooNew)


async def test_a_version_that_only_the_log_knows_is_respected(tmp_path: Path) -> None:
    path = tmp_path / "live" / "s.db"
    path.parent.mkdir()
    await filled(path)
    newer = apsw.Connection(str(path))
    newer.wal_autocheckpoint(0)
    newer.pragma("user_version", SCHEMA_VERSION + 1)
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("s.db", "s.db-wal"):
        shutil.copy(path.parent / name, copy / name)
    newer.close()
    main = (copy / "s.db").read_bytes()
    with pytest.raises(TooNew):
        await SqliteStorage(copy / "s.db").open()
    assert (copy / "s.db").read_bytes() == main


async def test_a_truncated_file_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await filled(path)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)
    await refused(path, StorageCorrupt)


async def test_damage_in_the_middle_is_told_by_the_read_that_meets_it(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await filled(path, entries=100)
    content = bytearray(path.read_bytes())
    for start in range(8 * 4096, len(content), 4096):
        content[start : start + 4096] = b"\xa5" * 4096
    path.write_bytes(content)
    store = SqliteStorage(path)
    with pytest.raises(StorageCorrupt):
        await read_all(store)
    await store.close()


async def read_all(store: SqliteStorage) -> None:
    """Open and read everything."""
    await store.open()
    await store.scan_entries(ROOT, limit=1000)


async def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    (tmp_path / "s.db").touch()
    store = SqliteStorage(tmp_path / "s.db")
    assert (await store.open()).seq == 0
    await store.close()


async def test_a_creation_cut_short_is_completed(tmp_path: Path) -> None:
    begun = apsw.Connection(str(tmp_path / "s.db"))
    begun.pragma("application_id", APPLICATION_ID)
    begun.pragma("user_version", SCHEMA_VERSION)
    begun.close()
    with pytest.raises(StorageCorrupt):
        await SqliteStorage(tmp_path / "s.db", read_only=True).open()
    store = SqliteStorage(tmp_path / "s.db")
    assert (await store.open()).epoch == 1
    await store.close()


async def test_read_only_openers_see_an_owner_at_work_and_never_stop_it(tmp_path: Path) -> None:
    owner, reader = SqliteStorage(tmp_path / "s.db"), SqliteStorage(tmp_path / "s.db", read_only=True)
    await owner.open()
    script = Script(owner)
    await script.commit(conversations=[script.conversation()])
    head = await reader.open()
    assert (head.seq, head.epoch) == (1, 1)
    assert not reader.pipelined
    for count in range(1, 30):
        await script.commit(entries=[script.entry(1, kind=f"kind-{count}")])
        assert len(await reader.scan_entries(ROOT)) == count
    with pytest.raises(StorageReadOnly):
        await reader.commit(Batch(31, 100))
    await owner.close()
    assert len(await reader.scan_entries(ROOT)) == 29
    await reader.close()
    again = SqliteStorage(tmp_path / "s.db")
    assert (await again.open()).epoch == 2
    await again.close()


async def test_a_read_only_opener_changes_no_byte(tmp_path: Path) -> None:
    await filled(tmp_path / "s.db")
    before = (tmp_path / "s.db").read_bytes()
    reader = SqliteStorage(tmp_path / "s.db", read_only=True)
    await reader.open()
    assert len(await reader.scan_entries(ROOT)) == 50
    await reader.close()
    assert (tmp_path / "s.db").read_bytes() == before


NOT_WRITABLE = """
    import asyncio, concurrent.futures.thread, os, sys
    from perdure.base.errors import StorageReadOnly
    from perdure.storage.open import open_storage
    open_storage(sys.argv[1])  # its code is loaded while that may still be read
    if os.getuid() == 0:
        os.setgroups([]); os.setgid({nobody}); os.setuid({nobody})

    async def main(path):
        try:
            await open_storage(path).open()
        except StorageReadOnly as error:
            print("refused:", error.code)
        reader = open_storage(path, read_only=True)
        await reader.open()
        print("read:", len(await reader.scan_entries(1)))
        await reader.close()

    asyncio.run(main(sys.argv[1]))
"""


def as_nobody(path: Path) -> list[str]:
    """What a process without the right to write says."""
    code = textwrap.dedent(NOT_WRITABLE).format(nobody=NOBODY)
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def set_mode(path: Path, mode: int) -> None:
    """What may be done with a file or folder."""
    path.chmod(mode)


@pytest.fixture
def open_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder that another user may enter, whatever the test folders' modes are."""
    for parent in (tmp_path, *tmp_path.parents):
        if parent.owner() == tmp_path.owner() and parent != Path(parent.anchor) and not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o011)
    yield tmp_path
    tmp_path.chmod(0o755)


@pytest.mark.slow
async def test_a_folder_that_may_not_be_written_can_be_read(open_folder: Path) -> None:
    path = open_folder / "s.db"
    await filled(path, entries=3)
    (open_folder / "s.db.lock").unlink()
    set_mode(path, 0o444)
    set_mode(open_folder, 0o555)
    assert as_nobody(path) == ["refused: storage_read_only", "read: 3"]


@pytest.mark.slow
async def test_a_live_store_in_a_folder_that_may_not_be_written_can_be_read(open_folder: Path) -> None:
    path = open_folder / "s.db"
    owner = SqliteStorage(path)
    await owner.open()
    script = Script(owner)
    await script.commit(conversations=[script.conversation()])
    await script.commit(entries=[script.entry(1)])
    set_mode(open_folder, 0o555)
    assert as_nobody(path) == ["refused: storage_read_only", "read: 1"]
    set_mode(open_folder, 0o755)
    await owner.close()


@pytest.fixture
def small_files() -> Iterator[None]:
    """Files may not grow beyond a bound, which a program sees as a disk without room."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("durability", ["power", "process"])
async def test_a_commit_without_room_had_no_effect_and_the_next_may_fit(
    tmp_path: Path, durability: str, small_files: None
) -> None:
    store = SqliteStorage(tmp_path / "s.db", durability=durability)  # type: ignore[arg-type]
    await store.open()
    await fill_up(store)
    await store.close()


async def fill_up(store: SqliteStorage) -> None:
    """Commit until there is no room; the store must then stand exactly where the last good commit left it."""
    script = Script(store)
    await script.commit(conversations=[script.conversation()])
    with pytest.raises(StorageFull) as caught:
        await write_for_ever(script)
    assert caught.value.certain == "not_stored"
    assert len(await store.scan_entries(ROOT, limit=2000)) == script.seq - 1
    with pytest.raises(StorageFull):
        await script.commit(entries=[script.entry(1, data=b'"' + b"x" * 200_000 + b'"')])
    assert len(await store.scan_entries(ROOT, limit=2000)) == script.seq - 1


async def write_for_ever(script: Script) -> None:
    """Commit until it fails."""
    while True:
        await script.commit(entries=[script.entry(1, data=b'"' + b"x" * 30_000 + b'"')])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = os.getuid() == 0 and shutil.which("mount") is not None
    if mounted:
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1600k", "tmpfs", str(disk)], check=False)
        mounted = done.returncode == 0
    if not mounted:
        pytest.skip("mounting a small disk needs root")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["power", "process"])
async def test_a_full_disk_refuses_and_goes_on_when_there_is_room(small_disk: Path, durability: str) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"\0" * 1_000_000)
    store = SqliteStorage(small_disk / "s.db", durability=durability)  # type: ignore[arg-type]
    await store.open()
    await fill_up(store)
    ballast.unlink()
    entries = await store.scan_entries(ROOT, limit=2000)
    script = Script(store, seq=len(entries) + 1, next_id=10_000)
    await script.commit(entries=[script.entry(1)])
    await store.close()
    again = SqliteStorage(small_disk / "s.db")
    assert (await again.open()).seq == script.seq
    await again.close()


def fill(ballast: Path) -> None:
    """Take all the room there is."""
    written = 1
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while written:
            written = file.write(b"\0" * 4096)


async def test_a_lock_file_without_room_is_an_error_and_leaves_nothing_open(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    fill(ballast)
    with pytest.raises(StorageError):
        await SqliteStorage(small_disk / "s.db").open()
    ballast.unlink()
    store = SqliteStorage(small_disk / "s.db")
    await store.open()
    await store.close()
