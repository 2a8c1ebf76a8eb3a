"""A command's output on its way to people and to the model: memory holds its two ends, a file the whole of it."""

import codecs
import contextlib
import os
import tempfile
from typing import IO, Final

from perdure.base.text import cut_head, cut_tail, printable, stream_decoder

HEAD_BYTES: Final = 10 * 1024
TAIL_BYTES: Final = 40 * 1024
"""What the model sees of a long output, 50 KiB in all: mostly its end, where commands say how they fared."""
HEAD_LINES: Final = 400
TAIL_LINES: Final = 1_600
HELD_FACTOR: Final = 4
"""More is held than shown, because escapes and overwritten lines go before showing."""
LOOSE_PIECES: Final = 1_000
"""Pieces of the tail before they are joined, so that a million tiny ones cost little."""
SPILL_BYTES: Final = 1024 * 1024 * 1024
"""What the file takes at most: a command that never stops writing must not fill the disk."""


class ShownOutput:
    """Collects what a command writes. With `spill` an output that is too long to show is kept in a temporary file.

    The file belongs to whoever reads it: it is left to the system's cleaning of its temporary folder.
    """

    def __init__(self, *, spill: bool, folder: str | None = None) -> None:
        self._decoders: dict[str, codecs.IncrementalDecoder] = {}
        self._head = ""
        self._pieces: list[str] = []
        self._loose = 0
        self._gap = False
        """Something between head and tail is held no more."""
        self._size = 0
        self._spill = _Spill(folder) if spill else None

    def add(self, stream: str, data: bytes) -> str:
        """Take raw bytes of one of the streams; returns them as text. A character cut in two comes with its end."""
        self._size += len(data)
        if self._spill is not None:
            self._spill.add(data)
        decoder = self._decoders.get(stream)
        if decoder is None:
            decoder = self._decoders[stream] = stream_decoder()
        text = decoder.decode(data)
        self._keep(text)
        return text

    def end(self) -> str:
        """No more output: the text for the model, with what was left out and where the whole of it is."""
        self._keep("".join(decoder.decode(b"", True) for decoder in self._decoders.values()))
        tail = "".join(self._pieces)
        if not self._gap:
            text = printable(self._head + tail)
            if len(text.encode()) <= HEAD_BYTES + TAIL_BYTES and text.count("\n") <= HEAD_LINES + TAIL_LINES:
                self.discard()
                return text
            head = _head(text)
            tail = _tail(text[len(head) :])
        else:
            head, tail = _head(printable(self._head)), _tail(printable(tail))
        left = max(0, self._size - len(head.encode()) - len(tail.encode()))
        where = self._spill.finish() if self._spill is not None else ""
        return f"{head.rstrip()}\n[… {left:,} of {self._size:,} bytes left out here{where} …]\n{tail}"

    def discard(self) -> None:
        """The call ends without a result: no file is left."""
        if self._spill is not None:
            self._spill.remove()

    def _keep(self, text: str) -> None:
        room = HELD_FACTOR * HEAD_BYTES - len(self._head)
        if room > 0:
            self._head += text[:room]
            text = text[room:]
        if not text:
            return
        self._pieces.append(text)
        self._loose += len(text)
        held = HELD_FACTOR * TAIL_BYTES
        if self._loose > held or len(self._pieces) > LOOSE_PIECES:
            tail = "".join(self._pieces)
            self._gap = self._gap or len(tail) > 2 * held
            tail = tail[-held:] if len(tail) > 2 * held else tail
            self._pieces, self._loose = [tail], 0


class _Spill:
    """The whole output, in memory until it is too long to show, then in a file. A full disk ends it silently."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._pending = bytearray()
        self._file: IO[bytes] | None = None
        self._path: str | None = None
        self._size = 0
        self.cut = False
        """Not all of it is in the file."""

    def add(self, data: bytes) -> None:
        self._size += len(data)
        if self.cut:
            return
        if self._size > SPILL_BYTES:
            self.cut = True
            return
        if self._file is None:
            self._pending += data
            if self._size <= HEAD_BYTES + TAIL_BYTES:
                return
            data, self._pending = bytes(self._pending), bytearray()
        self._write(data)

    def finish(self) -> str:
        """Where the output is, as the notice goes on."""
        if self._pending:  # few bytes, but too many lines
            self._write(bytes(self._pending))
        self._close()
        if self._path is None:
            return ""
        return f"; {'the first part of it' if self.cut else 'all of it'} is in {self._path}"

    def remove(self) -> None:
        """It is not needed."""
        self._close()
        if self._path is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._path)
            self._path = None

    def _write(self, data: bytes) -> None:
        try:
            if self._file is None:
                descriptor, self._path = tempfile.mkstemp(prefix="perdure-output-", suffix=".txt", dir=self._folder)
                self._file = os.fdopen(descriptor, "wb")
            self._file.write(data)
        except OSError:
            self.cut = True

    def _close(self) -> None:
        try:
            if self._file is not None:
                self._file.close()
        except OSError:
            self.cut = True


def _head(text: str) -> str:
    """Whole lines, but for a first one that is too long."""
    end = -1
    for _ in range(HEAD_LINES):
        end = text.find("\n", end + 1, 2 * HEAD_BYTES)
        if end < 0:
            break
    kept = text[: end + 1 if end >= 0 else 2 * HEAD_BYTES]
    cut = cut_head(kept, HEAD_BYTES)
    return cut[: cut.rfind("\n") + 1] or cut


def _tail(text: str) -> str:
    """Whole lines, but for a last one that is too long."""
    lines = text[-2 * TAIL_BYTES :].split("\n")
    kept = "\n".join(lines[-TAIL_LINES - (not lines[-1]) :])
    cut = cut_tail(kept, TAIL_BYTES)
    begin = cut.find("\n") + 1
    return cut[begin:] if 0 < begin < len(cut) and len(cut) < len(kept) else cut
