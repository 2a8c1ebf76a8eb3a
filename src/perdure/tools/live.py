"""A command's output on its way to whoever watches: at a pace, and no more of it than they can see."""

import asyncio
from collections.abc import Callable
from typing import Final

PACE_SECONDS: Final = 0.05
"""Between two pieces that are shown; a watcher is told ten times a second at most."""
KEPT_CHARACTERS: Final = 64 * 1024
"""Of what comes within that time. A view holds the newest 50 KiB, so the rest would be cleaned and dropped unseen."""
LOOSE_PIECES: Final = 1_000
"""Pieces before they are joined, so that a flood of tiny ones costs little."""


class LiveOutput:
    """Passes text on. Of a flood only the newest is: cleaning 200 MB for a view takes a minute, skipping it a second.

    Use it in `with`: nothing is shown after the block.
    """

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._pieces: list[str] = []
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> "LiveOutput":
        return self

    def __exit__(self, *exc: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def add(self, text: str) -> None:
        """Show this soon."""
        if not text:
            return
        self._pieces.append(text)
        self._size += len(text)
        if self._size > 2 * KEPT_CHARACTERS or len(self._pieces) > LOOSE_PIECES:
            kept = "".join(self._pieces)
            if len(kept) > 2 * KEPT_CHARACTERS:
                kept = kept[-KEPT_CHARACTERS:]
                kept = kept[kept.find("\n", 0, KEPT_CHARACTERS // 2) + 1 :]  # a view then begins with a whole line
            self._pieces, self._size = [kept], len(kept)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PACE_SECONDS, self.flush)

    def flush(self) -> None:
        """Show now what came since the last time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        text = "".join(self._pieces)
        self._pieces, self._size = [], 0
        if text:
            self._show(text)
