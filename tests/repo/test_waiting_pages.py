"""The pages on waiting say nothing that no test holds."""

import re

import pytest

from perdure.testing.scenarios_edges import EDGES
from perdure.testing.scenarios_gates import GATES
from perdure.testing.scenarios_people import PEOPLE
from perdure.testing.scenarios_waiting import WAITING
from tests.repo.test_pages import links, promises
from tests.repo.tidy import ROOT

EVERY = [*WAITING, *GATES, *EDGES, *PEOPLE]
PAGES = ["docs/waiting-map.md", "docs/what-happens-when.md"]


def rows(page: str) -> list[str]:
    """What each row says holds it."""
    text = (ROOT / page).read_text("utf-8")
    found = [shown for _, shown in promises(text) if not shown.endswith(("held by", "shown by"))]
    assert len(found) > 30
    return found


@pytest.mark.parametrize("page", PAGES)
def test_each_line_names_a_test_a_scenario_or_an_example(page: str) -> None:
    assert [shown for shown in rows(page) if not re.search(r"`tests/\S+::test_\w+`|scenario `|\]\(", shown)] == []


@pytest.mark.parametrize("page", PAGES)
def test_the_tests_and_scenarios_that_it_names_exist(page: str) -> None:
    shown = "\n".join(rows(page))
    named = set(re.findall(r"`(tests/\S+\.py)::(\w+)`", shown))
    files = {file: (ROOT / file).read_text("utf-8") for file, _ in named}
    assert [f"{file}::{test}" for file, test in sorted(named) if f"def {test}(" not in files[file]] == []
    assert set(re.findall(r"scenario `([^`]+)`", shown)) <= {scenario.name for scenario in EVERY}


def test_every_scenario_of_waiting_is_told() -> None:
    told = set(re.findall(r"scenario `([^`]+)`", "\n".join("\n".join(rows(page)) for page in PAGES)))
    variants = {"a build with a deadline, by webhook", "a build that never reports", "polling", "parked over children"}
    assert {scenario.name for scenario in EVERY} - told - variants <= {"stop while a build is waited for, never again"}


def test_the_examples_of_waiting_are_all_shown() -> None:
    named = links("docs/waiting-map.md") | links("docs/waiting.md")
    examples = {path.relative_to(ROOT).as_posix() for path in (ROOT / "examples").glob("[34][0-9]_*.py")}
    waiting = {name for name in examples if 38 <= int(name.split("/")[1][:2]) <= 48 and "47_" not in name}
    assert len(waiting) == 10
    assert waiting - named == set()
