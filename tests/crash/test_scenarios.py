"""Every scenario of the core, stopped at its commits: nothing is lost, nothing is done twice."""

import pytest

from perdure.testing.crash import Scenario, explore
from perdure.testing.scenario_tasks import TASKS
from perdure.testing.scenarios import CONVERSATIONS
from perdure.testing.scenarios_agents import AGENTS
from perdure.testing.scenarios_compaction import COMPACTIONS
from perdure.testing.scenarios_hooks import HOOKS

EVERY = [*CONVERSATIONS, *TASKS, *HOOKS, *COMPACTIONS, *AGENTS]
STORAGES = ("memory", "process", "power", "jsonl")
STRIDE = 9
"""Runs of their own cost twice what snapshots cost, so that only some are made where these were at every commit."""
DOUBLED = 25


@pytest.mark.slow
@pytest.mark.parametrize("scenario", EVERY, ids=str)
def test_a_scenario_survives_a_crash_at_every_commit(scenario: Scenario) -> None:
    explore(scenario, ["memory"], snapshots=True)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", EVERY, ids=str)
def test_a_scenario_survives_a_crash_at_every_commit_on_sqlite(scenario: Scenario) -> None:
    explore(scenario, ["power"], stops=["before", "after"], snapshots=True)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", EVERY, ids=str)
def test_a_scenario_that_is_run_anew_survives_some_crashes_on_files(scenario: Scenario) -> None:
    for storage in ("process", "power", "jsonl"):
        explore(scenario, [storage], stride=STRIDE, seed=EVERY.index(scenario) + STORAGES.index(storage))


@pytest.mark.long
@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("scenario", EVERY, ids=str)
def test_a_scenario_survives_every_crash_and_many_double_ones_on_every_store(scenario: Scenario, storage: str) -> None:
    explore(scenario, [storage], doubled=DOUBLED)
    explore(scenario, [storage], stops=["before", "after"], snapshots=True, doubled=DOUBLED, seed=1)
