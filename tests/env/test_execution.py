"""Commands that make it hard: faster than their reader, without a launcher, with others at their pipes."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from perdure.env import containment, files
from perdure.env.errors import BadCommand, EnvError, FileNotThere, NotFolder
from perdure.env.execution import CHUNKS_AT_A_STRETCH
from perdure.env.local import LocalEnv
from perdure.env.protocol import ExecEnd

THREADED = """
import asyncio, sys, threading
from perdure.env.local import LocalEnv

def start():
    global run
    run = loop.run_until_complete(LocalEnv(sys.argv[1]).exec("sleep 0.5; echo > late"))

loop = asyncio.new_event_loop()
thread = threading.Thread(target=start)
thread.start()
thread.join()

async def finish():
    async with run:
        print((await run.wait()).code)
    await asyncio.get_running_loop().shutdown_default_executor()

loop.run_until_complete(finish())
loop.close()
"""


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def ended(env: LocalEnv, command: str, *, tag: str | None = None) -> tuple[bytes, ExecEnd]:
    out = b""
    async with await env.exec(command, tag=tag) as run:
        async for chunk in run:
            out += chunk.data
        return out, await run.wait()


@pytest.mark.slow
async def test_a_flood_of_output_lets_others_have_their_turn(tmp_path: Path) -> None:
    """The reader is the slow side here, so there is always something to read, and reading alone would never pause."""
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.ensure_future(other())
    longest = stretch = seen = 0
    async with (
        asyncio.timeout(10),
        await LocalEnv(tmp_path).exec("cat /dev/zero & cat /dev/zero >&2", timeout=0.5) as run,
    ):
        async for _ in run:
            stretch = stretch + 1 if turns == seen else 0
            seen, longest = turns, max(longest, stretch)
            if longest > 100:
                break
            time.sleep(0.002)  # noqa: ASYNC251  # the work on a chunk: longer than the command takes to fill the pipe
        assert (await run.wait()).timed_out
    beside.cancel()
    assert 0 < longest <= CHUNKS_AT_A_STRETCH


@pytest.mark.slow
async def test_a_stranger_who_writes_into_the_pipe_for_ever_does_not_keep_the_command_open(tmp_path: Path) -> None:
    async with asyncio.timeout(10), await LocalEnv(tmp_path).exec("echo $$; sleep 0.3") as run:
        pid = int((await anext(aiter(run))).data)
        with open(f"/proc/{pid}/fd/1", "wb") as pipe:  # noqa: ASYNC230
            stranger = await asyncio.create_subprocess_exec("cat", "/dev/zero", stdout=pipe)
        async for _ in run:
            time.sleep(0.002)  # noqa: ASYNC251  # so that the stranger always has written more
        assert (await run.wait()).code == 0
    assert await stranger.wait() == -signal.SIGPIPE


@pytest.mark.slow
async def test_a_survivor_that_holds_the_pipe_does_not_keep_the_command_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even root can have a process that resists, so the launcher dies, and nobody looks for what it left."""
    monkeypatch.setattr(containment, "end_execution", lambda mark, session: ("7 (stuck)",))
    async with asyncio.timeout(10):
        async with await LocalEnv(tmp_path).exec("sleep 1111 & echo $!; kill -9 $PPID") as run:
            pids = [int(chunk.data) async for chunk in run]
            assert (await run.wait()).survivors == ("7 (stuck)",)
    assert runs(pids[0])
    os.kill(pids[0], signal.SIGKILL)


@pytest.mark.slow
async def test_a_killed_launcher_costs_only_its_own_execution(tmp_path: Path) -> None:
    """Two commands of one call share its tag; the end of one is not the end of the other."""
    env = LocalEnv(tmp_path)
    other = asyncio.ensure_future(ended(env, "until [ -e go ]; do sleep 0.02; done; echo done", tag="both"))
    _, end = await ended(env, "env -i sleep 1111 & kill -9 $PPID; sleep 1111", tag="both")
    assert (end.code, end.signal, end.survivors) == (None, signal.SIGKILL, ())
    await env.write("go", b"")
    out, end = await other
    assert (out, end.code) == (b"done\n", 0)


@pytest.mark.slow
async def test_a_killed_launcher_leaves_nothing_of_its_session_even_without_a_mark(tmp_path: Path) -> None:
    async with await LocalEnv(tmp_path).exec("env -i sleep 1111 & echo $!; kill -9 $PPID; sleep 1111") as run:
        pid = int((await anext(aiter(run))).data)
        await run.wait()
    assert not runs(pid)


async def test_what_ends_by_itself_with_the_command_may_finish(tmp_path: Path) -> None:
    await ended(LocalEnv(tmp_path), "echo all > >(sleep 0.03; cat > copy)")
    assert (tmp_path / "copy").read_bytes() == b"all\n"


@pytest.mark.slow
async def test_leftovers_are_asked_before_they_are_killed(tmp_path: Path) -> None:
    server = "(trap 'echo bye > trace; exit' TERM; echo up > up; while :; do sleep 0.02; done) > /dev/null 2>&1"
    await ended(LocalEnv(tmp_path), f'setsid bash -c "{server}" & until [ -e up ]; do sleep 0.01; done')
    assert (tmp_path / "trace").read_text() == "bye\n"


@pytest.mark.parametrize(
    ("command", "says"),
    [("echo a\0b", "null"), ("echo \ud800", "no valid Unicode"), ("true " + "x" * 200_000, "longer than the system")],
)
async def test_a_command_that_cannot_be_is_refused_in_words_about_the_command(
    tmp_path: Path, command: str, says: str
) -> None:
    with pytest.raises(BadCommand, match=says) as caught:
        await LocalEnv(tmp_path).exec(command)
    assert str(tmp_path) not in str(caught.value)


async def test_a_folder_that_cannot_be_entered_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileNotThere, match="nowhere does not exist"):
        await LocalEnv(tmp_path).exec("true", cwd="nowhere")
    with pytest.raises(NotFolder, match="file is not a folder"):
        await LocalEnv(tmp_path).exec("true", cwd="file")


async def test_a_machine_without_room_for_a_process_is_not_blamed_on_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", full)
    with pytest.raises(EnvError, match="cannot be started now") as caught:
        await LocalEnv(tmp_path).exec("true")
    assert str(tmp_path) not in str(caught.value)


async def test_a_reap_of_text_that_no_tag_can_be_finds_nothing(tmp_path: Path) -> None:
    assert await LocalEnv(tmp_path).reap("\ud800") == ()


@pytest.mark.slow
async def test_a_cancelled_write_does_not_land_over_a_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env, begun, go_on = LocalEnv(tmp_path), threading.Event(), threading.Event()
    whole = files._write_beside

    def slow(folder: str, beside: str, data: bytes, before: os.stat_result | None) -> None:
        begun.set()
        go_on.wait(10)
        whole(folder, beside, data, before)

    monkeypatch.setattr(files, "_write_beside", slow)
    first = asyncio.ensure_future(env.write("file", b"first"))
    await asyncio.to_thread(begun.wait, 10)
    first.cancel()
    await asyncio.sleep(0.05)
    assert not first.done()  # it is either whole or not there when its call ends
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await first
    await env.write("file", b"second")
    assert (tmp_path / "file").read_bytes() == b"second"


@pytest.mark.slow
async def test_a_command_survives_the_end_of_the_thread_that_started_it(tmp_path: Path) -> None:
    """The kernel tells a child of its parent thread's death; only the death of our process counts."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        THREADED,
        str(tmp_path),
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": "src"},
    )
    out, _ = await child.communicate()
    assert out == b"0\n"
    assert (tmp_path / "late").exists()


async def test_a_working_directory_that_is_not_there_is_named_as_it_was_given(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(FileNotThere) as refused:
        await LocalEnv(missing).exec("true")
    assert str(refused.value) == f"{missing} does not exist"
