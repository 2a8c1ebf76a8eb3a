"""Running a coroutine at once, without a task of its own unless it has to wait."""

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any


class _Rest:
    """A coroutine that has begun to wait for a future, as something a task can go on with."""

    def __init__(self, coroutine: Coroutine[Any, Any, None], awaited: Any) -> None:
        self._coroutine = coroutine
        self._awaited = awaited

    def __await__(self) -> Generator[Any, Any, None]:
        awaited = self._awaited
        while True:
            try:
                value = yield awaited
            except BaseException as error:
                step = lambda error=error: self._coroutine.throw(error)  # noqa: E731
            else:
                step = lambda value=value: self._coroutine.send(value)  # noqa: E731
            try:
                awaited = step()
            except StopIteration:
                return


async def _finish(rest: _Rest) -> None:
    await rest


def run_eagerly(coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None] | None":
    """Run until it ends (None) or waits (a task that goes on with it). What it raises at once is raised here.

    Its first stretch runs in the caller's task, so it must not bind itself to the current task before it waits.
    """
    try:
        awaited = coroutine.send(None)
    except StopIteration:
        return None
    return asyncio.ensure_future(_finish(_Rest(coroutine, awaited)))
