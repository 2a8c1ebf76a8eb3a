"""This machine as an execution environment."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final, Literal

from perdure.env import containment, files
from perdure.env.containment import TAG_VARIABLE
from perdure.env.errors import env_error
from perdure.env.protocol import ExecEnd, FileStat, OutputChunk

LAUNCHER: Final = str(Path(__file__).with_name("launcher.py"))
CHUNK_BYTES: Final = 64 * 1024
CHUNKS_WAITING: Final = 8
"""Chunks read ahead of the consumer; a slow one makes the command wait on its pipe."""


class LocalEnv:
    """Files and processes of this machine. `cwd` is where relative paths begin and commands run."""

    def __init__(self, cwd: str | None = None) -> None:
        self._cwd = os.path.abspath(cwd or os.getcwd())

    @property
    def id(self) -> str:
        return "local"

    @property
    def cwd(self) -> str:
        return self._cwd

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        stdin: bytes | None = None,
        timeout: float | None = None,
        tag: str | None = None,
    ) -> "LocalExecution":
        """Start a command under a launcher that ends everything it starts. A string goes to `/bin/sh -c` or bash."""
        argv = [_shell(), "-c", command] if isinstance(command, str) else list(command)
        folder = self._path(cwd or ".")
        variables = {**os.environ, **(env or {})}
        if tag is not None:
            variables[TAG_VARIABLE] = tag
        alive_read, alive_write = os.pipe()
        status_read, status_write = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", LAUNCHER, str(alive_read), str(status_write), *argv,
                stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=folder,
                env=variables,
                pass_fds=(alive_read, status_write),
                start_new_session=True,
                limit=CHUNK_BYTES,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            os.close(alive_write)
            os.close(status_read)
            raise env_error(error, folder) from error
        finally:
            os.close(alive_read)
            os.close(status_write)
        return LocalExecution(process, alive_write, status_read, stdin, timeout, tag)

    async def reap(self, tag: str) -> tuple[str, ...]:
        """End whatever still runs under the tag; name what could not be ended."""
        return await asyncio.to_thread(containment.reap, tag)

    async def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        return await asyncio.to_thread(files.read, self._path(path), offset, limit)

    async def write(self, path: str, data: bytes) -> None:
        await asyncio.to_thread(files.write, self._path(path), data)

    async def stat(self, path: str) -> FileStat:
        return await asyncio.to_thread(files.stat, self._path(path))

    async def list(self, path: str) -> list[tuple[str, FileStat]]:
        return await asyncio.to_thread(files.listing, self._path(path))

    async def resolve(self, path: str) -> str:
        return await asyncio.to_thread(files.resolve, self._path(path))

    async def close(self) -> None:
        """Nothing is held."""

    def _path(self, path: str) -> str:
        return os.path.join(self._cwd, os.path.expanduser(path))


class LocalExecution:
    """A command that runs under its launcher."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        alive: int,
        status: int,
        stdin: bytes | None,
        timeout: float | None,
        tag: str | None,
    ) -> None:
        self._process = process
        self._alive: int | None = alive
        self._status = status
        self._tag = tag
        self._timed_out = False
        self._end: ExecEnd | None = None
        self._chunks: asyncio.Queue[OutputChunk | None] = asyncio.Queue(CHUNKS_WAITING)
        self._jobs = [
            asyncio.create_task(self._read("stdout", process.stdout)),
            asyncio.create_task(self._read("stderr", process.stderr)),
        ]
        if stdin is not None:
            self._jobs.append(asyncio.create_task(self._feed(stdin)))
        if timeout is not None:
            self._jobs.append(asyncio.create_task(self._time_out(timeout)))

    def __aiter__(self) -> AsyncIterator[OutputChunk]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[OutputChunk]:
        ended = 0
        while ended < 2:
            chunk = await self._chunks.get()
            if chunk is None:
                ended += 1
            else:
                yield chunk

    async def wait(self) -> ExecEnd:
        """Wait until the command and everything it started is gone. Output that nobody read is dropped."""
        if self._end is None:
            drain = asyncio.create_task(self._drop_output())
            try:
                await self._process.wait()
                self._end = await self._read_end()
            finally:
                drain.cancel()
        return self._end

    async def kill(self) -> None:
        """End the command and everything it started; returns when that is done."""
        self._stop()
        await self.wait()

    async def __aenter__(self) -> "LocalExecution":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.shield(self._finish())

    async def _finish(self) -> None:
        self._stop()
        await self.wait()
        for job in self._jobs:
            job.cancel()
        await asyncio.wait(self._jobs)
        self._process._transport.close()  # type: ignore[attr-defined]  # closes the pipes that a killed reader left
        os.close(self._status)

    def _stop(self) -> None:
        if self._alive is not None:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._alive, b"k")
            os.close(self._alive)
            self._alive = None

    async def _read(self, stream: Literal["stdout", "stderr"], reader: asyncio.StreamReader | None) -> None:
        assert reader is not None
        try:
            while data := await reader.read(CHUNK_BYTES):
                await self._chunks.put(OutputChunk(stream, data))
        finally:
            await self._chunks.put(None)

    async def _drop_output(self) -> None:
        while True:
            await self._chunks.get()

    async def _feed(self, data: bytes) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        with contextlib.suppress(ConnectionError):  # the command does not read it
            stdin.write(data)
            await stdin.drain()
        stdin.close()

    async def _time_out(self, timeout: float) -> None:
        await asyncio.sleep(timeout)
        self._timed_out = self._process.returncode is None
        self._stop()

    async def _read_end(self) -> ExecEnd:
        line = os.read(self._status, 64 * 1024).decode("utf-8", "replace").rstrip("\n")
        if not line:  # the launcher itself was killed: what it kept together is found by the tag
            left = await asyncio.to_thread(containment.reap, self._tag) if self._tag is not None else ()
            return ExecEnd(None, signal=9, timed_out=self._timed_out, survivors=left)
        code, number, survivors = line.split("\t")
        return ExecEnd(
            int(code) if code else None,
            signal=int(number) if number else None,
            timed_out=self._timed_out,
            survivors=tuple(survivors.split(", ")) if survivors else (),
        )


def _shell() -> str:
    return "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
