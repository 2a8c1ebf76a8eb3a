"""Writes to this machine's files are whole or not at all, whatever stops them."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.env.errors import EnvError, NoSpace, NotAllowed
from perdure.env.local import LocalEnv

WRITER = """
import asyncio, sys
from perdure.env.local import LocalEnv

async def main():
    env = LocalEnv(sys.argv[1])
    while True:
        for letter in b"ab":
            await env.write("file", bytes([letter]) * 3_000_000)

asyncio.run(main())
"""


@pytest.mark.slow
def test_a_kill_in_the_middle_of_writes_leaves_a_whole_file_and_hardly_anything_else(tmp_path: Path) -> None:
    for number in range(6):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], env=os.environ | {"PYTHONPATH": "src"})
        while not (tmp_path / "file").exists():
            assert writer.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            writer.wait(0.05 + number * 0.013)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        data = (tmp_path / "file").read_bytes()
        assert data in (b"a" * 3_000_000, b"b" * 3_000_000)
        for left in tmp_path.glob(".perdure-*"):  # between naming and renaming; it is whole then
            assert left.stat().st_size == 3_000_000
        (tmp_path / "file").unlink()


async def test_a_disk_without_room_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    env = LocalEnv(tmp_path)
    await env.write("file", b"old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(NoSpace, match="larger than a file may be"):
            await env.write("file", b"new" * 100_000)
        with pytest.raises(NoSpace, match="larger than a file may be"):
            await env.write("other", b"new" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert [name for name, _ in await env.list(".")] == ["file"]
    assert await env.read("file") == b"old"


async def test_a_write_without_nameless_files_is_as_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "O_TMPFILE", os.O_DIRECTORY | os.O_EXCL)  # what a file system that lacks them refuses
    env = LocalEnv(tmp_path)
    for data in (b"one", b"two"):
        await env.write("file", data)
    assert [name for name, _ in await env.list(".")] == ["file"]
    assert await env.read("file") == b"two"


async def test_a_new_file_has_the_mode_that_the_umask_leaves(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        await LocalEnv(tmp_path).write("file", b"")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
async def test_what_may_not_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "file").chmod(0o444)
    with pytest.raises(NotAllowed):
        await LocalEnv(tmp_path).write("file", b"new")
    assert (tmp_path / "file").read_text() == "old"


async def test_devices_are_neither_read_nor_replaced() -> None:
    env = LocalEnv("/")
    with pytest.raises(EnvError, match="no regular file"):
        await env.read("/dev/zero", limit=10)
    with pytest.raises(EnvError, match="no regular file"):
        await env.write("/dev/null", b"x")


async def test_files_of_the_kernel_that_tell_no_size_are_read() -> None:
    assert b"Linux" in await LocalEnv("/").read("/proc/version")


async def test_a_circle_of_links_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(EnvError):
        await LocalEnv(tmp_path).read("a")
    with pytest.raises(EnvError):
        await LocalEnv(tmp_path).write("a", b"")


async def test_home_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    await LocalEnv("/").write("~/file", b"x")
    assert (tmp_path / "file").read_bytes() == b"x"
