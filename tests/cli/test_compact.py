"""`perdure compact`, with and without a process that has the session open."""

import json
from pathlib import Path

import pytest

from tests.cli.kit import Cli, server, until

pytestmark = pytest.mark.slow
COMMAND = "touch started; until test -e go; do sleep 0.1; done"
WAITING = {"calls": [{"name": "bash", "arguments": {"command": COMMAND}}]}
MODEL = ("--model", "openai:scripted")
LONG = "a long story " * 30


def test_without_an_owner_the_next_process_that_goes_on_summarizes(tmp_path: Path) -> None:
    with server({"text": "one"}, {"text": "two"}) as model:
        cli = Cli(tmp_path, model.base_url)
        for _ in range(2):
            assert cli.run("ask", "--session", "s", *MODEL, LONG).returncode == 0
        stored = cli.json("compact", "s", "--instructions", "Keep the names.")
        assert (stored["compacting"], stored["by"]) == (1, None)
        assert [task["id"] for task in cli.json("inspect", "s")["tasks"]] == [stored["task"]]
        assert len(model.requests) == 2
        assert cli.run("resume", "s").returncode == 0
        assert len(model.requests) == 3
        assert "Keep the names." in json.dumps(model.requests[-1])
    assert "Summary of it" in cli.run("log", "s").stdout
    assert cli.json("inspect", "s")["tasks"] == []


def test_the_owner_is_asked_through_its_socket(tmp_path: Path) -> None:
    with server({"text": "one"}, WAITING) as model:
        cli = Cli(tmp_path, model.base_url)
        assert cli.run("ask", "--session", "s", *MODEL, LONG).returncode == 0
        asking = cli.start("ask", "--session", "s", *MODEL, "Run it")
        until((cli.repo / "started").exists)
        assert cli.json("compact", "s")["by"] == asking.pid
        (cli.repo / "go").touch()
        asking.communicate(timeout=60)
    assert "Summary of it" in cli.run("log", "s").stdout


def test_wishes_that_are_none_are_refused(tmp_path: Path) -> None:
    with server({"text": "one"}) as model:
        cli = Cli(tmp_path, model.base_url)
        assert cli.run("ask", "--session", "s", *MODEL, "hi").returncode == 0
        done = cli.run("compact", "s", "--instructions", " ")
        assert (done.returncode, "instructions are a text" in done.stderr) == (1, True)
        assert cli.run("compact", "nosuch").returncode == 1
