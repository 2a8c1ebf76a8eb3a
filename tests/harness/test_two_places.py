"""Each conversation lives in a place of its own: one on this machine, one on another, at the same time and after a
crash."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure import Harness, Registry
from perdure.env.local import LocalEnv
from perdure.env.ssh import SshEnv, SshHost
from perdure.models.messages import ToolResultMessage, UserMessage
from perdure.testing.env_suite import PATIENCE_SECONDS
from perdure.testing.scripted_model import ScriptedModel, call, say
from perdure.tools import coding_tools
from tests.env import sshd

pytestmark = pytest.mark.slow

BEATS = "echo $PERDURE_TOOL_CALL > tag; (setsid sh -c 'while :; do echo x >> beat; sleep 0.1; done' &); sleep 1111"
CHILD = """
import asyncio, sys
from pathlib import Path
from tests.env import sshd
from tests.harness.test_two_places import opened, places

async def main():
    store, address, keys = sys.argv[1:]
    server = sshd.Server(Path(keys), int(address.rpartition(":")[2]), None)
    async with server.host() as host, opened(Path(store), host) as harness:
        for conversation in await places(harness):
            await conversation.submit("beat", request_id=f"beat-{conversation.id}")
        await asyncio.sleep(60)

asyncio.run(main())
"""


def turn(request: Any) -> Any:
    """Call what was asked for; when its result is there, say so."""
    last = request.messages[-1]
    if not isinstance(last, UserMessage):
        return say("done")
    commands = {"where": "cat name; pwd", "beat": BEATS, "hello": "true"}
    return call("bash", {"command": commands[str(last.content)]})


def opened(folder: Path, host: SshHost) -> Any:
    """A harness where the root works in one folder of this machine, and every other conversation on the far one."""

    def env(conversation: int, cwd: str | None) -> LocalEnv | SshEnv:
        return LocalEnv(folder / "here") if conversation == 1 else SshEnv(host, cwd)

    model = ScriptedModel(turn)
    return Harness.open(folder / "agent.db", registry=Registry([coding_tools]), models=model, env=env)


async def places(harness: Harness) -> tuple[Any, Any]:
    """The conversation here and the one there."""
    root = await harness.root(model="scripted:model")
    answer = await (await root.submit("hello", request_id="hello")).wait()
    there = await root.fork(answer.entry_id, key="there")
    return root, there


async def results(conversation: Any) -> list[str]:
    return [str(m.content) for m in await conversation.messages() if isinstance(m, ToolResultMessage)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[sshd.Server]:
    if why := sshd.why_no_server():
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    for name in ("keys", "here", "there"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "name").write_text(name + "\n")
    running = sshd.start(tmp_path / "keys")
    yield running
    running.stop()


async def test_two_conversations_work_in_two_places_at_once(tmp_path: Path, server: sshd.Server) -> None:
    async with server.host() as host, opened(tmp_path, host) as harness:
        here, there = await places(harness)
        await there.configure(cwd=str(tmp_path / "there"))
        both = [await conversation.submit("where") for conversation in (here, there)]
        await asyncio.gather(*(submission.wait() for submission in both))
        assert (await results(here))[-1] == f"here\n{tmp_path}/here"
        assert (await results(there))[-1] == f"there\n{tmp_path}/there"


async def test_a_crash_ends_what_ran_in_both_places_and_the_next_process_looks_in_both(
    tmp_path: Path, server: sshd.Server
) -> None:
    async with server.host() as host, opened(tmp_path, host) as harness:
        _, there = await places(harness)
        await there.configure(cwd=str(tmp_path / "there"))
    beats = [tmp_path / name / "beat" for name in ("here", "there")]
    killed = await asyncio.to_thread(killed_while, beats, tmp_path, server)
    assert killed == -signal.SIGKILL
    await stand_still(beats)
    # Nothing escapes a launcher, so what only a tag can find is put there: as if it had outlived its launcher.
    left = [await survivor(path.with_name("tag"), path.parent) for path in beats]
    async with server.host() as host, opened(tmp_path, host) as harness:
        await harness.resume()
        for conversation, process in zip(await places(harness), left, strict=True):
            submission = await conversation.submit("beat", request_id=f"beat-{conversation.id}")
            await submission.wait()
            assert (await results(conversation))[-1].startswith("interrupted")
            assert await asyncio.wait_for(process.wait(), PATIENCE_SECONDS) == -signal.SIGKILL


def killed_while(beats: list[Path], folder: Path, server: sshd.Server) -> int:
    """Run a process until both commands run, and kill it with -9."""
    command = [sys.executable, "-c", CHILD, str(folder), server.address, str(server.folder)]
    process = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": os.pathsep.join(["src", "."])})
    try:
        while not all(path.exists() for path in beats):
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.1)
    finally:
        process.kill()
    return process.wait()


async def stand_still(paths: list[Path]) -> None:
    """Wait until nobody writes to the files any more."""
    async with asyncio.timeout(2 * PATIENCE_SECONDS):
        sizes = sizes_of(paths)
        while True:
            await asyncio.sleep(0.5)
            before, sizes = sizes, sizes_of(paths)
            if before == sizes:
                return


def sizes_of(paths: list[Path]) -> list[int]:
    return [path.stat().st_size for path in paths]


async def survivor(tag: Path, folder: Path) -> asyncio.subprocess.Process:
    """A process that carries the call's tag."""
    env = os.environ | {"PERDURE_TOOL_CALL": (await LocalEnv(folder).read(str(tag))).decode().strip()}
    return await asyncio.create_subprocess_exec("sleep", "1111", env=env)
