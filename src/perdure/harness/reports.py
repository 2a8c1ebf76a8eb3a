"""What went wrong on the side: kept for `inspect()`, handed to whoever listens. Nothing here stops a run."""

import contextlib
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from perdure.base.clock import Clock

REPORTS_KEPT: Final = 200


class Reports:
    """The newest reports: hooks and sections that raised, tasks that faulted."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.kept: deque[dict[str, Any]] = deque(maxlen=REPORTS_KEPT)
        self.listeners: list[Callable[[dict[str, Any]], None]] = []

    def add(self, where: str, error: BaseException) -> None:
        """Keep a report of an error."""
        frames = traceback.extract_tb(error.__traceback__)
        report = {
            "at": self._clock.now(),
            "where": where,
            "error": f"{type(error).__name__}: {error}",
            "place": f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None,
        }
        self.kept.append(report)
        for listener in tuple(self.listeners):
            with contextlib.suppress(Exception):  # a report of a report that fails would never end
                listener(report)
