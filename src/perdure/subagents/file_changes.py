"""When a file may have changed: told by the kernel, and without it looked for once a second."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

POLL_SECONDS: Final = 1.0


async def file_changes(path: Path) -> AsyncIterator[None]:
    """Yields whenever the file, or what it links to, may be another one or have other content. Costs nothing in between
    where inotify(7) can be had; its instances are limited per user, so it is not everywhere."""
    with contextlib.suppress(ImportError, OSError, RuntimeError):
        while True:
            async for _ in _told_by_kernel(str(path)):
                yield
    while True:
        await asyncio.sleep(POLL_SECONDS)
        yield


async def _told_by_kernel(path: str) -> AsyncIterator[None]:
    from asyncinotify import Inotify, Mask

    real = _target(path)
    names = {os.path.basename(path), os.path.basename(real)}
    with Inotify() as inotify:
        for folder in {os.path.dirname(path), os.path.dirname(real)}:
            inotify.add_watch(folder, Mask.CLOSE_WRITE | Mask.MOVED_TO | Mask.CREATE | Mask.DELETE | Mask.MOVED_FROM)
        yield  # what changed before it was watched
        async for event in inotify:
            if event.name is None or os.path.basename(str(event.name)) in names:
                yield
                if _target(path) != real:
                    return  # another file is meant now


def _target(path: str) -> str:
    return os.path.realpath(path)
