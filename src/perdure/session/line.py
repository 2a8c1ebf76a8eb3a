"""The mutation line: one holder at a time, in order of asking."""

import asyncio
import time
from collections import deque
from types import FrameType
from typing import Any, Final

from perdure.base.errors import Error, NestedTransaction
from perdure.base.frozen import debugging

LONG_HOLD_SECONDS: Final = 5.0
"""A block held longer than this while others wait is reported: it does work that belongs outside the line."""


class Line:
    """A fair lock that knows its holder. Not reentrant: the holder asking again is told so at once."""

    def __init__(self) -> None:
        self._holder: object | None = None
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._askers: dict[asyncio.Future[None], asyncio.Task[Any] | None] = {}
        """Whose turn each waiter is, for reports."""
        self._closed: Error | None = None
        self._since = 0.0

    @property
    def busy(self) -> bool:
        return self._holder is not None

    async def acquire(self) -> None:
        """Wait for the turn. A waiter that is cancelled before its turn withdraws."""
        task = asyncio.current_task()
        if self._holder is task and task is not None:
            raise NestedTransaction(
                "a transaction was opened inside a transaction of the same code",
                hint="use the open one, or close it first",
            )
        if self._closed is not None:
            raise self._closed
        if self._holder is None and not self._waiters:
            self._take(task)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(turn)
        self._askers[turn] = task
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.release()  # the turn had come in the same moment: pass it on
            else:
                self._waiters = deque(waiter for waiter in self._waiters if waiter is not turn)
            raise
        finally:
            del self._askers[turn]
        self._take(task)

    def release(self) -> None:
        """Give the line to the next in order."""
        self._holder = None
        while self._waiters:
            turn = self._waiters.popleft()
            if not turn.done():
                self._holder = turn  # nobody may slip in before the waiter runs
                turn.set_result(None)
                return

    def close(self, error: Error) -> None:
        """Everybody who waits, and everybody who comes later, gets the error."""
        self._closed = error
        while self._waiters:
            turn = self._waiters.popleft()
            if not turn.done():
                turn.set_exception(error)

    def long_hold(self) -> dict[str, Any] | None:
        """What holds the line for too long while others wait, with its stack and that of the first who waits; None
        when all is well."""
        held = time.monotonic() - self._since
        if self._holder is None or not self._waiters or held < LONG_HOLD_SECONDS:
            return None
        return {
            "seconds": round(held, 3),
            "waiting": len(self._waiters),
            "stack": _stack(self._holder),
            "waiter": _stack(self._askers.get(self._waiters[0])),
        }

    def check_hold(self) -> None:
        """In debug mode a block that held the line for too long is an error and rolls back."""
        if self._waiters and debugging() and (report := self.long_hold()) is not None:
            raise Error(
                f"a transaction held the line for {report['seconds']} s while {report['waiting']} waited",
                hint="do model calls, tools and network outside the block",
            )

    def _take(self, task: object | None) -> None:
        self._holder = task
        self._since = time.monotonic()


def _stack(holder: object | None) -> list[str]:
    """Where a task's code stands, outermost first."""
    if not isinstance(holder, asyncio.Task):
        return []
    frames: list[FrameType] = []
    awaited: Any = holder.get_coro()
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is None:
            break
        frames.append(frame)
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return [f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}" for frame in frames]
