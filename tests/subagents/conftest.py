"""A place for each test, and nothing of it left after it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.subagents.place import Place


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Place]]:
    """Make the test's place from its script and settings."""
    made: list[Place] = []
    monkeypatch.setenv("PERDURE_TEST_SCRIPT", "")
    monkeypatch.setenv("PYTHONPATH", "")

    def make(script: dict[str, Any], **config: Any) -> Place:
        made.append(Place(tmp_path, script, **config))
        return made[-1]

    yield make
    for one in made:
        one.end()
