"""Places and files that hold no session for this code: refused with clear words, and left as they were."""

import hashlib
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

import apsw
import pytest

from perdure import Error, Harness, SessionPoisoned, StorageCorrupt, StorageError, StorageReadOnly, TooNew, Unanswered
from perdure.storage.sqlite.connect import SCHEMA_VERSION
from tests.agent.kit import MODEL, ask
from tests.harness.trouble import Shop, caught, files_of, mount, unmount


def digests(folder: Path) -> dict[str, str]:
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir() if file.suffix != ".lock"
    }


@pytest.mark.slow
@pytest.mark.parametrize("what", ["file", "folder"])
async def test_what_may_not_be_written_is_refused_and_left_as_it_was(tmp_path: Path, what: str) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    async with Shop().harness(disk / "s.db", "power") as harness:
        await harness.root(model=MODEL)
    place = disk if what == "folder" else disk / "s.db"
    before = digests(disk)
    mount(place, "--bind", str(place))
    try:
        mount(place, "-o", "remount,ro,bind")
        error = await caught(Harness.open(disk / "s.db"))
        assert digests(disk) == before
    finally:
        unmount(place)
    assert isinstance(error, StorageReadOnly), error
    assert str(disk) in error.what
    assert error.hint
    async with Shop().harness(disk / "s.db", "power") as harness:
        assert (await (await harness.root()).agent()).model == MODEL


async def test_a_folder_that_is_not_there_is_named_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"no folder .*/missing") as found:
        await Harness.open(tmp_path / "missing" / "s.db")
    assert found.value.hint == "create it first"
    with pytest.raises(StorageError, match="is a folder"):
        await Harness.open(tmp_path)
    assert files_of(tmp_path) == []


@pytest.mark.parametrize("name", ["", "a\0b", "sqlite:a%00b.db", "x" * 300, "\ud800.db"])
async def test_a_path_that_cannot_be_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    assert isinstance(await caught(Harness.open(name)), Error)
    assert files_of(tmp_path) == []


def read(path: Path) -> bytes:
    return path.read_bytes()


def write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


async def make_foreign(path: Path) -> None:
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE theirs(x)")
    other.close()


async def make_garbage(path: Path) -> None:
    write(path, b"not a database at all\n" * 500)


async def make_truncated(path: Path) -> None:
    async with Shop().harness(path, "power") as harness:
        await ask(await harness.root(model=MODEL), "pay")
    content = read(path)
    write(path, content[: len(content) // 2])


async def make_newer(path: Path) -> None:
    async with Shop().harness(path, "power") as harness:
        await harness.root(model=MODEL)
    newer = apsw.Connection(str(path))
    newer.pragma("user_version", SCHEMA_VERSION + 1)
    newer.close()


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (make_garbage, StorageCorrupt, "no store of ours"),
        (make_foreign, StorageCorrupt, "another program"),
        (make_truncated, StorageCorrupt, "cut off"),
        (make_newer, TooNew, "newer version"),
    ],
)
async def test_a_file_that_is_no_session_for_this_code_is_refused_and_left_as_it_was(
    tmp_path: Path, make: Callable[[Path], Awaitable[None]], kind: type[Error], words: str
) -> None:
    await make(tmp_path / "s.db")
    before = digests(tmp_path)
    error = await caught(Harness.open(tmp_path / "s.db"))
    assert type(error) is kind
    assert words in str(error)
    assert digests(tmp_path) == before


async def test_damage_in_the_middle_ends_the_wait_and_does_not_hang(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with Shop().harness(path, "power") as harness:
        await ask(await harness.root(model=MODEL), "pay")
    content = bytearray(read(path))
    pages = range(0, len(content), 4096)
    at = next(at for at in pages if content[at + 4 : at + 4096] == b"x" * 4092)  # a page of the long result only
    content[at : at + 4096] = b"\xa5" * 4096
    write(path, bytes(content))
    async with Shop().harness(path, "power") as harness:
        root = await harness.root()
        error = await caught(ask(root, "and then?"))
        assert isinstance(error, StorageCorrupt | SessionPoisoned | Unanswered), error
        assert "damaged" in str(error)
