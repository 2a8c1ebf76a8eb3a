"""One writer at a time for each file, among the tools of one process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from perdure.env.protocol import ExecutionEnv

_locks: WeakValueDictionary[tuple[int, str, str], asyncio.Lock] = WeakValueDictionary()


@asynccontextmanager
async def writing(env: ExecutionEnv, path: str) -> AsyncIterator[None]:
    """Hold the file while the block reads, changes and writes it. Links to one file share its lock."""
    key = (id(asyncio.get_running_loop()), env.id, await env.resolve(path))
    lock = _locks.get(key)
    if lock is None:
        lock = _locks[key] = asyncio.Lock()
    async with lock:
        yield
