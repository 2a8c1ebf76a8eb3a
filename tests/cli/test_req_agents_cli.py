"""The agents' commands: strict options, JSON on every path, and reading a log that is not there yet."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.agents_place import Commands
from tests.subagents.place import Place

pytestmark = pytest.mark.slow
Make = Callable[..., Commands]
WORKER = ("run", "--agent", "worker", "--task", "Do it", "--key", "a")


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    made: list[Place] = []
    monkeypatch.setenv("PERDURE_TEST_SCRIPT", "")
    monkeypatch.setenv("PYTHONPATH", "")

    def make(script: dict[str, Any], **config: Any) -> Commands:
        made.append(Place(tmp_path, script, **config))
        return Commands(made[-1])

    yield make
    for one in made:
        one.end()


def test_r358_r356_where_there_is_no_log_reading_begins_one_and_a_bad_cursor_does_not(commands: Make) -> None:
    cli = commands({"a": [{"say": "ok"}]}, k={"idleExitMs": 100})
    bad = cli.json("events", "--after", "rubbish", code=1)
    assert bad["error"] == "invalid-arguments"
    assert cli.json("events", "--wait-ms", "0", code=75) == {"pending": True}
    assert not cli.here.root.store.exists()
    log = cli.here.root.path / "orchestrator.log"
    log.mkdir()  # the orchestrator cannot be started
    pending = cli.json("events", "--wait-ms", "2000", code=75)
    assert pending["pending"] is True
    assert pending["reason"]
    log.rmdir()
    head = cli.json("events")["head"]
    assert head.endswith(".0")
    assert cli.json("events", "--after", head) == {"head": head, "more": False}
    cli.json(*WORKER, "--request", "job", "--json")
    cli.sealed("job")
    lines = [json.loads(line) for line in cli.run("events", "--after", head).stdout.splitlines()]
    assert lines[0]["type"] == "submitted", "a head that was told stays one of this log"
    assert lines[-1] == {"head": lines[-2]["cursor"], "more": False}
    for cursor in ("ffff.1", f"{head.partition('.')[0]}.999"):
        expired = cli.json("events", "--after", cursor, code=4)
        assert (expired["error"], expired["oldest"]) == ("cursor-expired", head)
        told = cli.run("tail", "--after", cursor)
        assert (told.returncode, json.loads(told.stdout)["error"]) == (4, "cursor-expired")
    assert cli.run("tail", "--after", "rubbish").returncode == 1
    assert cli.run("events", "job").stdout.splitlines()[0].split()[1] == "submitted", "by its request's name too"
