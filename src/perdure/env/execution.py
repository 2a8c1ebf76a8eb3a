"""One command on this machine, under its launcher."""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Final, Literal

from perdure.env import containment
from perdure.env.containment import EXECUTION_VARIABLE, LAUNCHER, TAG_VARIABLE
from perdure.env.errors import command_error
from perdure.env.protocol import ExecEnd, OutputChunk

CHUNK_BYTES: Final = 64 * 1024
"""Read at once: what a pipe holds."""
LATE_BYTES: Final = 1024 * 1024
"""Still read when the launcher has ended: as much as a pipe can hold. A survivor may write for ever."""
CHUNKS_AT_A_STRETCH: Final = 8
"""Then others get their turn, time-outs among them: a command may write faster than we read."""
STATUS_BYTES: Final = 4096


def start(
    argv: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    stdin: bytes | None,
    timeout: float | None,
    tag: str | None,
) -> "LocalExecution":
    """Start a command under a launcher. Must be called on the event loop. Blocks for the fork, a millisecond or two.

    The launcher is told to die with the thread that starts it, so that thread must be one that lasts.
    """
    mark = os.urandom(16).hex()
    marks = {EXECUTION_VARIABLE: mark} if tag is None else {EXECUTION_VARIABLE: mark, TAG_VARIABLE: tag}
    with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
        alive_read, alive_write = _pipe(theirs, ours)
        out_read, out_write = _pipe(ours, theirs)
        err_read, err_write = _pipe(ours, theirs)
        status_read, status_write = _pipe(ours, theirs)
        source = _source(stdin)
        theirs.callback(os.close, source)
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", LAUNCHER, str(alive_read), str(status_write), *argv],
                stdin=source,
                stdout=out_write,
                stderr=err_write,
                cwd=cwd,
                env={**env, **marks},
                pass_fds=(alive_read, status_write),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise command_error(error) from error
        ours.pop_all()
    for descriptor in (out_read, err_read, status_read):
        os.set_blocking(descriptor, False)
    return LocalExecution(process, alive_write, (out_read, err_read), status_read, timeout, mark)


class LocalExecution:
    """A running command. Output is read only when asked for, so a slow reader makes the command wait on its pipe.

    Use it in `async with`: leaving the block ends the command with everything it started, also when cancelled.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        alive: int,
        outputs: tuple[int, int],
        status: int,
        timeout: float | None,
        mark: str,
    ) -> None:
        self._process = process
        self._alive: int | None = alive
        self._open: dict[int, Literal["stdout", "stderr"]] = {outputs[0]: "stdout", outputs[1]: "stderr"}
        self._mark = mark
        self._stretch = 0
        self._late = 0
        self._timed_out = False
        loop = asyncio.get_running_loop()
        self._timer = None if timeout is None else loop.call_later(timeout, self._time_out)
        self._ending = asyncio.ensure_future(self._end(status))

    def __aiter__(self) -> AsyncIterator[OutputChunk]:
        return self

    async def __anext__(self) -> OutputChunk:
        """The next piece of output, at most `CHUNK_BYTES`; the streams take turns."""
        while True:
            await self._give_way()
            ended = self._ending.done()  # asked first: then all that the command wrote is in the pipes
            chunk = self._read()
            if chunk is not None:
                return chunk
            if ended:
                self._close_all()  # only a survivor, or a stranger, can hold them open
            if not self._open:
                raise StopAsyncIteration
            await self._readable()

    async def wait(self) -> ExecEnd:
        """Wait until the command and everything it started is gone. Output that was not read is dropped."""
        while not self._ending.done():
            await self._give_way()
            if self._read() is None:
                await self._readable()
        return self._ending.result()

    async def kill(self) -> None:
        """Ask the command to end, kill it half a second later, and everything it started; returns when it is done."""
        self._stop()
        await asyncio.shield(self._ending)

    async def __aenter__(self) -> "LocalExecution":
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._stop()
        cancelled: asyncio.CancelledError | None = None
        while not self._ending.done():
            try:
                await asyncio.wait([self._ending])
            except asyncio.CancelledError as error:
                cancelled = error  # nothing is left running behind our back; the launcher's bounds bound this
        self._close_all()
        if cancelled is not None:
            raise cancelled
        self._ending.result()

    async def _give_way(self) -> None:
        if self._stretch >= CHUNKS_AT_A_STRETCH:
            self._stretch = 0
            await asyncio.sleep(0)

    def _read(self) -> OutputChunk | None:
        if self._late > LATE_BYTES:
            self._close_all()
        for descriptor, stream in list(self._open.items()):
            try:
                data = os.read(descriptor, CHUNK_BYTES)
            except BlockingIOError:
                continue
            if not data:
                self._close(descriptor)
                continue
            self._open[descriptor] = self._open.pop(descriptor)  # the other stream is next
            self._stretch += 1
            self._late += len(data) if self._ending.done() else 0
            return OutputChunk(stream, data)
        return None

    async def _readable(self) -> None:
        """Wait until there is output to read, or the command has ended."""
        self._stretch = 0
        loop = asyncio.get_running_loop()
        news: asyncio.Future[None] = loop.create_future()
        watched = list(self._open)
        for descriptor in watched:
            loop.add_reader(descriptor, _tell, news)
        tell = partial(_tell, news)
        self._ending.add_done_callback(tell)
        try:
            await news
        finally:
            self._ending.remove_done_callback(tell)
            for descriptor in watched:
                if descriptor in self._open:
                    loop.remove_reader(descriptor)

    def _close_all(self) -> None:
        for descriptor in list(self._open):
            self._close(descriptor)

    def _close(self, descriptor: int) -> None:
        asyncio.get_running_loop().remove_reader(descriptor)
        del self._open[descriptor]
        os.close(descriptor)

    def _time_out(self) -> None:
        self._timed_out = True
        self._stop()

    def _stop(self) -> None:
        if self._alive is not None:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._alive, b"k")
            os.close(self._alive)
            self._alive = None

    async def _end(self, status: int) -> ExecEnd:
        """Follow the launcher to its end. Closing the alive pipe, at the latest here, ends it in any case."""
        try:
            line = await _line(status)
            if self._timer is not None:
                self._timer.cancel()
            await asyncio.to_thread(self._process.wait)  # the report is the last thing it does
            if not line:  # it was killed: what it kept together is found by its mark
                left = await asyncio.to_thread(containment.end_execution, self._mark, self._process.pid)
                return ExecEnd(None, -self._process.returncode, self._timed_out, left)
        finally:
            self._stop()
            os.close(status)
        code, number, survivors = line.rstrip("\n").split("\t")
        if self._timed_out:
            code = ""
        return ExecEnd(
            int(code) if code else None,
            int(number) if number else None,
            self._timed_out,
            tuple(survivors.split(", ")) if survivors else (),
        )


def _tell(news: "asyncio.Future[None]", *_: object) -> None:
    if not news.done():
        news.set_result(None)


async def _line(descriptor: int) -> str:
    """What the launcher reports: written at once, or nothing."""
    loop = asyncio.get_running_loop()
    news: asyncio.Future[None] = loop.create_future()
    loop.add_reader(descriptor, _tell, news)
    try:
        await news
        return os.read(descriptor, STATUS_BYTES).decode("utf-8", "replace")
    finally:
        loop.remove_reader(descriptor)


def _pipe(first: contextlib.ExitStack, second: contextlib.ExitStack) -> tuple[int, int]:
    """A pipe whose reading end the first stack closes and whose writing end the second."""
    read, write = os.pipe()
    first.callback(os.close, read)
    second.callback(os.close, write)
    return read, write


def _source(stdin: bytes | None) -> int:
    """A descriptor to read standard input from: a file in memory, so that nobody has to feed a pipe."""
    if stdin is None:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    descriptor = os.memfd_create("stdin")
    with open(descriptor, "wb", closefd=False) as file:
        file.write(stdin)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
