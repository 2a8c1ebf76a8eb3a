"""What the tasks of an orchestrator share: its root, its settings, the hosts that it is connected to."""

import asyncio
import secrets
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perdure import Harness, TaskRun
from perdure.subagents.config import ConfigWatch
from perdure.subagents.engine.admission import available_megabytes
from perdure.subagents.engine.scripts import Evaluators, NoEvaluators
from perdure.subagents.paths import StateRoot
from perdure.subagents.state import CallDoc

_all: "weakref.WeakKeyDictionary[Any, Orchestration]" = weakref.WeakKeyDictionary()


class Orchestration:
    """One orchestrator, as its tasks see it. Found from a task's run by `of`."""

    def __init__(
        self,
        root: StateRoot,
        harness: Harness,
        *,
        memory: Callable[[], float] = available_megabytes,
        evaluators: Evaluators | None = None,
    ) -> None:
        self.root = root
        self.harness = harness
        self.config = ConfigWatch(root)
        self.memory = memory
        self.scripts: dict[str, Any] = {}
        """Evaluators that live, by `wid@revision`."""
        self.evaluators: Evaluators = evaluators or NoEvaluators()
        self._events: dict[str, asyncio.Event] = {}
        _all[harness.session] = self
        harness.session.listeners.append(self._published)

    def changed(self, call: str) -> asyncio.Event:
        """Set whenever the row of a call was changed; whoever waits clears it."""
        return self._events.setdefault(call, asyncio.Event())

    def forget(self, call: str) -> None:
        """Nobody waits for the call's changes any more."""
        self._events.pop(call, None)

    def _published(self, publication: Any) -> None:
        for change in publication.documents:
            kind, _, _, key = change.key
            if kind == CallDoc.kind and key in self._events:
                self._events[key].set()

    def report(self, where: str, error: BaseException) -> None:
        """For whoever looks after the orchestrator."""
        self.harness.reports.add(where, error)

    async def close(self) -> None:
        """End the evaluators; their scripts are replayed by the next orchestrator."""
        for script in list(self.scripts.values()):
            await script.evaluator.close()
        self.scripts.clear()

    def store_of(self, wid: str, key: str) -> Path:
        """A call's own session."""
        return self.root.call_store(wid, key)

    def nonce(self) -> str:
        """What a host and its orchestrator know each other by."""
        return secrets.token_hex(16)


def of(run: TaskRun) -> Orchestration:
    """The orchestrator of a task."""
    return _all[run.host.session]
