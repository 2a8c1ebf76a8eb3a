"""Nothing that a command started outlives us, however we or the launcher end; and nothing else is touched."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perdure.env.containment import LAUNCHER, TAG_VARIABLE, reap
from perdure.env.execution import CHUNK_BYTES
from perdure.env.local import LocalEnv

ESCAPES = """
sleep 1111 &
nohup sleep 1111 > /dev/null 2>&1 &
setsid sleep 1111 &
(setsid sleep 1111 > /dev/null 2>&1 < /dev/null &) &
env -i setsid sleep 1111 > /dev/null 2>&1 &
(trap '' TERM HUP INT; setsid sleep 1111 &)
sleep 0.2
echo ready
sleep 1111
"""
HARNESS = """
import asyncio, os, sys
from perdure.env.local import LocalEnv

async def main():
    if sys.argv[3] == "forked":  # a copy of the process that keeps the pipe to the launcher open
        asyncio.get_running_loop().call_later(0.1, fork)
    async with await LocalEnv(sys.argv[1]).exec(sys.argv[2], tag="dies:1") as run:
        async for chunk in run:
            print(chunk.data.decode(), end="", flush=True)

def fork():
    if os.fork() == 0:
        os.close(1)
        import time
        time.sleep(20)
        os._exit(0)

asyncio.run(main())
"""


def living(folder: Path) -> list[int]:
    """Processes of ours that run in a folder, whatever is in their environment."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and os.readlink(f"/proc/{entry}/cwd") == str(folder):
                found.append(int(entry))
        except OSError:
            continue
    return found


def gone_within(folder: Path, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while living(folder) and time.monotonic() < end:
        time.sleep(0.02)
    return not living(folder)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["plain", "forked"])
def test_kill_9_of_our_process_ends_all_escaped_children_within_two_seconds(tmp_path: Path, how: str) -> None:
    arguments = [sys.executable, "-c", HARNESS, str(tmp_path), ESCAPES, how]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": "src"}) as harness:
        assert harness.stdout is not None
        assert harness.stdout.readline() == b"ready\n"
        assert len(living(tmp_path)) >= 8  # the launcher, the shell, its sleep and those that escaped
        harness.send_signal(signal.SIGKILL)
        assert gone_within(tmp_path, 2.0)


@pytest.mark.slow
async def test_a_killed_launcher_leaves_nothing_that_carries_the_tag(tmp_path: Path) -> None:
    env = LocalEnv(tmp_path)
    command = "setsid sleep 1111 & (setsid sleep 1111 &) ; sleep 0.1; kill -9 $PPID; sleep 1111"
    async with asyncio.timeout(10):
        async with await env.exec(command) as run:
            end = await run.wait()
    assert (end.code, end.signal, end.survivors) == (None, signal.SIGKILL, ())
    assert living(tmp_path) == []


@pytest.mark.slow
async def test_reaping_lets_the_launcher_end_what_carries_no_tag(tmp_path: Path) -> None:
    env = LocalEnv(tmp_path)
    async with await env.exec("env -i setsid sleep 1111 & sleep 0.2; echo; wait", tag="reaped:1") as run:
        await anext(aiter(run))
        assert await env.reap("reaped:1") == ()
        assert living(tmp_path) == []


@pytest.mark.slow
async def test_reaping_ends_the_orphans_of_a_crash(tmp_path: Path) -> None:
    variables = os.environ | {TAG_VARIABLE: "crashed:7"}
    orphan = await asyncio.create_subprocess_exec("setsid", "sleep", "1111", cwd=tmp_path, env=variables)
    assert await LocalEnv(tmp_path).reap("crashed:7") == ()
    assert await orphan.wait() == -signal.SIGKILL


@pytest.mark.slow
async def test_processes_with_another_tag_or_none_are_left_alone(tmp_path: Path) -> None:
    tags = [{TAG_VARIABLE: tag} for tag in ("x:11", "x:1 ", "y:1")] + [{"OTHER": f"{TAG_VARIABLE}=x:1"}]
    others = [await asyncio.create_subprocess_exec("sleep", "1111", env=os.environ | tag) for tag in tags]
    try:
        assert await asyncio.to_thread(reap, "x:1") == ()
        await asyncio.sleep(0.1)
        assert [other.returncode for other in others] == [None] * 4
    finally:
        for other in others:
            other.kill()
            await other.wait()


@pytest.mark.slow
async def test_children_of_ours_that_no_command_started_are_left_alone(tmp_path: Path) -> None:
    own = await asyncio.create_subprocess_exec("sleep", "1111")
    async with await LocalEnv(tmp_path).exec("sleep 1111", timeout=0.2) as run:
        assert (await run.wait()).timed_out
    assert own.returncode is None
    own.kill()
    assert await own.wait() == -signal.SIGKILL


@pytest.mark.slow
async def test_a_command_that_keeps_forking_is_ended(tmp_path: Path) -> None:
    storm = "f() { while :; do (setsid sh -c 'sleep 0.05; sleep 1111' &); sleep 0.01; done; }; f & f & f & sleep 0.5"
    async with asyncio.timeout(20):
        async with await LocalEnv(tmp_path).exec(storm) as run:
            end = await run.wait()
    assert end.survivors == ()
    assert living(tmp_path) == []


@pytest.mark.slow
async def test_an_execution_gives_back_its_descriptors(tmp_path: Path) -> None:
    env = LocalEnv(tmp_path)

    async def once() -> None:
        async with await env.exec("echo a; (sleep 1111 &)", stdin=b"x") as run:
            await anext(aiter(run))
        async with await env.exec("head -c 1000000 /dev/zero"):
            pass  # left at once

    await once()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        await once()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.slow
async def test_two_hundred_megabytes_pass_through_in_little_memory(tmp_path: Path) -> None:
    size = 0
    command = "head -c 100000000 /dev/zero & head -c 100000000 /dev/zero >&2; wait"
    async with await LocalEnv(tmp_path).exec(command) as run:
        async for chunk in run:
            assert len(chunk.data) <= CHUNK_BYTES
            size += len(chunk.data)
    assert size == 200_000_000


@pytest.mark.slow
async def test_the_launcher_costs_little_time(tmp_path: Path) -> None:
    env = LocalEnv(tmp_path)
    took = []
    for _ in range(5):
        begin = time.perf_counter()
        async with await env.exec("true") as run:
            await run.wait()
        took.append(time.perf_counter() - begin)
    assert min(took) < 0.2  # 0.03 on a quiet machine


def test_the_launcher_imports_nothing_of_ours() -> None:
    text = Path(LAUNCHER).read_text()
    assert "perdure" not in text
