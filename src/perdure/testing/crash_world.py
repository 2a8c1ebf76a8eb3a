"""The world of one scenario: what stays while its processes come and go, and pictures of it to go on from."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from perdure.agent.settings import Settings
from perdure.base.errors import StorageRejected
from perdure.extensions.registry import Registry
from perdure.harness.harness import Harness
from perdure.models.protocol import ModelRequest
from perdure.storage.memory import MemoryStorage
from perdure.storage.records import Batch
from perdure.testing import laws
from perdure.testing.clock import FakeClock
from perdure.testing.dump import conversations, difference, dump, tasks
from perdure.testing.laws import LawBroken
from perdure.testing.mortal import MortalStorage, ProcessDied, Stop
from perdure.testing.places import Place
from perdure.testing.process import ROOT_MODEL, History, NoEnv, Process, WatchedModel
from perdure.testing.turns import OutOfTurns, Script, Turn, TurnFunction, TurnLike, as_turn, say

Step = Callable[[Process], Awaitable[None]]

LAST_BREATHS: Final = 50
"""Times that code of a dead process is cancelled before it is reported as immortal."""


@dataclass(frozen=True)
class Scenario:
    """What happens, and with which code.

    `start` is what the first process does. Later ones resume and do `finish`, by default nothing but letting
    everything run out; a client that asks again after a crash is `finish=start`, with request ids. After that every
    process has to answer one more message. `turns` is what the model says, told by each request (see `Script`).
    """

    name: str
    start: Step
    turns: Sequence[TurnLike] | TurnFunction = ()
    registry: Callable[[Process], Registry] = lambda process: Registry()
    settings: Callable[[], Settings] = Settings
    finish: Step | None = None
    check: Step | None = None
    """Looks at the end of the last process, for what only this scenario knows."""
    streams: int = 1
    """Requests that can be on their way at once: as many answers may be lost by one crash."""
    window: int | None = None
    """Tokens that fit the model's context window; None: nobody knows."""

    def __str__(self) -> str:
        return self.name


@dataclass
class Snapshot:
    """What a process that died at this moment would leave: its store, and what the world had seen of it."""

    stop: Stop
    place: Place
    history: History
    now: float
    batches: list[Batch]
    stored: int
    """The seq of the newest commit that was told to be stored; the store may hold later ones of the `batches`."""


class World:
    """What stays while processes come and go."""

    def __init__(self, scenario: Scenario, place: Place, history: History) -> None:
        self._scenario = scenario
        self._place = place
        self._history = history
        self._now = FakeClock().now()
        self._batches: list[Batch] = []
        self._stored = 0
        self._seen: dict[str, Any] = {}
        self._registry = Registry()
        self.commits = 0

    @classmethod
    def of(cls, scenario: Scenario, snapshot: Snapshot) -> "World":
        """The world as a dead process left it. The snapshot stays as it is."""
        world = cls(scenario, snapshot.place.copy(), snapshot.history.copy())
        world._now, world._batches, world._stored = snapshot.now, list(snapshot.batches), snapshot.stored
        return world

    def remove(self) -> None:
        """Leave nothing behind."""
        self._place.remove()

    def live(self, number: int, stop: Stop | None, crashes: int, snapshots: list[Snapshot] | None = None) -> bool:
        """One process from its start to its end. True: it died at its stop.

        Into `snapshots` goes what it would leave behind if it died before or after each of its commits; moments that
        leave the same behind are taken once.
        """
        with asyncio.Runner() as runner:
            loop = runner.get_loop()

            def died() -> None:
                for task in asyncio.all_tasks(loop):
                    task.cancel()

            taken: set[Any] = set()

            def watch(at: Stop) -> None:
                if snapshots is not None:
                    self._take(at, process, snapshots, taken)

            storage = MortalStorage(self._place.store(), stop, died, watch)
            clock = FakeClock(self._now)
            process = Process(number, self._history, storage, clock)
            self._model(process)
            try:
                runner.run(self._life(process, crashes))
            except (ProcessDied, asyncio.CancelledError):
                if not storage.dead:
                    raise
            except Exception:
                if not storage.dead:
                    runner.run(_bury(storage))
                    raise
            runner.run(_bury(storage))
        self._now = clock.now()
        self._batches += storage.handed
        self._stored = max([self._stored, *(batch.seq for batch in storage.stored)])
        self._history.requests += process.model.requests
        self._history.counted += process.model.finished
        self.commits = storage.commits
        return storage.dead

    def _take(self, at: Stop, process: Process, into: list[Snapshot], taken: set[Any]) -> None:
        storage, history, model = process.storage, process.history, process.model
        seen = (len(storage.stored), history.learned(), len(model.requests), len(model.finished), process.clock.now())
        if not storage.in_flight and seen in taken:
            return
        taken.add(seen)
        then = history.copy()
        then.requests += model.requests
        then.counted += model.finished
        into.append(
            Snapshot(
                at,
                self._place.copy(),
                then,
                process.clock.now(),
                [*self._batches, *storage.handed],
                max([self._stored, *(batch.seq for batch in storage.stored)]),
            )
        )

    def look_again(self, number: int) -> None:
        """Open once more after the last process closed in good order: everything reads the same (law 4)."""
        with asyncio.Runner() as runner:
            runner.run(self._compare_readings(number))

    async def _life(self, process: Process, crashes: int) -> None:
        scenario = self._scenario
        asyncio.get_running_loop().set_exception_handler(_heed(process.storage))
        self._registry = scenario.registry(process)
        harness = await self._open(process)
        await self._check_reopened(process)
        process.root = await harness.root(model=ROOT_MODEL)
        if process.number == 1:
            await scenario.start(process)
        else:
            await harness.resume()
            if scenario.finish is not None:
                await scenario.finish(process)
        await process.run_out()
        if scenario.check is not None:
            await scenario.check(process)
        await self._one_more_message(process)
        await self._check(process, crashes)
        self._seen = await laws.readings(harness)
        await harness.close()

    async def _open(self, process: Process) -> Harness:
        process.harness = await Harness.open(
            process.storage,
            registry=self._registry,
            models=process.model,
            env=NoEnv(),
            settings=msgspec.structs.replace(self._scenario.settings(), retention=None),  # no alarm but the scenario's
            clock=process.clock,
        )
        return process.harness

    async def _check_reopened(self, process: Process) -> None:
        """Before anything runs: what was stored is there, and it is in order."""
        found = process.storage.head.seq
        if found < self._stored:
            raise LawBroken(4, f"commit {self._stored} was told to be stored, and the newest one found is {found}")
        self._batches = [batch for batch in self._batches if batch.seq <= found]
        self._stored = found
        if difference_ := difference(await self._expected(), process.storage.at_open):
            raise LawBroken(4, f"stored before the crash and found after it: {difference_}")
        storage = process.storage.real
        for conversation in await conversations(storage):
            for task in await tasks(storage, conversation):
                if task.status == "terminal":
                    self._history.ended.setdefault(task.id, process.number)
        await laws.check_records(process.harness)

    async def _expected(self) -> dict[str, Any]:
        """What a store must hold that took these batches."""
        shadow = MemoryStorage()
        await shadow.open()
        for batch in self._batches:
            try:
                await shadow.commit(batch)
            except StorageRejected as error:
                raise LawBroken(4, f"a store took what memory refuses: {error}") from error
        return await dump(shadow)

    async def _one_more_message(self, process: Process) -> None:
        submission = await process.submit("Are you still there?", request_id=f"one more {process.number}")
        await process.run_out()
        settled = await process.settled(submission)
        if settled.status != "done":
            raise LawBroken(5, f"a new message after all that was not answered: {settled}")

    async def _check(self, process: Process, crashes: int) -> None:
        history, model = self._history, process.model
        laws.check_effects(history.ledger.effects(), history.ended)
        await laws.check_laws(
            process.harness,
            acknowledged=history.acknowledged,
            told=history.told,
            effects=history.ledger.effects(),
            requests=[*history.requests, *model.requests],
            counted=[*history.counted, *model.finished],
            lost=(crashes + history.aborts) * self._scenario.streams,
        )

    async def _compare_readings(self, number: int) -> None:
        storage = MortalStorage(self._place.store(), None, lambda: None)
        process = Process(number, self._history, storage, FakeClock(self._now))
        self._model(process)
        harness = await self._open(process)  # with the last registry: nothing runs
        try:
            seen = await laws.readings(harness)
        finally:
            await harness.close()
        if difference_ := difference(self._seen, seen):
            raise LawBroken(4, f"read before a close and after it: {difference_}")

    def _model(self, process: Process) -> None:
        turns = self._scenario.turns
        model = WatchedModel(
            going_on(turns if callable(turns) else Script(turns)),
            clock=process.clock,
            context_window=self._scenario.window,
        )
        model.finished = []
        process.model = model


def going_on(turns: TurnFunction) -> TurnFunction:
    """The script, and a short answer to everything after its end."""

    def turn(request: ModelRequest) -> Turn:
        try:
            return as_turn(turns(request))
        except OutOfTurns:
            return say("Still here.")

    return turn


async def _bury(storage: MortalStorage) -> None:
    """End all code of a process. It can store nothing any more; what was on its way to the disk arrives."""
    own = asyncio.current_task()
    for _ in range(LAST_BREATHS):
        others = [task for task in asyncio.all_tasks() if task is not own]
        if not others:
            break
        for task in others:
            task.cancel()
        await asyncio.wait(others, timeout=0.2)
    else:
        raise LawBroken(5, f"code that ignores its cancellation: {others}")
    await storage.real.close()


def _heed(storage: MortalStorage) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """What nobody waited for: of no interest once the process is dead, else shown as always."""

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not storage.dead:
            loop.default_exception_handler(context)

    return handle
