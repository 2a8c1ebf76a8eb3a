"""Every scenario of the core, stopped at its commits: nothing is lost, nothing is done twice."""

import pytest

from perdure.testing.crash import Scenario, Stop, explore, live_through
from perdure.testing.scenario_tasks import TASKS
from perdure.testing.scenarios import CONVERSATIONS
from perdure.testing.scenarios_agents import AGENTS
from perdure.testing.scenarios_compaction import COMPACTIONS
from perdure.testing.scenarios_edges import EDGES
from perdure.testing.scenarios_gates import GATES
from perdure.testing.scenarios_hooks import HOOKS
from perdure.testing.scenarios_people import PEOPLE
from perdure.testing.scenarios_subagents import SUBAGENTS
from perdure.testing.scenarios_waiting import WAITING

EVERY = [*CONVERSATIONS, *TASKS, *HOOKS, *COMPACTIONS, *AGENTS, *WAITING, *GATES, *EDGES, *PEOPLE, *SUBAGENTS]
STORAGES = ("memory", "process", "power", "jsonl")
STRIDE = 4
"""Runs of their own, on one store after the other, are made at some commits only: they cost twice what snapshots cost,
which were at every one. They alone have commits that never arrive."""
DOUBLED = 25


@pytest.mark.slow
@pytest.mark.parametrize("scenario", EVERY, ids=str)
def test_a_scenario_survives_a_crash_at_every_commit(scenario: Scenario) -> None:
    explore(scenario, ["memory"], stops=["before", "after"], snapshots=True)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", EVERY, ids=str)
def test_a_scenario_survives_a_crash_at_every_commit_on_sqlite(scenario: Scenario) -> None:
    explore(scenario, ["power"], stops=["before", "after"], snapshots=True)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", EVERY, ids=str)
def test_a_scenario_that_is_run_anew_survives_some_crashes(scenario: Scenario) -> None:
    place = EVERY.index(scenario)
    explore(scenario, [STORAGES[place % len(STORAGES)]], stride=STRIDE, seed=place)


@pytest.mark.slow
def test_nothing_is_undone_for_a_stop_that_never_reached_the_disk() -> None:
    scenario = next(one for one in WAITING if one.name == "stop while a build is waited for, never again")
    for commit in range(5, 10):
        live_through(scenario, "power", [Stop(commit, "unflushed")])


@pytest.mark.long
@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("scenario", EVERY, ids=str)
def test_a_scenario_survives_every_crash_and_many_double_ones_on_every_store(scenario: Scenario, storage: str) -> None:
    explore(scenario, [storage], doubled=DOUBLED)
    explore(scenario, [storage], stops=["before", "after"], snapshots=True, doubled=DOUBLED, seed=1)
