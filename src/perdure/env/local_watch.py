"""Changes below a folder of this machine. Where `watchfiles` is installed, the system says when to look."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, Final

from perdure.env import watching
from perdure.env.errors import env_error
from perdure.env.protocol import Change

WORD_MILLISECONDS: Final = 2_000
"""Without word for so long one looks all the same: some file systems, of networks and containers, say nothing."""
GATHER_MILLISECONDS: Final = 50
"""What changes within this is told together."""


class LocalWatching:
    """Changes since it was made. Use it in `async with`."""

    def __init__(self, path: str, state: watching.State) -> None:
        self._path = path
        self._state = state
        self._pause = watching.PAUSE_SECONDS
        self._words = _system_words(path)

    def __aiter__(self) -> AsyncIterator[tuple[Change, ...]]:
        return self

    async def __anext__(self) -> tuple[Change, ...]:
        """The next batch. Raises `EnvError` where there are too many files to look at."""
        while True:
            await self._wait()
            begin = time.monotonic()
            try:
                now = await asyncio.to_thread(watching.look_again, self._path)
            except OSError as error:
                raise env_error(error, self._path) from error
            self._pause = max(watching.PAUSE_SECONDS, watching.LOOKING_SHARE * (time.monotonic() - begin))
            changes = watching.differences(self._state, now)
            self._state = now
            if changes:
                return tuple(Change(kind, path) for kind, path in changes)

    async def __aenter__(self) -> "LocalWatching":
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._words is not None:
            async with aclosing(self._words):
                pass

    async def _wait(self) -> None:
        if self._words is not None:
            try:
                await anext(self._words)
                return
            except (OSError, RuntimeError, StopAsyncIteration):
                self._words = None  # no more watches are to be had of the system
        await asyncio.sleep(self._pause)


def _system_words(path: str) -> AsyncGenerator[Any, None] | None:
    try:
        from watchfiles import awatch
    except ImportError:
        return None
    return awatch(
        path,
        watch_filter=None,
        debounce=GATHER_MILLISECONDS,
        step=GATHER_MILLISECONDS // 5,
        rust_timeout=WORD_MILLISECONDS,
        yield_on_timeout=True,
    )
