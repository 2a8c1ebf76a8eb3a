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

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from perdure.testing.crash_world import Scenario, Snapshot, World, going_on
from perdure.testing.laws import LawBroken
from perdure.testing.mortal import Stop, When
from perdure.testing.places import PLACES
from perdure.testing.process import History, Process

__all__ = ["Exploration", "LawBroken", "Process", "Scenario", "Stop", "explore", "going_on", "live_through"]

LONGEST: Final = 500
"""Commits of one scenario at most: one that takes more never comes to rest."""
ALL_STOPS: Final[tuple[When, ...]] = ("before", "after", "unflushed")


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
    snapshots: bool = False,
    stride: int = 1,
    doubled: int = 0,
    seed: int = 0,
) -> Exploration:
    """Stop the scenario at every commit, in each way, on each kind of storage, and check the laws.

    With `snapshots` it runs once, and every process after a crash goes on from a copy of the store and of what the
    world had seen by then; only `unflushed` stops run from the start. That takes half the time, and asks that the
    scenario keeps everything that outlives a process in the ledger and in `process.history.notes`.

    With a `stride` only at some: every so many commits, beginning where `seed` says. `doubled` more runs for each
    storage die a second time while they recover, at places drawn by `seed`. Raises `LawBroken` with a note of the
    storage and the stops; `live_through(scenario, storage, stops)` repeats that one run.
    """
    explored = Exploration()
    for storage in storages:
        search = _Search(scenario, storage, explored)
        taken: list[Snapshot] = []
        try:
            explored.commits[storage] = search.live(record=taken if snapshots else None)[0]
            search.go_on_from([s for s in taken if s.stop.when in stops and (s.stop.commit - 1 - seed) % stride == 0])
            search.run_anew([w for w in stops if w == "unflushed" or not snapshots], 1 + seed % stride, stride)
            search.die_twice(doubled, stops, random.Random(f"{seed} {scenario.name} {storage}"))
        finally:
            for snapshot in taken:
                snapshot.place.remove()
    return explored


def live_through(scenario: Scenario, storage: str, stops: Sequence[Stop]) -> list[int]:
    """One run: a process for each stop, and a last one that nothing stops. Returns the commits of each process.

    A process that comes to its end before its stop is the last one.
    """
    return _Search(scenario, storage, Exploration()).live(*stops)


@dataclass(frozen=True)
class _Death:
    """How a process died first: at a stop, in a run of its own, or as a snapshot of one tells."""

    stop: Stop
    snapshot: Snapshot | None = None


class _Search:
    """The runs of one scenario on one kind of storage."""

    def __init__(self, scenario: Scenario, storage: str, explored: Exploration) -> None:
        self._scenario = scenario
        self._storage = storage
        self._explored = explored
        self._recovered: list[tuple[_Death, int]] = []
        """First deaths, and the commits of the process after each."""

    def live(self, *stops: Stop, after: _Death | None = None, record: list[Snapshot] | None = None) -> list[int]:
        """A process for each stop, and a last one that nothing stops; the commits of each."""
        self._explored.runs += 1
        if after is None or after.snapshot is None:
            world = World(self._scenario, PLACES[self._storage](), History())
            left = [*stops] if after is None else [after.stop, *stops]
            commits: list[int] = []
        else:
            world, left, commits = World.of(self._scenario, after.snapshot), [*stops], [after.stop.commit]
        died = [*left] if not commits or after is None else [after.stop, *left]
        try:
            for stop in [*left, None]:
                dead = world.live(len(commits) + 1, stop, crashes=len(commits), snapshots=record)
                commits.append(world.commits)
                if not dead:
                    break
            world.look_again(len(commits) + 1)
        except Exception as error:
            how = f"died {', then '.join(map(str, died)) or 'never'}"
            error.add_note(f"scenario {self._scenario.name!r} on {self._storage}, {how}")
            raise
        finally:
            world.remove()
        return commits

    def go_on_from(self, snapshots: Sequence[Snapshot]) -> None:
        """A process after each of the snapshots."""
        for snapshot in snapshots:
            self._recover(_Death(snapshot.stop, snapshot))

    def run_anew(self, ways: Sequence[When], first: int, stride: int) -> None:
        """A run for every so many commits and each way to die there, until none comes to its stop any more."""
        for commit in range(first, LONGEST, stride):
            died = [self._recover(_Death(Stop(commit, when))) for when in ways]
            if not any(died):
                return
        raise LawBroken(5, f"{self._scenario.name} made more than {LONGEST} commits")

    def die_twice(self, count: int, ways: Sequence[When], chance: random.Random) -> None:
        """Some second deaths: a first one, and a stop among the commits that its recovery made."""
        for _ in range(count):
            first, recovery = chance.choice(self._recovered)
            self.live(Stop(chance.randint(1, max(1, recovery)), chance.choice(ways)), after=first)

    def _recover(self, death: _Death) -> bool:
        commits = self.live(after=death)
        if len(commits) > 1:
            self._recovered.append((death, commits[1]))
        return len(commits) > 1
