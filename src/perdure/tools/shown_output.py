"""A command's output on its way to people and to the model: bounded, the whole of it kept in a file when it is long."""

import os
import tempfile
from typing import IO, Final

from perdure.base.text import cut_head, cut_tail, printable, stream_decoder

HEAD_BYTES: Final = 10 * 1024
TAIL_BYTES: Final = 40 * 1024
"""What the model sees of a long output: its beginning and its end, 50 KiB in all."""
TAIL_LINES: Final = 2_000
SPILL_BYTES: Final = 64 * 1024 * 1024
"""How much of a long output is kept in a file; a command that never stops writing must not fill the disk."""


class ShownOutput:
    """Collects raw output; memory holds its head and tail only, the rest goes to a spill file."""

    def __init__(self, folder: str | None = None) -> None:
        self._decoder = stream_decoder()
        self._head = ""
        self._tail = ""
        self._size = 0
        self._spill: IO[bytes] | None = None
        self._path = ""
        self._spilled = 0
        self._kept = bytearray()
        self._folder = folder

    def add(self, data: bytes) -> str:
        """Take raw bytes; returns them as text for whoever watches."""
        self._size += len(data)
        self._keep(data)
        text: str = self._decoder.decode(data)
        if len(self._head) < HEAD_BYTES:
            room = HEAD_BYTES - len(self._head)
            self._head += text[:room]
            self._tail += text[room:]
        else:
            self._tail += text
        if len(self._tail) > 4 * TAIL_BYTES:
            self._tail = self._tail[-2 * TAIL_BYTES :]
        return text

    def end(self) -> str:
        """No more output: the text for the model, with what was left out and where it is."""
        rest = self._decoder.decode(b"", True)
        self._tail += rest
        if self._spill is not None:
            self._spill.close()
        if self._size <= HEAD_BYTES + TAIL_BYTES:
            return printable(self._head + self._tail)
        head = cut_head(printable(self._head), HEAD_BYTES)
        tail = printable(self._tail)
        lines = tail.split("\n")
        tail = cut_tail("\n".join(lines[-TAIL_LINES:]), TAIL_BYTES)
        left = max(0, self._size - len(head.encode()) - len(tail.encode()))
        where = ""
        if self._spill is not None:
            part = "all of it" if self._size <= SPILL_BYTES else f"the first {SPILL_BYTES >> 20} MiB"
            where = f"; {part} is in {self._path}"
        return f"{head}\n[… {left} bytes left out{where} …]\n{tail}"

    def _keep(self, data: bytes) -> None:
        """The whole output goes to a file as soon as it is longer than what is shown."""
        if self._spill is None:
            self._kept += data
            if self._size <= HEAD_BYTES + TAIL_BYTES:
                return
            descriptor, path = tempfile.mkstemp(prefix="perdure-output-", suffix=".txt", dir=self._folder)
            self._spill = os.fdopen(descriptor, "wb")
            self._path = path
            data = bytes(self._kept)
            self._kept = bytearray()
        room = SPILL_BYTES - self._spilled
        self._spill.write(data[:room])
        self._spilled += len(data[:room])
