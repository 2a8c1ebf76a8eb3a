"""Events of a conversation, one after the other."""

from collections import deque
from collections.abc import Callable
from typing import Any, Self

from perdure.session.watch import Watch


class EventStream:
    """One consumer of a conversation's events (`perdure.events`). The first is a `Snapshot`, unless a cursor was
    taken up; a consumer that lags gets another one in place of what it missed.

    Iterating ends when the stream is stopped or the session closes; `ended` tells which: "stopped", "closed".
    """

    def __init__(self, watch: Watch, first: list[Any], derive: Callable[[Any], list[Any]]) -> None:
        self._watch = watch
        self._derive = derive
        self._ready: deque[Any] = deque(first)
        self._cursor = watch.cursor

    @property
    def ended(self) -> str | None:
        """How it ended; None while it goes on."""
        return self._watch.ended

    @property
    def cursor(self) -> str:
        """Where to go on with `events(after=…)`: behind the newest commit whose events were all handed out."""
        return self._cursor if self._ready else self._watch.cursor

    @property
    def resumed(self) -> bool:
        """Whether the cursor that was given could be taken up: then no snapshot comes first."""
        return self._watch.resumed

    def stop(self) -> None:
        """End it; nothing more comes."""
        self._ready.clear()
        self._watch.stop()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        while not self._ready:
            self._cursor = self._watch.cursor
            self._ready.extend(self._derive(await anext(self._watch)))
        return self._ready.popleft()
