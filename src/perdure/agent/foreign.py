"""Calling code that is not ours: hooks, gates, sections, environments. Whatever it does, the agent goes on."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from perdure.base.errors import Error, SessionClosed, SessionPoisoned

LOST: Final = (SessionClosed, SessionPoisoned)
"""Failures of our own session: nothing more can be stored, so nothing is decided either."""


class StrayCancellation(Error):
    """Foreign code raised a cancellation that nobody had asked for."""

    code = "stray_cancellation"


class _Closable(Protocol):
    async def close(self) -> None: ...


async def asked(function: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
    """Call it. A `CancelledError` of its own becomes an ordinary error; the caller's cancellation passes through."""
    try:
        return await function(*arguments)
    except asyncio.CancelledError as error:
        if being_cancelled():
            raise
        raise StrayCancellation("it cancelled itself") from error


def being_cancelled() -> bool:
    """Whether somebody has asked the running code to stop."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def close_quietly(agent: Any, thing: _Closable) -> None:
    """Close it; what goes wrong is reported, since what it was needed for is done."""
    try:
        await asked(thing.close)
    except LOST:
        raise
    except Exception as error:
        agent.report("closing an environment", error)
