"""The scenarios of summaries do come to a summary."""

import pytest

from perdure.testing.crash import Process, Scenario, live_through
from perdure.testing.scenarios_compaction import COMPACTIONS


@pytest.mark.slow
@pytest.mark.parametrize("scenario", COMPACTIONS, ids=str)
def test_left_alone_it_comes_to_what_its_name_says(scenario: Scenario) -> None:
    kinds: list[str] = []

    async def look(process: Process) -> None:
        kinds.extend(entry.kind for entry in await process.root.entries(limit=1000))
        if scenario.check is not None:
            await scenario.check(process)

    fields = {name: getattr(scenario, name) for name in scenario.__dataclass_fields__}
    live_through(Scenario(**{**fields, "check": look}), "memory", [])
    wanted = {"summary stopped": None, "summary overtaken by a reset": "reset", "reset in a round": "reset"}
    kind = wanted.get(scenario.name, "reset" if scenario.name == "handoff" else "summary")
    assert kind is None or f"perdure.{kind}" in kinds
