"""The agents' commands: strict options, JSON on every path, and reading a log that is not there yet."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.subagents import starter
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


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("run", "--agent", "worker", "--agent", "scout", "--task", "x"), "--agent is given 2 times"),
        (("run", "--agent", "worker", "--task", "x", "--request", "a", "--request", "b"), "--request is given 2 times"),
        (("run", "--agent", "worker", "--task", "x", "--session", "a\tb"), "invalid-session"),
        (("run", "--agent", "nobody", "--task", "x"), "unknown agent"),
        (("run", "--nosuch"), "No such option"),
        (("send", "steer", "--to", "x/y", "--message", "m", "--message", "n"), "--message is given 2 times"),
        (("send", "steer", "--to", "x/y", "--message", "m", "--qid", "q"), "--qid goes with answer"),
        (("send", "notify", "--to", "x/y", "--message", "m", "--model", "a:b"), "--model goes with"),
        (("send", "model", "--to", "x/y", "--model", "a:b", "--message", "m"), "no message"),
        (("send", "steer", "--to", "x/y"), "the message is empty"),
        (("stop", "x", "y"), "unexpected extra argument"),
        (("status", "--full"), "go with a workflow"),
        (("status", "nosuch"), "no workflow"),
        (("prune", "--older-than", "1", "--older-than", "2"), "--older-than is given 2 times"),
    ],
)
def test_r421_r423_b022_b056_each_refusal_is_json_where_that_is_asked_for(
    commands: Make, arguments: tuple[str, ...], word: str
) -> None:
    cli = commands({})
    told = cli.run(*arguments, "--json")
    assert told.returncode in (1, 2)
    (line,) = told.stdout.splitlines()
    found = json.loads(line)
    assert word in found["reason"]
    assert told.stderr == ""
    plain = cli.run(*arguments)
    assert (plain.returncode, plain.stdout) == (told.returncode, "")
    assert word in plain.stderr
    assert not list(cli.here.root.inbox.glob("*/*.json"))
    assert starter.running(cli.here.root) is None


def test_r427_what_a_spec_may_not_hold_is_refused(commands: Make) -> None:
    cli = commands({})
    for more, word in (
        ({"action": "stop"}, "only the action run"),
        ({"request": "r"}, "request is an option"),
        ({"labels": {"a": "b"}}, "labels is an option"),
    ):
        spec = cli.here.work / "spec.json"
        spec.write_text(json.dumps({"agent": "worker", "task": "x", **more}))
        refused = cli.json("run", "--spec", "spec.json", "--json", code=1)
        assert word in refused["reason"]
        assert refused["applied"] is False
    assert not cli.here.root.store.exists()


def test_r382_an_inherited_session_that_is_none_has_no_effect(commands: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    cli = commands({"a": [{"say": "ok"}]})
    monkeypatch.setenv("PERDURE_SESSION", "two\nlines")
    cli.json(*WORKER, "--request", "one", "--json")
    assert "listed" not in cli.json("describe", "one")
    monkeypatch.setenv("PERDURE_SESSION", "s-mine")
    cli.json(*WORKER, "--request", "two", "--json")
    assert cli.json("describe", "two")["listed"] == "s-mine"
    named = cli.json(*WORKER, "--request", "three", "--session", "s-other", "--json")
    assert cli.json("describe", "three")["listed"] == "s-other"
    again = cli.json(*WORKER, "--request", "three", "--json")
    assert (again["wid"], again["created"]) == (named["wid"], False), "where it is listed is no part of what is asked"


def test_r430_the_commands_need_no_library_of_a_provider_or_a_terminal(commands: Make) -> None:
    cli = commands({"a": [{"say": "ok"}]})
    folder = cli.here.work.parent / "without"
    folder.mkdir()
    missing = ("pydantic_ai", "openai", "anthropic", "google", "httpx2", "httpx", "rich", "textual", "prompt_toolkit")
    for name in missing:
        (folder / f"{name}.py").write_text(f"raise ImportError('{name} is not installed here')\n")
    os.environ["PYTHONPATH"] += f"{os.pathsep}{folder}"
    os.environ["PYTHONPATH"] = os.pathsep.join(reversed(os.environ["PYTHONPATH"].split(os.pathsep)))
    assert cli.json(*WORKER, "--request", "job", "--json")["applied"] is True
    cli.sealed("job")
    for words in (("status",), ("events",), ("list",), ("smoke",), ("doctor",)):
        told = cli.run(*words)
        assert told.returncode == 0, (words, told.stdout, told.stderr)


def test_r457_a_tail_prints_what_comes_and_nothing_else(commands: Make) -> None:
    cli = commands({"a": [{"say": "ok"}]}, k={"idleExitMs": 20_000})
    cli.json(*WORKER, "--request", "job", "--json")
    cli.sealed("job")
    began = time.monotonic()
    assert cli.run("tail", "--for-ms", "700").stdout == "", "nothing changes"
    assert time.monotonic() - began < 15
    start = f"{cli.json('events')['head'].partition('.')[0]}.0"
    told = cli.run("tail", "--after", start, "--for-ms", "300").stdout
    assert [line.split()[1] for line in told.splitlines()][:2] == ["submitted", "started"]
    cli.run("restart")
    environment = {**os.environ, "PERDURE_HOME": str(cli.here.root.path)}
    arguments = [sys.executable, "-m", "perdure.cli", "agents", "tail", "--after", cli.json("events")["head"]]
    with subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        cli.json(*WORKER, "--request", "two", "--json")
        assert process.stdout.readline().split()[1] == "submitted"
        cli.sealed("two")
        cli.here.kill_orchestrator()
        assert process.wait(30) == 0, "it ends with the orchestrator"
    assert "sealed" in cli.run("tail", "--after", start).stdout, "what is logged is told without one"
