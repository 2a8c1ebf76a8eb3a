"""Another machine over a real SSH server: whom one trusts, and what a broken connection leaves."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.env.errors import ConnectionLost, EnvError, HostKeyRefused, LoginRefused, NotReachable
from perdure.env.ssh import SESSIONS_PER_CONNECTION, SshEnv, SshHost
from perdure.testing.env_suite import PATIENCE_SECONDS, beating, run
from tests.env import sshd
from tests.env.sshd import Server

pytestmark = pytest.mark.slow

HARNESS = """
import asyncio, sys
from pathlib import Path
from perdure.env.ssh import SshEnv

async def main():
    folder, address, keys = sys.argv[1:]
    env = SshEnv(address, folder, keys=[Path(keys) / "key"], known_hosts=Path(keys) / "known_hosts", config=None)
    async with await env.exec(sys.argv[0] or "BEATS", tag="dies:1") as run:
        async for _ in run:
            pass

asyncio.run(main())
"""


def size_of(path: Path) -> int:
    """Of a file of this machine, which the far side is too."""
    return path.stat().st_size


async def stands_still(path: Path) -> None:
    """Wait until nobody writes to the file any more."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            before = size_of(path)
            await asyncio.sleep(0.4)
            if size_of(path) == before:
                return


def new_key(folder: Path, name: str) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    return folder / name


async def test_a_machine_whose_key_is_not_known_is_refused(server: Server, tmp_path: Path) -> None:
    (tmp_path / "nobody").touch()
    async with server.host(known_hosts=tmp_path / "nobody") as host:
        with pytest.raises(HostKeyRefused, match="not trusted") as caught:
            await SshEnv(host, str(tmp_path)).write("file", b"x")
    assert caught.value.certain == "not_stored"
    assert not (tmp_path / "file").exists()


async def test_a_machine_whose_key_has_changed_is_refused(server: Server, tmp_path: Path) -> None:
    other = new_key(tmp_path, "other").with_suffix(".pub").read_text()
    (tmp_path / "known").write_text(f"[127.0.0.1]:{server.port} {other}")
    async with server.host(known_hosts=tmp_path / "known") as host:
        with pytest.raises(HostKeyRefused):
            await SshEnv(host).read("x")


async def test_the_key_of_a_machine_can_be_given(server: Server, tmp_path: Path) -> None:
    key = (server.folder / "host_key.pub").read_text()
    async with server.host(host_key=key, known_hosts=None) as host:
        assert await SshEnv(host, str(tmp_path)).list(".") == []
    other = new_key(tmp_path, "other").with_suffix(".pub").read_text()
    async with server.host(host_key=other, known_hosts=None) as host:
        with pytest.raises(HostKeyRefused):
            await SshEnv(host).read("x")


async def test_a_key_that_the_machine_does_not_take_is_told(server: Server, tmp_path: Path) -> None:
    async with server.host(keys=[new_key(tmp_path, "mine")]) as host:
        with pytest.raises(LoginRefused):
            await SshEnv(host).read("x")


async def test_a_machine_that_is_not_there_is_told() -> None:
    host = SshHost("127.0.0.1:1", known_hosts=os.devnull, config=None)
    with pytest.raises(NotReachable, match=r"127\.0\.0\.1 cannot be reached"):
        await SshEnv(host).read("x")
    for address in ("", "user@", "host:port", "two words", "a\0b"):
        with pytest.raises(NotReachable):
            SshHost(address)


async def test_a_machine_without_python_is_told_with_what_to_do(server: Server) -> None:
    async with server.host(python="no-such-python") as host:
        with pytest.raises(NotReachable, match=r"no-such-python.*install Python 3\.9"):
            await SshEnv(host).read("x")


async def test_what_a_login_prints_is_not_taken_for_an_answer(server: Server, tmp_path: Path) -> None:
    mine = new_key(tmp_path, "mine")
    allowed = server.folder / "authorized_keys"
    before = allowed.read_text()
    noisy = 'command="echo Welcome; echo Welcome >&2; eval \\"$SSH_ORIGINAL_COMMAND\\"" '
    allowed.write_text(before + noisy + mine.with_suffix(".pub").read_text())
    try:
        async with server.host(keys=[mine]) as host:
            out, err, _ = await run(SshEnv(host, str(tmp_path)), "echo out; echo err >&2")
            assert (out, err) == (b"out\n", b"err\n")
    finally:
        allowed.write_text(before)


async def test_many_commands_at_once_get_further_connections(server: Server, tmp_path: Path) -> None:
    many = SESSIONS_PER_CONNECTION + 4
    async with server.host() as host:
        env = SshEnv(host, str(tmp_path))
        runs = [await env.exec("until [ -e go ]; do sleep 0.05; done; echo done") for _ in range(many)]
        await env.write("go", b"")
        outs = [[chunk.data async for chunk in one] for one in runs]
        assert outs == [[b"done\n"]] * many
        assert len(host._connections) == 2
        for one in runs:
            await one.wait()


async def test_a_connection_that_breaks_in_a_command_is_told_and_the_command_ends_there(
    server: Server, tmp_path: Path
) -> None:
    async with server.host() as host:
        env = SshEnv(host, str(tmp_path))

        async def cut_off() -> None:
            async with await env.exec(f"{beating('beat', 'setsid')} & echo begun; sleep 1111") as execution:
                async for chunk in execution:
                    assert chunk.data == b"begun\n"
                    while not (tmp_path / "beat").exists():  # noqa: ASYNC110  # another process acts
                        await asyncio.sleep(0.02)
                    server.drop_connections()

        with pytest.raises(ConnectionLost, match="what had been done there stays done") as caught:
            await cut_off()
        assert caught.value.certain == "unknown"
        # A new connection is made by itself, and when it answers, nothing of the old one runs any more.
        size = len(await env.read("beat"))
        await asyncio.sleep(0.4)
        assert len(await env.read("beat")) == size
        assert (await run(env, "echo again"))[0] == b"again\n"


async def test_files_are_reached_again_after_a_broken_connection(server: Server, tmp_path: Path) -> None:
    async with server.host() as host:
        env = SshEnv(host, str(tmp_path))
        await env.write("file", b"1")
        server.drop_connections()
        assert await env.read("file") == b"1"
        server.drop_connections()
        await asyncio.sleep(0.2)
        await env.write("file", b"2")  # the break was noticed before: nothing was sent into the void
        assert (tmp_path / "file").read_bytes() == b"2"


async def test_a_write_that_a_broken_connection_cuts_leaves_the_old_file_or_the_new(
    server: Server, tmp_path: Path
) -> None:
    old, new = b"o" * 3_000_000, b"n" * 30_000_000
    async with server.host() as host:
        env = SshEnv(host, str(tmp_path))
        for number in range(4):
            await env.write("file", old)
            writing = asyncio.ensure_future(env.write("file", new))
            await asyncio.sleep(0.03 * (number + 1))
            server.drop_connections()
            try:
                await writing
            except ConnectionLost as error:
                assert error.certain == "unknown"  # noqa: PT017
            found = await env.read("file")  # answered only when the former service is gone
            assert found in (old, new)
            assert (tmp_path / "file").read_bytes() == found
        left = [stat.size for name, stat in await env.list(".") if name != "file"]
        assert left == [len(new)] * len(left)  # cut between naming and renaming; it is whole then


async def test_a_cancelled_write_is_whole_or_not_there(server: Server, tmp_path: Path) -> None:
    async with server.host() as host:
        env = SshEnv(host, str(tmp_path))
        await env.write("file", b"old")
        writing = asyncio.ensure_future(env.write("file", b"n" * 20_000_000))
        await asyncio.sleep(0.02)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        await env.write("file", b"last")
        assert (tmp_path / "file").read_bytes() == b"last"


async def test_a_server_that_comes_back_is_used_again(tmp_path: Path) -> None:
    if why := sshd.why_no_server():
        pytest.skip(why)
    (tmp_path / "keys").mkdir()
    (tmp_path / "work").mkdir()
    server = sshd.start(tmp_path / "keys")
    try:
        async with server.host() as host:
            env = SshEnv(host, str(tmp_path / "work"))
            await env.write("file", b"1")
            server.stop()
            with pytest.raises(NotReachable):
                await env.read("file")
            server = sshd.start(tmp_path / "keys", port=server.port)
            assert await env.read("file") == b"1"
    finally:
        server.stop()


async def test_a_killed_harness_leaves_nothing_running_there(server: Server, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    beat = tmp_path / "work" / "beat"
    program = HARNESS.replace('sys.argv[0] or "BEATS"', repr(f"{beating('beat', 'env -i setsid')} & sleep 1111"))
    command = [sys.executable, "-c", program, str(tmp_path / "work"), server.address, str(server.folder)]
    harness = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": "src"})  # noqa: ASYNC220
    async with asyncio.timeout(3 * PATIENCE_SECONDS):
        while not beat.exists():  # another process acts
            assert harness.poll() is None
            await asyncio.sleep(0.05)
    harness.send_signal(signal.SIGKILL)
    harness.wait()
    await stands_still(beat)
    async with server.host() as host:
        assert await SshEnv(host, str(tmp_path)).reap("dies:1") == ()


async def test_a_killed_launcher_there_costs_only_its_command(server: Server, tmp_path: Path) -> None:
    async with server.host() as host:
        env = SshEnv(host, str(tmp_path))
        _, _, end = await run(
            env, f"{beating('beat')} & until [ -s beat ]; do sleep 0.02; done; kill -9 $PPID; sleep 99"
        )
        assert (end.code, end.signal, end.survivors) == (None, signal.SIGKILL, ())
        await stands_still(tmp_path / "beat")
        assert (await run(env, "echo on"))[0] == b"on\n"


async def test_what_speaks_for_a_command_there_may_be_killed_too(server: Server, tmp_path: Path) -> None:
    async with server.host() as host:
        env = SshEnv(host, str(tmp_path))
        kill = "kill -9 $(ps -o ppid= -p $PPID)"
        _, _, end = await run(env, f"{beating('beat')} & until [ -s beat ]; do sleep 0.02; done; {kill}; sleep 99")
        assert (end.code, end.survivors) == (None, ())
        await stands_still(tmp_path / "beat")


async def test_a_closed_host_says_so(server: Server, tmp_path: Path) -> None:
    host = server.host()
    env = SshEnv(host, str(tmp_path))
    await env.list(".")
    await host.close()
    with pytest.raises(EnvError, match="was closed"):
        await env.list(".")


async def test_a_watch_ends_with_an_error_when_the_connection_breaks(server: Server, tmp_path: Path) -> None:
    async with server.host() as host:
        async with await SshEnv(host, str(tmp_path)).watch() as watching:
            server.drop_connections()
            with pytest.raises(ConnectionLost):
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await anext(aiter(watching))
