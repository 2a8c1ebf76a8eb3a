"""One writer at a time for each file, among the tools of one process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from weakref import WeakKeyDictionary, WeakValueDictionary

from perdure.env.protocol import ExecutionEnv

Locks = WeakValueDictionary[tuple[str, str], asyncio.Lock]

_locks: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Locks]] = WeakKeyDictionary()
"""By event loop, since a lock belongs to one. An entry lives as long as somebody holds or awaits it."""


@asynccontextmanager
async def writing(env: ExecutionEnv, path: str) -> AsyncIterator[None]:
    """Hold a file while the block reads, changes and writes it; others wait in order. Links to a file share its lock.

    Other processes are not kept out: a write of theirs is seen or overwritten as a whole.
    """
    key = (env.id, await env.resolve(path))
    locks = _locks.setdefault(asyncio.get_running_loop(), WeakValueDictionary())
    lock = locks.get(key)
    if lock is None:
        lock = locks[key] = asyncio.Lock()
    async with lock:
        yield
