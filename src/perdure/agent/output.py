"""What a running tool shows: a bounded buffer of its output, and the pace at which it is stored."""

import asyncio
import codecs
import io
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal

from perdure.base.clock import Clock
from perdure.base.text import printable

Mode = Literal["head", "tail"]

MAX_BYTES: Final = 50 * 1024
"""Bytes of UTF-8 that are kept: about 12,000 tokens, which any window takes several times."""

MAX_LINES: Final = 2_000
"""Lines that are kept, the last one also if it has not ended."""

SLACK_BYTES: Final = 64 * 1024
"""What may gather beyond the limit before it is cut, so that a cut is paid by what came since the last one."""

ESCAPE_CHARACTERS: Final = 256
"""A terminal's escape sequence that is longer than this is not waited for."""


class OutputBuffer:
    """The beginning or the end of a stream of text, in whole lines.

    Appending costs the size of the chunk, whatever came before; memory stays within the limit plus the slack. Line
    ends become `\\n`, other control characters and terminal escapes are removed, broken UTF-8 becomes U+FFFD, also
    where a chunk cuts through any of them. A single line beyond the limit is cut at a character. How the stream was
    cut into chunks makes no difference to the text.
    """

    def __init__(self, *, mode: Mode = "tail", max_bytes: int = MAX_BYTES, max_lines: int = MAX_LINES) -> None:
        self._mode = mode
        self._max_bytes = max_bytes
        self._max_lines = max_lines
        self._decode = codecs.getincrementaldecoder("utf-8")("replace")
        self._newlines = io.IncrementalNewlineDecoder(None, translate=True)
        self._escape = ""
        self._data = bytearray()
        self._full = False
        """The head is complete: everything else is dropped."""
        self._broken_line = False
        """The tail begins within a line."""
        self._taken = 0
        self._rewritten = False
        self._dropped_bytes = 0
        self._dropped_lines = 0

    def append(self, chunk: str | bytes) -> None:
        """Add what the tool wrote. A character cut by the end of a chunk of bytes waits for the next."""
        for begin in range(0, len(chunk), SLACK_BYTES):
            piece = chunk[begin : begin + SLACK_BYTES]
            self._add(piece if isinstance(piece, str) else self._decode.decode(piece))

    def end(self) -> None:
        """The stream is over: what waits for a rest that never came is added as it is."""
        self._add(self._decode.decode(b"", final=True))
        self._store(printable(self._newlines.decode("", final=True)))
        self._escape = ""

    def text(self) -> str:
        """What is kept."""
        self._cut()
        return self._data.decode("utf-8")

    def dropped(self) -> tuple[int, int]:
        """Bytes that were dropped, and how many line ends were among them."""
        self._cut()
        return self._dropped_bytes, self._dropped_lines

    def notice(self) -> str:
        """What to tell a reader about what is not there; empty if all of it is."""
        size, lines = self.dropped()
        if not size:
            return ""
        where = "before" if self._mode == "tail" else "after"
        return f"[{size:,} bytes in {lines:,} lines {where} this were left out]"

    def take_operations(self, path: str) -> list[dict[str, Any]]:
        """The change of the text at `path` since the last call, for a document; the text there was empty at first."""
        self._cut()
        new = self._data[self._taken :].decode("utf-8")
        rewritten, self._rewritten, self._taken = self._rewritten, False, len(self._data)
        if rewritten:
            return [{"op": "replace", "path": path, "value": self._data.decode("utf-8")}]
        return [{"op": "append", "path": path, "value": new}] if new else []

    def _add(self, text: str) -> None:
        text = self._escape + self._newlines.decode(text)
        self._escape = ""
        last = text.rfind("\x1b", -ESCAPE_CHARACTERS)
        if last >= 0 and _is_unfinished(text[last:]):
            text, self._escape = text[:last], text[last:]
        self._store(printable(text))

    def _store(self, text: str) -> None:
        data = text.encode("utf-8")
        if self._full:
            self._dropped_bytes += len(data)
            self._dropped_lines += data.count(b"\n")
            return
        self._data += data
        if len(self._data) > self._max_bytes + SLACK_BYTES:
            self._cut()

    def _cut(self) -> None:
        begin, end = self._head() if self._mode == "head" else self._tail()
        if begin == 0 and end == len(self._data):
            return
        gone = self._data[:begin] + self._data[end:]
        self._dropped_bytes += len(gone)
        self._dropped_lines += gone.count(b"\n")
        self._rewritten = self._rewritten or (begin > 0 and self._taken > 0) or self._taken > end
        self._taken = max(0, min(self._taken, end) - begin)
        del self._data[end:]
        del self._data[:begin]

    def _head(self) -> tuple[int, int]:
        data, end = self._data, len(self._data)
        if end > self._max_bytes:
            end = data.rfind(b"\n", 0, self._max_bytes) + 1 or _character_before(data, self._max_bytes)
        if data.count(b"\n", 0, end) >= self._max_lines:
            end = _after_lines(data, 0, self._max_lines)
        self._full = self._full or end < len(data)
        return 0, end

    def _tail(self) -> tuple[int, int]:
        data, size = self._data, len(self._data)
        begin = 0
        if size > self._max_bytes:
            begin = data.find(b"\n", size - self._max_bytes - 1) + 1
            if begin in (0, size):  # the last line alone is too long
                begin = _character_after(data, size - self._max_bytes)
                self._broken_line = True
                return begin, size
        elif self._broken_line and 0 < data.find(b"\n") + 1 < size:
            begin = data.find(b"\n") + 1
        self._broken_line = self._broken_line and begin == 0
        lines = data.count(b"\n", begin) + (not data.endswith(b"\n"))
        if lines > self._max_lines:
            begin = _after_lines(data, begin, lines - self._max_lines)
            self._broken_line = False
        return begin, size


def _is_unfinished(escape: str) -> bool:
    """Whether the text from an escape character on may be a sequence whose end has not come."""
    if len(escape) == 1:
        return True
    if escape[1] == "[":
        return not any("@" <= character <= "~" for character in escape[2:])
    return escape[1] in "]P_^X" and "\x07" not in escape


def _after_lines(data: bytearray, begin: int, count: int) -> int:
    """The offset behind the next `count` line ends."""
    for _ in range(count):
        begin = data.find(b"\n", begin) + 1
    return begin


def _character_before(data: bytearray, offset: int) -> int:
    while 0 < offset < len(data) and data[offset] & 0xC0 == 0x80:
        offset -= 1
    return offset


def _character_after(data: bytearray, offset: int) -> int:
    while offset < len(data) and data[offset] & 0xC0 == 0x80:
        offset += 1
    return offset


class Throttle:
    """Calls `commit` at a bearable pace while there is something new.

    The first commit comes `SHORTEST` seconds after the first `touch`, so that what ends sooner costs none. After each
    one the pause grows with the time it took and with the bytes it wrote (`commit` returns them), up to `LONGEST`.
    Commits never overlap. An error of one stops the throttle and comes out of `flush` or `close`.
    """

    SHORTEST: Final = 0.1
    LONGEST: Final = 1.0
    SHARE: Final = 0.1
    """At most this part of the time goes into commits."""
    BYTES_PER_SECOND: Final = 128 * 1024
    """What a stream may write to the store in the long run."""

    def __init__(self, clock: Clock, commit: Callable[[], Awaitable[int]]) -> None:
        self._clock = clock
        self._commit = commit
        self._pause = self.SHORTEST
        self._dirty = False
        self._closed = False
        self._cancel_alarm: Callable[[], None] | None = None
        self._running: asyncio.Task[None] | None = None
        self._error: BaseException | None = None

    @property
    def pause(self) -> float:
        """Seconds between the end of a commit and the next one, as of now."""
        return self._pause

    def touch(self) -> None:
        """There is something new to commit. Costs nothing while a commit is due already."""
        self._dirty = True
        if self._cancel_alarm is None and self._running is None and not self._closed and self._error is None:
            self._cancel_alarm = self._clock.call_at(self._clock.now() + self._pause, self._begin)

    async def flush(self) -> None:
        """Commit now what is new, after a commit that runs. Raises what a commit raised."""
        self._stop_alarm()
        await self._finish_running()
        if self._dirty and self._error is None:
            self._begin()
            await self._finish_running()
        if self._error is not None:
            raise self._error

    async def close(self) -> None:
        """Commit no more; what is new is left to the caller's own last commit. Waits for a commit that runs."""
        self._closed = True
        self._stop_alarm()
        await self._finish_running()
        if self._error is not None:
            raise self._error

    def _begin(self) -> None:
        self._cancel_alarm = None
        self._dirty = False
        self._running = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        started = self._clock.monotonic()
        try:
            written = await self._commit()
        except BaseException as error:
            self._error = error
            if isinstance(error, asyncio.CancelledError):
                raise
        else:
            took = self._clock.monotonic() - started
            wanted = max(took / self.SHARE, written / self.BYTES_PER_SECOND)
            self._pause = min(max(wanted, self.SHORTEST), self.LONGEST)
        finally:
            self._running = None
        if self._dirty:
            self.touch()

    async def _finish_running(self) -> None:
        while (running := self._running) is not None:
            # the caller may be cancelled; the commit is not
            await asyncio.wait([running])
            self._stop_alarm()

    def _stop_alarm(self) -> None:
        if self._cancel_alarm is not None:
            self._cancel_alarm()
            self._cancel_alarm = None
