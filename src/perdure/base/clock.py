"""Time, passed in everywhere. Seconds since the epoch as float in public, whole milliseconds in storage."""

import asyncio
import math
import time
from collections.abc import Callable
from datetime import datetime
from typing import Final, Protocol

from perdure.base.errors import InvalidValue

MINUTE: Final = 60.0
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR


class Clock(Protocol):
    """The time of day and alarms. A test clock jumps; the system clock follows a changed wall clock."""

    def now(self) -> float:
        """Seconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds of a clock that never goes back, for throttles and durations."""
        ...

    def call_at(self, when: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back on the event loop once `now() >= when`. Returns a function that cancels; it may be called twice."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait by this clock."""
        ...


class SystemClock:
    """The machine's clock. An alarm looks at the wall clock at least once a minute, so a changed clock is seen."""

    RECHECK_SECONDS: Final = 60.0

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def call_at(self, when: float, callback: Callable[[], None]) -> Callable[[], None]:
        loop = asyncio.get_running_loop()
        handle: asyncio.TimerHandle | None = None
        cancelled = False

        def check() -> None:
            nonlocal handle
            if cancelled:
                return
            left = when - time.time()
            if left <= 0:
                callback()
            else:
                handle = loop.call_later(min(left, self.RECHECK_SECONDS), check)

        def cancel() -> None:
            nonlocal cancelled
            cancelled = True
            if handle is not None:
                handle.cancel()

        handle = loop.call_soon(check)  # type: ignore[assignment]
        return cancel

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def to_seconds(when: float | datetime) -> float:
    """A public time as seconds since the epoch. A datetime must be aware."""
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise InvalidValue(
                "a datetime without a time zone", hint="use an aware datetime or seconds since the epoch"
            )
        return when.timestamp()
    number: object = when
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
        raise InvalidValue(f"not a time: {when!r}", hint="seconds since the epoch, or an aware datetime")
    return float(number)


def to_millis(seconds: float) -> int:
    """A deadline as whole milliseconds, rounded up, so that it is never early."""
    return -(-_micros(seconds) // 1000)


def passed_millis(seconds: float) -> int:
    """A moment as the whole milliseconds that have passed by then, so that it is never behind a later deadline."""
    return _micros(seconds) // 1000


def _micros(seconds: float) -> int:
    """To the microsecond: a float of today's date carries no more, and a whole millisecond has to stay one."""
    return round(seconds * 1_000_000)
