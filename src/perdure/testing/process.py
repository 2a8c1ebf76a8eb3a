"""One simulated process: a harness on a store that may die under it, and what its users do with it."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sized
from copy import deepcopy
from typing import Any, Final

from perdure.agent.submissions import WhenBusy
from perdure.base.ids import ConversationId, SubmissionId, TaskId
from perdure.extensions.settled import Settled
from perdure.harness.conversation import Conversation
from perdure.harness.harness import Harness
from perdure.harness.submission import Submission
from perdure.models.messages import Usage
from perdure.models.protocol import Event, Finished, ModelRequest
from perdure.testing.clock import FakeClock, settle
from perdure.testing.laws import Acknowledged, LawBroken
from perdure.testing.ledger import Ledger
from perdure.testing.mortal import MortalStorage
from perdure.testing.scripted_model import ScriptedModel

PATIENCE: Final = 10.0
"""Real seconds without a commit or an alarm after which work that claims to run is taken to be stuck."""
POLL_SECONDS: Final = 0.0003
"""How often a thread that flushes is looked after."""
QUIET_POLLS: Final = 8
"""Looks without a change after which work that runs is taken to wait for time to pass, where threads do some of it."""
ROOT_MODEL: Final = "scripted:model"


class WatchedModel(ScriptedModel):
    """A scripted model that also keeps its bill answer by answer."""

    finished: list[Usage | None]

    async def stream_as(self, name: str, request: ModelRequest) -> AsyncGenerator[Event]:
        """The script's stream; what ends in it is counted."""
        async with contextlib.aclosing(super().stream_as(name, request)) as events:
            async for event in events:
                yield self._counted(event)

    async def poll_as(self, name: str, handle: Any) -> AsyncGenerator[Event]:
        """A deferred answer; when it is told, it is counted."""
        async with contextlib.aclosing(super().poll_as(name, handle)) as events:
            async for event in events:
                yield self._counted(event)

    def _counted(self, event: Event) -> Event:
        if isinstance(event, Finished):
            self.finished.append(event.message.usage)
        return event


class History:
    """What the world outside learned over all processes of one run."""

    def __init__(self, ledger: Ledger | None = None) -> None:
        self.ledger = ledger or Ledger()
        self.acknowledged: list[Acknowledged] = []
        self.told: dict[SubmissionId, Settled] = {}
        self.ended: dict[TaskId, int] = {}
        """Tasks, and the first process that found them ended in the store."""
        self.requests: list[ModelRequest] = []
        self.counted: list[Usage | None] = []
        self.aborts = 0
        self.notes: dict[str, Any] = {}
        """Whatever a scenario wants to know in its next process."""

    def copy(self) -> "History":
        """What is known now; later lines go to one of the two only."""
        other = History(self.ledger.copy())
        other.acknowledged, other.requests, other.counted = [*self.acknowledged], [*self.requests], [*self.counted]
        other.told, other.ended, other.notes = {**self.told}, {**self.ended}, deepcopy(self.notes)
        other.aborts = self.aborts
        return other

    def learned(self) -> tuple[Any, ...]:
        """How much was learned: nothing is ever forgotten, so equal numbers mean equal knowledge."""
        known: tuple[Sized, ...] = (
            self.ledger.effects(),
            self.acknowledged,
            self.told,
            self.ended,
            self.requests,
            self.counted,
        )
        return (*map(len, known), self.aborts, repr(self.notes))


class NoEnv:
    """An environment for tools that need none."""

    async def reap(self, tag: str) -> tuple[str, ...]:
        """Nothing was left running."""
        return ()

    async def close(self) -> None:
        """Nothing is open."""


class Process:
    """What a scenario gets: `harness`, its `root` conversation, the `clock`, and the `ledger` for its tools.

    Submit and settle through it: what a sender was told is checked in all later processes. `number` counts from 1.
    """

    harness: Harness
    root: Conversation
    model: WatchedModel

    def __init__(self, number: int, history: History, storage: MortalStorage, clock: FakeClock) -> None:
        self.number = number
        self.history = history
        self.storage = storage
        self.clock = clock
        self.ledger = history.ledger
        self.ledger.process = number
        self.reached: set[str] = set()
        """Names of the points that tools have come to, in this process."""
        self.gate = asyncio.Event()
        """Opened by the scenario for whatever waits on it, in this process."""

    async def submit(
        self,
        content: str | list[Any],
        *,
        request_id: str | None = None,
        when_busy: WhenBusy = "follow_up",
        to: Conversation | None = None,
    ) -> Submission:
        """Submit, by default to the root; remembered as acknowledged."""
        conversation = to or self.root
        submission = await conversation.submit(content, request_id=request_id, when_busy=when_busy)
        self.acknowledge(conversation.id, request_id, submission)
        return submission

    async def write(self, entry: Any, *, request_id: str | None = None) -> Submission:
        """Write to the root; remembered as acknowledged."""
        submission = await self.root.write(entry, request_id=request_id)
        self.acknowledge(self.root.id, request_id, submission)
        return submission

    def acknowledge(self, conversation: ConversationId, request_id: str | None, submission: Submission) -> None:
        """Remember that a sender was told."""
        self.history.acknowledged.append(Acknowledged(conversation, request_id, submission.id))

    async def settled(self, submission: Submission) -> Settled:
        """Wait for a settlement, letting time pass; whoever was told of it must find it unchanged for ever."""
        waiting = asyncio.ensure_future(submission.settled())
        await self.until(waiting.done)
        settled = await waiting
        before = self.history.told.setdefault(submission.id, settled)
        if before != settled:
            raise LawBroken(3, f"submission {submission.id} was told to be {before}, it is {settled}")
        return settled

    async def abort(self, **options: bool) -> None:
        """Abort the root's work; answers that the provider had finished by then may go unstored."""
        self.history.aborts += 1
        await self.root.abort(**options)

    async def until(self, condition: Callable[[], Any]) -> None:
        """Let everything run until the condition holds; time moves when nothing else does."""
        await self._drive(condition)

    async def run_out(self) -> None:
        """Let everything run, and time pass, until nothing is left to do."""
        await self._drive(None)

    async def _drive(self, condition: Callable[[], Any] | None) -> None:
        loop = asyncio.get_running_loop()
        moved, seen, quiet = loop.time(), -1, 0
        while True:
            await settle(20)
            if condition is not None:
                holds = condition()
                if await holds if isinstance(holds, Awaitable) else holds:
                    return
            if self.storage.commits != seen:
                moved, seen, quiet = loop.time(), self.storage.commits, 0
                continue
            quiet += 1
            alarm = self.clock.next_alarm()
            wake = self.harness.wake()
            works = wake.active and self.storage.threaded and quiet < QUIET_POLLS
            if self.storage.in_flight or works or (alarm is None and (wake.active or condition is not None)):
                if loop.time() - moved > PATIENCE:
                    raise LawBroken(5, f"nothing moves: {self.harness.inspect()}")
                await asyncio.sleep(POLL_SECONDS)
            elif not wake.active and wake.at is None and condition is None:
                return
            elif alarm is None:
                raise LawBroken(5, f"tasks sleep until {wake.at} and no alarm is set")
            else:
                await self.clock.jump_to(alarm)
                moved, quiet = loop.time(), 0
