"""Every scenario of the core, stopped at its commits: nothing is lost, nothing is done twice."""

import pytest

from perdure.testing.crash import Scenario, explore
from perdure.testing.scenario_tasks import TASKS
from perdure.testing.scenarios import CONVERSATIONS

EVERY = [*CONVERSATIONS, *TASKS]
STORAGES = ("memory", "process", "power")


@pytest.mark.slow
@pytest.mark.parametrize("scenario", EVERY, ids=str)
def test_a_scenario_survives_a_crash_at_every_commit(scenario: Scenario) -> None:
    explore(scenario, ["memory"])


@pytest.mark.slow
@pytest.mark.parametrize("storage", ["process", "power"])
@pytest.mark.parametrize("scenario", EVERY, ids=str)
def test_a_scenario_survives_crashes_on_sqlite(scenario: Scenario, storage: str) -> None:
    explore(scenario, [storage], stride=7, seed=EVERY.index(scenario) + STORAGES.index(storage))


@pytest.mark.long
@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("scenario", EVERY, ids=str)
def test_a_scenario_survives_every_crash_and_many_double_ones_on_every_store(scenario: Scenario, storage: str) -> None:
    explore(scenario, [storage], doubled=25)
