"""What a running tool shows: a bounded buffer of its output, and the pace at which it is stored."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Final, Literal

from perdure.base.clock import Clock
from perdure.base.delta import Operation
from perdure.base.text import cut_head, cut_tail, printable, stream_decoder, well_formed

Mode = Literal["head", "tail"]

MAX_BYTES: Final = 50 * 1024
"""Bytes of UTF-8 that are kept: about 12,000 tokens, which any window takes several times."""

MAX_LINES: Final = 2_000
"""Lines that are kept, the last one also if it has not ended."""

SLACK_BYTES: Final = 64 * 1024
"""What may gather beyond the limit before it is cut, so that a cut is paid by what came since the last one."""

UNFINISHED_CHARACTERS: Final = 4_096
"""A terminal's escape sequence that is longer than this is not waited for."""

_UNFINISHED: Final = r"(?:\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\x9c]*|[ -/]*)|[\ud800-\udbff])\Z"
"""The beginning of an escape sequence, or of a character, whose rest may come with the next chunk."""


class OutputBuffer:
    """The beginning or the end of a stream of text, in whole lines.

    Appending costs the size of the chunk, whatever came before; memory stays within the limit plus the slack. Control
    characters and terminal escapes are removed, a line that a carriage return begins anew is replaced, broken UTF-8
    becomes U+FFFD; also where a chunk cuts through any of them. A single line beyond the limit is cut at a character.
    """

    def __init__(self, *, mode: Mode = "tail", max_bytes: int = MAX_BYTES, max_lines: int = MAX_LINES) -> None:
        self._mode = mode
        self._max_bytes = max_bytes
        self._max_lines = max_lines
        self._decoder = stream_decoder()
        self._unfinished = ""
        self._returned = False
        """A carriage return came last: the line ends or begins anew."""
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
        whole = not self._unfinished and not self._returned and len(chunk) <= SLACK_BYTES and chunk.isascii()
        if whole and isinstance(chunk, str) and chunk.replace("\n", "").isprintable():
            self._store(chunk)  # most of what tools write, and some write a million pieces
            return
        for begin in range(0, len(chunk), SLACK_BYTES):
            piece = chunk[begin : begin + SLACK_BYTES]
            self._add(piece if isinstance(piece, str) else self._decoder.decode(piece))

    def end(self) -> None:
        """The stream is over: what waits for a rest that never came is added as it is."""
        self._add(self._decoder.decode(b"", final=True))
        rest, self._unfinished = self._unfinished, ""
        self._add_lines(printable(well_formed(rest)))

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

    def take_operations(self, path: str) -> list[Operation]:
        """The change of the text at `path` since the last call, for a document; the text there was empty at first."""
        self._cut()
        op, begin = ("replace", 0) if self._rewritten else ("append", self._taken)
        new = self._data[begin:].decode("utf-8")
        changed = self._rewritten or new != ""
        self._rewritten, self._taken = False, len(self._data)
        return [{"op": op, "path": path, "value": new}] if changed else []

    def _add(self, text: str) -> None:
        text = self._unfinished + text
        found = re.compile(_UNFINISHED).search(text, max(0, len(text) - UNFINISHED_CHARACTERS))
        text, self._unfinished = (text[: found.start()], text[found.start() :]) if found else (text, "")
        text = well_formed(text)
        # escapes may stand between a carriage return and what it means, so they go first
        self._add_lines("\r".join(map(printable, text.split("\r"))) if "\r" in text else printable(text))

    def _add_lines(self, text: str) -> None:
        if self._returned:
            text = "\r" + text
        kept = text.rstrip("\r")
        self._returned = len(kept) < len(text)
        if "\r" in kept:
            if "\r" in kept.partition("\n")[0].rstrip("\r"):
                self._erase_line()
            kept = printable(kept)
        if kept:
            self._store(kept)

    def _erase_line(self) -> None:
        begin = self._data.rfind(b"\n") + 1
        if self._full or begin == len(self._data):
            return
        del self._data[begin:]
        self._broken_line = self._broken_line and begin > 0
        self._rewritten = self._rewritten or self._taken > begin
        self._taken = min(self._taken, begin)

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
            end = data.rfind(b"\n", 0, self._max_bytes) + 1
            end = end or len(cut_head(data.decode(), self._max_bytes).encode())
        if data.count(b"\n", 0, end) >= self._max_lines:  # the next one, begun or not, is one too many
            end = _after_lines(data, 0, self._max_lines)
        self._full = self._full or end < len(data)
        return 0, end

    def _tail(self) -> tuple[int, int]:
        data, size = self._data, len(self._data)
        begin = 0
        if size > self._max_bytes:
            begin = data.find(b"\n", size - self._max_bytes - 1) + 1
            if begin in (0, size):  # the last line alone is too long
                self._broken_line = True
                return size - len(cut_tail(data.decode(), self._max_bytes).encode()), size
        elif self._broken_line and 0 < data.find(b"\n") + 1 < size:
            begin = data.find(b"\n") + 1
        self._broken_line = self._broken_line and begin == 0
        lines = data.count(b"\n", begin) + (not data.endswith(b"\n"))
        if lines > self._max_lines:
            begin = _after_lines(data, begin, lines - self._max_lines)
            self._broken_line = False
        return begin, size


def _after_lines(data: bytearray, begin: int, count: int) -> int:
    """The offset behind the next `count` line ends."""
    for _ in range(count):
        begin = data.find(b"\n", begin) + 1
    return begin


class Throttle:
    """Calls `commit` at a bearable pace while there is something new.

    The first commit comes `SHORTEST` seconds after the first `touch`, so that what ends sooner costs none. The pause
    after each one grows with the time it took and with the bytes it wrote (`commit` returns them), up to `LONGEST`.
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
        self._ended: float | None = None
        """When the newest commit ended, on the monotonic clock."""
        self._dirty = False
        self._closed = False
        self._cancel_alarm: Callable[[], None] | None = None
        self._running: asyncio.Task[None] | None = None
        self._error: Exception | None = None

    @property
    def pause(self) -> float:
        """Seconds between the end of a commit and the next one, as of now."""
        return self._pause

    def touch(self) -> None:
        """There is something new to commit. Costs nothing while a commit is due already."""
        self._dirty = True
        if self._cancel_alarm is None and self._running is None and not self._closed and self._error is None:
            passed = 0.0 if self._ended is None else self._clock.monotonic() - self._ended
            self._cancel_alarm = self._clock.call_at(self._clock.now() + max(0.0, self._pause - passed), self._begin)

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
        except Exception as error:
            self._error = error
        except BaseException:
            self._dirty = True
            raise
        else:
            took = self._clock.monotonic() - started
            wanted = max(took / self.SHARE, written / self.BYTES_PER_SECOND)
            self._pause = min(max(wanted, self.SHORTEST), self.LONGEST)
        finally:
            self._running = None
            self._ended = self._clock.monotonic()
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
