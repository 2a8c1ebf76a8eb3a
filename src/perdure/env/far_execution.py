"""One command on the far side, as a tool reads it."""

import asyncio
import errno
import json
from collections.abc import AsyncIterator
from typing import Any, Final

from perdure.env.errors import ConnectionLost, EnvError, command_error
from perdure.env.far import Channel, FarSide, Incoming
from perdure.env.far_exec import ENDED, FAILED, FRAME, LEASE_SECONDS, STARTED, STDERR, STDOUT
from perdure.env.protocol import ExecEnd, OutputChunk

BEAT_SECONDS: Final = LEASE_SECONDS / 4
"""Between two words that say that we are still here."""
END_SECONDS: Final = 45.0
"""Within this a command that is to end has ended: the launcher there takes 36 at most. Else the line is broken."""


async def start(
    far: FarSide, request: dict[str, Any], stdin: bytes | None, timeout: float | None, marks: dict[str, str], mark: str
) -> "FarExecution":
    """Start a command there. Raises what stands in its way; then it has not run."""
    channel, incoming = await far.command(request, stdin or b"", marks)
    try:
        frame = await _frame(incoming)
        if frame is None:
            far.lost(mark)
            raise await channel.why()
        kind, data = frame
        if kind == FAILED:
            raise _refusal(json.loads(data))
        assert kind == STARTED
    except BaseException:
        channel.close()  # the far side ends what it had begun
        raise
    return FarExecution(far, channel, incoming, timeout, mark)


class FarExecution:
    """A running command. Output is read only when asked for, so a slow reader makes the command wait, far away too.

    Use it in `async with`: leaving the block ends the command with everything it started, also when cancelled. Where
    the connection breaks, `ConnectionLost` is raised; the far side then ends the command by itself.
    """

    def __init__(self, far: FarSide, channel: Channel, incoming: Incoming, timeout: float | None, mark: str) -> None:
        self._far = far
        self._channel = channel
        self._incoming = incoming
        self._mark = mark
        self._reading = asyncio.Lock()
        self._end: ExecEnd | None = None
        self._broken: EnvError | None = None
        self._timed_out = False
        self._stopped = False
        loop = asyncio.get_running_loop()
        self._timer = None if timeout is None else loop.call_later(timeout, self._time_out)
        self._beat = loop.call_later(BEAT_SECONDS, self._say_alive)

    def __aiter__(self) -> AsyncIterator[OutputChunk]:
        return self

    async def __anext__(self) -> OutputChunk:
        """The next piece of output. Raises `ConnectionLost`."""
        chunk = await self._next()
        if chunk is None:
            raise StopAsyncIteration
        return chunk

    async def wait(self) -> ExecEnd:
        """Wait until the command and everything it started is gone. Output that was not read is dropped."""
        while await self._next() is not None:
            pass
        assert self._end is not None
        return self._end

    async def kill(self) -> None:
        """Ask the command to end, kill it half a second later, and everything it started; returns when it is done."""
        self._stop()
        await asyncio.shield(asyncio.ensure_future(self._ended()))

    async def __aenter__(self) -> "FarExecution":
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._stop()
        ending = asyncio.ensure_future(self._ended())
        cancelled: asyncio.CancelledError | None = None
        while not ending.done():
            try:
                await asyncio.wait([ending])
            except asyncio.CancelledError as error:
                cancelled = error  # nothing is left running behind our back; `END_SECONDS` bounds this
        if cancelled is not None:
            raise cancelled
        if not exc or exc[0] is None:
            ending.result()
        elif not ending.cancelled():
            ending.exception()  # the block's own error counts

    async def _ended(self) -> ExecEnd:
        try:
            async with asyncio.timeout(END_SECONDS):
                return await self.wait()
        except TimeoutError:
            self._break(ConnectionLost(f"{self._far.name} does not say that the command has ended"))
            raise self._broken or EnvError("the command has ended") from None

    async def _next(self) -> OutputChunk | None:
        """The next frame: output, or None where the command has ended."""
        async with self._reading:
            if self._broken is not None:
                raise self._broken
            if self._end is not None:
                return None
            frame = await _frame(self._incoming)
            if frame is not None and frame[0] in (STDOUT, STDERR):
                return OutputChunk("stdout" if frame[0] == STDOUT else "stderr", frame[1])
            if frame is not None and frame[0] == ENDED:
                self._finish(_end(json.loads(frame[1]), self._timed_out))
                return None
            await self._cut_off()
            return None

    async def _cut_off(self) -> None:
        """The channel ended without a last word: the line broke, or somebody killed what speaks for the command."""
        error = await self._channel.why()
        if isinstance(error, ConnectionLost):
            self._break(error)
            raise error
        try:
            service = await self._far.service()
            head, _ = await service.answer("fence", marks=[self._mark])
        except EnvError as failed:
            self._break(failed)
            raise
        self._finish(ExecEnd(None, None, self._timed_out, tuple(head["survivors"])))

    def _finish(self, end: ExecEnd) -> None:
        self._end = end
        self._let_go()

    def _break(self, error: EnvError) -> None:
        self._broken = error
        self._far.lost(self._mark)
        self._let_go()

    def _let_go(self) -> None:
        self._beat.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._channel.close()

    def _time_out(self) -> None:
        self._timed_out = True
        self._stop()

    def _stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            self._channel.send(b"k")

    def _say_alive(self) -> None:
        self._channel.send(b"b")
        self._beat = asyncio.get_running_loop().call_later(BEAT_SECONDS, self._say_alive)


async def _frame(incoming: Incoming) -> tuple[bytes, bytes] | None:
    head = await incoming.exactly(FRAME.size)
    if head is None:
        return None
    kind, size = FRAME.unpack(head)
    data = await incoming.exactly(size)
    return None if data is None else (kind, data)


def _refusal(told: dict[str, Any]) -> EnvError:
    if told["errno"]:
        number = getattr(errno, told["errno"], 0)
        where = [] if told["path"] is None else [told["path"]]
        return command_error(OSError(number, told["text"], *where))
    return command_error(ValueError(told["text"]))


def _end(told: dict[str, Any], timed_out: bool) -> ExecEnd:
    return ExecEnd(
        int(told["code"]) if told["code"] and not timed_out else None,
        int(told["signal"]) if told["signal"] else None,
        timed_out,
        tuple(told["survivors"]),
    )
