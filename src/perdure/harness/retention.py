"""Letting go of conversations that nobody works in: a long-lived session holds what is at work, not what ever was."""

from collections.abc import Callable
from typing import Final

from perdure.agent.agent import Agent
from perdure.tasks.tasks import Tasks

SHORTEST_PAUSE: Final = 1.0
"""Seconds between two looks at least."""
PAUSE_AT_WORK: Final = 60.0
"""Seconds between two looks at most while something is kept only because work goes on in it."""


class Retention:
    """Drops transcripts, and what else is kept in memory of their conversations, `settings.retention` seconds after
    their last use. A conversation in which a task runs or could run stays.

    An alarm is set only while a transcript is held, for the moment when the one used longest ago may go; a session
    that holds none is never woken, and the alarm keeps no process alive.
    """

    def __init__(self, agent: Agent, tasks: Tasks) -> None:
        self._agent = agent
        self._tasks = tasks
        self._clock = agent.session.clock
        self._cancel: Callable[[], None] | None = None
        self._stopped = False
        agent.transcripts.on_load = self._arm

    def stop(self) -> None:
        """Look no more."""
        self._stopped = True
        if self._cancel is not None:
            self._cancel()

    def _arm(self, at_least: float = SHORTEST_PAUSE) -> None:
        retention = self._agent.settings.retention
        oldest = self._agent.transcripts.oldest_use()
        if retention is None or oldest is None or self._cancel is not None or self._stopped:
            return
        pause = oldest + retention - self._clock.monotonic()
        self._cancel = self._clock.call_at(self._clock.now() + max(pause, at_least), self._look)

    def _look(self) -> None:
        self._cancel = None
        retention = self._agent.settings.retention
        if retention is None:
            return
        index = self._tasks.index
        at_work = (self._tasks.known(id) for id in (*index.running, *index.pending))
        busy = {task.conversation for task in at_work if task is not None}
        for id in self._agent.transcripts.forget_idle(self._clock.monotonic() - retention, busy):
            self._agent.forget(id)
        self._arm(max(SHORTEST_PAUSE, min(retention, PAUSE_AT_WORK)) if busy else SHORTEST_PAUSE)
