"""The explorer finds what it is there to find: each planted fault breaks the law that forbids it."""

import gc
import re
from collections.abc import Callable
from typing import Any

import pytest

from perdure.agent.tool_context import ToolContext
from perdure.extensions.extension import Extension
from perdure.extensions.registry import Registry
from perdure.storage.memory import MemoryStorage
from perdure.storage.protocol import Storage
from perdure.storage.records import Batch
from perdure.tasks.decisions import Next
from perdure.tasks.definition import phase, task
from perdure.tasks.runtime import TaskRun
from perdure.testing import crash, places
from perdure.testing.crash import LawBroken, Process, Scenario, Stop, explore, live_through
from perdure.testing.places import MemoryPlace
from perdure.testing.scenario_tasks import create
from perdure.testing.scenarios import CONVERSATIONS, ask
from perdure.testing.scripted_model import call, say


@task("test.careless")
class Careless:
    """Acts in a phase, which runs again after a crash."""

    @phase(first=True)
    async def act(self, run: TaskRun) -> Next[Any]:
        """Act."""
        process_of_now[0].ledger.ran(run, "act")
        return run.complete()


process_of_now: list[Process] = []
SNAPSHOTS = pytest.mark.parametrize("snapshots", [False, True], ids=["anew", "snapshots"])


def one_tool(act: Callable[[Process, ToolContext], Any], **options: Any) -> Callable[[Process], Registry]:
    """An extension with one tool `go` that does something."""

    def registry(process: Process) -> Registry:
        process_of_now[:] = [process]
        extension = Extension("test")
        extension.add(Careless)

        @extension.tool(name="go", **options)
        async def go(ctx: ToolContext) -> str:
            """Go."""
            act(process, ctx)
            return "gone"

        return Registry([extension])

    return registry


def runs(process: Process, ctx: ToolContext) -> None:
    process.ledger.ran(ctx, "go")


def going(registry: Callable[[Process], Registry]) -> Scenario:
    return Scenario("go", ask("go"), turns=[call("go"), say("Gone.")], registry=registry)


def test_the_example_in_the_documentation_works_as_it_stands() -> None:
    example = re.search(r"```python\n(.*?)```", crash.__doc__ or "", re.DOTALL)
    assert example is not None
    names: dict[str, Any] = {}
    exec(compile(example.group(1), "example", "exec"), names)
    names["explore"] = lambda scenario: explore(scenario, ["memory"])
    names["test_no_payment_is_made_twice"]()


def test_the_commits_are_counted_and_every_one_of_them_is_a_stop() -> None:
    explored = explore(going(one_tool(runs)), ["memory"])
    commits = explored.commits["memory"]
    assert commits >= 5
    assert explored.runs == 1 + 3 * (commits + 1)


@pytest.mark.parametrize("storage", ["memory", "process"])
def test_snapshots_are_taken_before_and_after_every_commit_and_once_of_each_moment(storage: str) -> None:
    scenario = going(one_tool(runs))
    explored = explore(scenario, [storage], stops=["before", "after"], snapshots=True)
    commits = explored.commits[storage]
    assert commits < explored.runs <= 1 + 2 * commits
    assert explore(scenario, [storage], stops=["before"], snapshots=True).runs <= 1 + commits


@SNAPSHOTS
def test_a_tool_that_claims_to_be_safe_and_is_not_breaks_the_second_law(snapshots: bool) -> None:
    with pytest.raises(LawBroken, match="law 2: go of task") as caught:
        explore(going(one_tool(runs, replay="safe")), ["memory"], snapshots=snapshots)
    assert any("died" in note for note in caught.value.__notes__)


def test_a_snapshot_finds_what_a_run_of_its_own_finds_at_the_same_stop() -> None:
    found = []
    for snapshots in (False, True):
        with pytest.raises(LawBroken) as caught:
            explore(going(one_tool(runs, replay="safe")), ["memory"], stops=["before", "after"], snapshots=snapshots)
        found.append((str(caught.value), caught.value.__notes__))
    assert found[0] == found[1]


@SNAPSHOTS
def test_a_safe_tool_that_draws_a_new_key_each_time_breaks_the_second_law(snapshots: bool) -> None:
    def draws(process: Process, ctx: ToolContext) -> None:
        process.ledger.ran(ctx, "go", unsafe=False, token=f"by process {process.number}")

    with pytest.raises(LawBroken, match="another memo"):
        explore(going(one_tool(draws, replay="safe")), ["memory"], snapshots=snapshots)


@SNAPSHOTS
def test_a_phase_that_acts_without_a_key_breaks_the_second_law(snapshots: bool) -> None:
    async def start(process: Process) -> None:
        await create(process, Careless())

    with pytest.raises(LawBroken, match="act of task"):
        explore(Scenario("careless", start, registry=one_tool(runs)), ["memory"], snapshots=snapshots)


def test_no_process_of_an_exploration_is_kept_in_memory_once_it_is_over() -> None:
    def kept() -> int:
        gc.collect()
        return sum(isinstance(one, Process) for one in gc.get_objects())

    before = kept()
    explore(going(one_tool(runs)), ["memory"], stops=["after"])
    process_of_now.clear()
    assert kept() <= before


def test_a_failing_run_is_repeated_by_its_stops() -> None:
    scenario = going(one_tool(runs, replay="safe"))
    with pytest.raises(LawBroken) as caught:
        explore(scenario, ["memory"])
    note = caught.value.__notes__[0]
    when, _, number = note.rsplit("died ", 1)[1].split()
    with pytest.raises(LawBroken, match="law 2"):
        live_through(scenario, "memory", [Stop(int(number), when)])  # type: ignore[arg-type]


class _Forgetful(MemoryStorage):
    """Loses the entries of one commit."""

    async def commit(self, batch: Batch) -> int:
        if batch.seq == 4:
            batch.submissions = []
            batch.entries = []
        return await super().commit(batch)


class _ForgetfulPlace(MemoryPlace):
    def __init__(self) -> None:
        super().__init__()
        self._kept: Storage | None = None

    def store(self) -> Storage:
        stored = _Forgetful()
        if isinstance(self._kept, MemoryStorage):
            stored._stored = self._kept.copy()._stored
        self._kept = stored
        return stored


def test_a_store_that_loses_an_entry_breaks_a_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(places.PLACES, "forgetful", _ForgetfulPlace)
    with pytest.raises(LawBroken):
        explore(going(one_tool(runs)), ["forgetful"])


def test_work_that_never_ends_is_called_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.testing.process.PATIENCE", 0.05)
    scenario = next(scenario for scenario in CONVERSATIONS if scenario.name == "steer")

    async def never_lets_go(process: Process) -> None:
        await process.settled(await process.submit("go"))

    stuck = Scenario("stuck", never_lets_go, turns=scenario.turns, registry=scenario.registry)
    with pytest.raises(LawBroken, match="law 5"):
        live_through(stuck, "memory", [])
