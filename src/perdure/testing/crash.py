"""The crash explorer: runs a scenario, stops it before and after every commit, goes on in a new process, and checks
that nothing was lost and nothing was done twice.

A whole example, as a test of one's own tool:

```python
from perdure import Extension, Registry, ToolContext
from perdure.testing.crash import Process, Scenario, explore
from perdure.testing.scripted_model import call, say

def shop(process: Process) -> Registry:
    extension = Extension("shop")

    @extension.tool(description="Pay so many cents.")
    async def pay(ctx: ToolContext, cents: int) -> str:
        process.ledger.ran(ctx, "pay")  # what the bank sees; a tool is unsafe to repeat unless it says otherwise
        return f"paid {cents}"

    return Registry([extension])

async def order(process: Process) -> None:
    submission = await process.submit("pay 5", request_id="order-1")
    await process.settled(submission)

def test_no_payment_is_made_twice() -> None:
    explore(Scenario("payment", order, turns=[call("pay", {"cents": 5}), say("Paid.")], registry=shop))
```

Every process has an event loop of its own, and so have its tools: they die with it. `explore` runs them itself, so it
is called from plain functions; from async code: `await asyncio.to_thread(explore, scenario)`.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
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
from perdure.testing.mortal import PLACES, MortalStorage, Place, ProcessDied, Stop, When
from perdure.testing.process import ROOT_MODEL, History, NoEnv, Process, WatchedModel
from perdure.testing.turns import OutOfTurns, Script, Turn, TurnFunction, TurnLike, as_turn, say

__all__ = ["Exploration", "LawBroken", "Process", "Scenario", "Stop", "explore", "going_on", "live_through"]

Step = Callable[[Process], Awaitable[None]]

LONGEST: Final = 500
"""Commits of one scenario at most: one that takes more never comes to rest."""
LAST_BREATHS: Final = 50
"""Times that code of a dead process is cancelled before it is reported as immortal."""
ALL_STOPS: Final[tuple[When, ...]] = ("before", "after", "unflushed")


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

    def __str__(self) -> str:
        return self.name


@dataclass
class Exploration:
    """What was explored."""

    runs: int = 0
    commits: dict[str, int] = field(default_factory=dict)
    """Commits of the scenario when nothing stops it, for each storage."""


def explore(
    scenario: Scenario,
    storages: Sequence[str] = ("memory", "process", "power"),
    *,
    stops: Sequence[When] = ALL_STOPS,
    stride: int = 1,
    doubled: int = 0,
    seed: int = 0,
) -> Exploration:
    """Stop the scenario at every commit, in each way, on each kind of storage, and check the laws.

    With a `stride` only at some: every so many commits, beginning where `seed` says. `doubled` more runs for each
    storage die a second time while they recover, at places drawn by `seed`. Raises `LawBroken` with a note of the
    storage and the stops; `live_through(scenario, storage, stops)` repeats that one run.
    """
    explored = Exploration()
    for storage in storages:
        untouched = live_through(scenario, storage, [])
        explored.commits[storage] = untouched[0]
        explored.runs += 1
        lives: list[tuple[Stop, int]] = []
        for commit in range(1 + seed % stride, LONGEST, stride):
            ended = [(Stop(commit, when), live_through(scenario, storage, [Stop(commit, when)])) for when in stops]
            explored.runs += len(ended)
            lives += [(stop, processes[1]) for stop, processes in ended if len(processes) > 1]
            if all(len(processes) == 1 for _, processes in ended):
                break
        else:
            raise LawBroken(5, f"{scenario.name} made more than {LONGEST} commits")
        for first, second in _pairs(lives, stops, doubled, random.Random(f"{seed} {scenario.name} {storage}")):
            live_through(scenario, storage, [first, second])
            explored.runs += 1
    return explored


def live_through(scenario: Scenario, storage: str, stops: Sequence[Stop]) -> list[int]:
    """One run: a process for each stop, and a last one that nothing stops. Returns the commits of each process.

    A process that comes to its end before its stop is the last one.
    """
    place = PLACES[storage]()
    history = History()
    world = _World(scenario, place, history)
    commits: list[int] = []
    try:
        for number, stop in enumerate([*stops, None], start=1):
            died = world.live(number, stop, crashes=number - 1)
            commits.append(world.commits)
            if not died:
                break
        world.look_again(len(commits) + 1)
    except Exception as error:
        error.add_note(f"scenario {scenario.name!r} on {storage}, died {', then '.join(map(str, stops)) or 'never'}")
        raise
    finally:
        place.remove()
    return commits


class _World:
    """What stays while processes come and go."""

    def __init__(self, scenario: Scenario, place: Place, history: History) -> None:
        self._scenario = scenario
        self._place = place
        self._history = history
        self._now = FakeClock().now()
        self._batches: list[Batch] = []
        self._seen: dict[str, Any] = {}
        self.commits = 0

    def live(self, number: int, stop: Stop | None, crashes: int) -> bool:
        """One process from its start to its end. True: it died at its stop."""
        with asyncio.Runner() as runner:
            loop = runner.get_loop()

            def died() -> None:
                for task in asyncio.all_tasks(loop):
                    task.cancel()

            storage = MortalStorage(self._place.store(), stop, died)
            clock = FakeClock(self._now)
            process = Process(number, self._history, storage, clock)
            model = self._model(process)
            try:
                runner.run(self._life(process, model, crashes))
            except (ProcessDied, asyncio.CancelledError):
                if not storage.dead:
                    raise
            except Exception:
                if not storage.dead:
                    runner.run(_bury(storage))
                    raise
            runner.run(_bury(storage))
        self._now = clock.now()
        self._batches += storage.stored
        self._history.requests += model.requests
        self._history.counted += model.finished
        self.commits = storage.commits
        return storage.dead

    def look_again(self, number: int) -> None:
        """Open once more after the last process closed in good order: everything reads the same (law 4)."""
        with asyncio.Runner() as runner:
            runner.run(self._compare_readings(number))

    async def _life(self, process: Process, model: WatchedModel, crashes: int) -> None:
        scenario = self._scenario
        asyncio.get_running_loop().set_exception_handler(_heed(process.storage))
        harness = await self._open(process, model)
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
        await self._check(process, model, crashes)
        self._seen = await laws.readings(harness)
        await harness.close()

    async def _open(self, process: Process, model: WatchedModel) -> Harness:
        process.harness = await Harness.open(
            process.storage,
            registry=self._scenario.registry(process),
            models=model,
            env=NoEnv(),
            settings=msgspec.structs.replace(self._scenario.settings(), retention=None),  # no alarm but the scenario's
            clock=process.clock,
        )
        return process.harness

    async def _check_reopened(self, process: Process) -> None:
        """Before anything runs: what was stored is there, and it is in order."""
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

    async def _check(self, process: Process, model: WatchedModel, crashes: int) -> None:
        history = self._history
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
        harness = await self._open(process, self._model(process))
        try:
            seen = await laws.readings(harness)
        finally:
            await harness.close()
        if difference_ := difference(self._seen, seen):
            raise LawBroken(4, f"read before a close and after it: {difference_}")

    def _model(self, process: Process) -> WatchedModel:
        turns = self._scenario.turns
        model = WatchedModel(going_on(turns if callable(turns) else Script(turns)), clock=process.clock)
        model.finished = []
        process.model = model
        return model


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


def _pairs(
    lives: Sequence[tuple[Stop, int]], stops: Sequence[When], count: int, chance: random.Random
) -> Iterator[tuple[Stop, Stop]]:
    """Some second deaths: a first stop, and one among the commits that its recovery made."""
    for _ in range(count):
        first, recovery = chance.choice(lives)
        yield first, Stop(chance.randint(1, max(1, recovery)), chance.choice(stops))
