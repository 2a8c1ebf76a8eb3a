"""A clock that stands still until it is told to move."""

import asyncio
import heapq
from collections.abc import Callable


class FakeClock:
    """A clock for tests. Time moves only by `advance` and `jump_to`; alarms that come due are called in order."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self._now = now
        self._monotonic = 0.0
        self._alarms: list[tuple[float, int, Callable[[], None]]] = []
        self._cancelled: set[int] = set()
        self._count = 0

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def call_at(self, when: float, callback: Callable[[], None]) -> Callable[[], None]:
        self._count += 1
        number = self._count
        if when <= self._now:
            asyncio.get_running_loop().call_soon(lambda: None if number in self._cancelled else callback())
        else:
            heapq.heappush(self._alarms, (when, number, callback))
        return lambda: self._cancelled.add(number)

    async def sleep(self, seconds: float) -> None:
        done = asyncio.get_running_loop().create_future()
        cancel = self.call_at(self._now + seconds, lambda: None if done.done() else done.set_result(None))
        try:
            await done
        finally:
            cancel()

    def next_alarm(self) -> float | None:
        """When the earliest alarm is due, or None."""
        while self._alarms and self._alarms[0][1] in self._cancelled:
            heapq.heappop(self._alarms)
        return self._alarms[0][0] if self._alarms else None

    async def advance(self, seconds: float) -> None:
        """Move forward, calling each alarm at its own time and letting the woken code run in between.

        To the microsecond: sums of steps come to the moments that they name, and not to just before them.
        """
        await self.jump_to(round(self._now + seconds, 6))

    async def jump_to(self, when: float) -> None:
        """Move to a moment. Going back moves only the wall clock, never the monotonic one."""
        while (due := self.next_alarm()) is not None and due <= when:
            _, number, callback = heapq.heappop(self._alarms)
            self._set(max(due, self._now))
            if number not in self._cancelled:
                callback()
            await settle()
        self._set(when)
        await settle()

    def _set(self, when: float) -> None:
        self._monotonic += max(0.0, when - self._now)
        self._now = when


async def settle(rounds: int = 50) -> None:
    """Let everything that is ready on the event loop run."""
    for _ in range(rounds):
        await asyncio.sleep(0)
