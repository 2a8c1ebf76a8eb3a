"""`perdure agents` as people use it: real processes, a scripted model."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.agents_place import Commands
from tests.cli.kit import server
from tests.subagents.place import Place

pytestmark = pytest.mark.slow


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Commands]]:
    made: list[Place] = []
    monkeypatch.setenv("PERDURE_TEST_SCRIPT", "")
    monkeypatch.setenv("PYTHONPATH", "")

    def make(script: dict[str, Any], **config: Any) -> Commands:
        made.append(Place(tmp_path, script, **config))
        return Commands(made[-1])

    yield make
    for one in made:
        one.end()


def test_a_run_from_its_start_to_its_removal(commands: Callable[..., Commands]) -> None:
    cli = commands({"a": [{"say": "It is done."}]})
    arguments = ("run", "--agent", "worker", "--task", "Do it", "--key", "a", "--request", "job", "--labels", "issue=7")
    started = cli.json(*arguments, "--json")
    assert (started["request"], started["applied"], started["created"]) == ("job", True, True)
    found = cli.sealed("job")
    assert found["labels"] == {"issue": "7"}
    again = cli.json(*arguments, "--json")
    assert (again["wid"], again["created"]) == (started["wid"], False)
    other = cli.run("run", "--agent", "worker", "--task", "Other", "--request", "job", "--json")
    assert (other.returncode, json.loads(other.stdout)["error"]) == (3, "request-conflict")
    text = cli.run("status", started["wid"]).stdout
    assert "a@1  ok  worker" in text
    assert "It is done." in text
    assert "nothing runs" in cli.run("status").stdout
    follow = cli.json("send", "follow-up", "--to", f"{started['wid']}/a", "--message", "More", "--json")
    assert follow["generation"] == 2
    cli.sealed("job")
    assert cli.json("doctor", "--json")["findings"] == []
    folder = cli.here.root.workflow(started["wid"])
    assert folder.exists()
    pruned = cli.json("prune", "--json")
    assert (pruned["pruned"], pruned["bytes"] > 0) == ([started["wid"]], True)
    assert not folder.exists()
    gone = cli.json("describe", "job")
    assert (gone["state"], gone["status"], gone["labels"]) == ("pruned", "done", {"issue": "7"})
    assert cli.json(*arguments, "--json")["created"] is False, "it never comes back"
    timeline = cli.run("events", started["wid"]).stdout
    assert [line.split()[1] for line in timeline.splitlines()] == [
        "submitted", "started", "model", "sealed", "workflow-done", "started", "sealed", "pruned"
    ]  # fmt: skip


def test_a_question_is_shown_with_the_command_that_answers_it(commands: Callable[..., Commands]) -> None:
    cli = commands({"a": [{"call": "ask", "args": {"question": "Which\x1b[31m color?"}}, {"say": "blue"}]})
    cli.json("run", "--agent", "worker", "--task", "x", "--key", "a", "--request", "job", "--json")
    deadline = time.monotonic() + 30
    while "asks:" not in (text := cli.run("status").stdout):
        assert time.monotonic() < deadline, text
        time.sleep(0.05)
    assert "\x1b" not in text
    assert "perdure agents send answer --to" in text
    assert cli.run("send", "answer", "--message", "blue").returncode == 0
    assert cli.sealed("job")["calls"][0]["output"] == "blue"
    twice = cli.run("send", "answer", "--message", "red")
    assert (twice.returncode, "no open question matches" in twice.stderr) == (1, True)


def test_mistakes_are_told_before_anything_is_recorded(commands: Callable[..., Commands]) -> None:
    cli = commands({})
    for arguments, word in (
        (("run", "--agent", "nobody", "--task", "x"), "unknown agent 'nobody'; there are: delegate"),
        (("run", "--agent", "worker"), "no run: give one of"),
        (("run", "--agent", "worker", "--task", " "), "task: a text that is not blank"),
        (("run", "--agent", "worker", "--task", "x", "--request", "-bad"), "not a request id"),
        (("run", "--agent", "worker", "--task", "x", "--labels", "novalue"), "not a label"),
        (("run", "--spec", "nosuch.json"), "cannot read 'nosuch.json'"),
        (("send", "steer", "--to", "w/a"), "the message is empty"),
        (("events", "--after", "rubbish"), ""),
        (("status", "nosuch"), "no workflow 'nosuch'"),
    ):
        done = cli.run(*arguments)
        assert done.returncode in (1, 75), (arguments, done.stdout, done.stderr)
        assert word in done.stderr + done.stdout, (arguments, done.stderr)
        assert "Traceback" not in done.stderr
    assert not list(cli.here.root.inbox.glob("*/*.json"))
    assert not cli.here.root.store.exists(), "nothing was started"
    assert cli.run("run", "--nosuch").returncode == 2


def test_a_spec_from_standard_input_and_events_by_cursor(commands: Callable[..., Commands]) -> None:
    cli = commands({"*": [{"say": "fine"}]})
    spec = {"tasks": [{"agent": "scout", "task": "a"}, {"agent": "scout", "task": "b"}], "name": "two"}
    assert cli.run("run", "--spec", "-", "--request", "job", stdin=json.dumps(spec)).returncode == 0
    cli.sealed("job")
    head = cli.json("events")["head"]
    epoch = head.split(".")[0]
    lines = [json.loads(line) for line in cli.run("events", "--after", f"{epoch}.0").stdout.splitlines()]
    assert lines[-1] == {"head": head, "more": False}
    assert [line["type"] for line in lines[:-1]].count("sealed") == 2
    assert {line["request"] for line in lines[:-1]} == {"job"}
    expired = cli.run("events", "--after", "ffff.1")
    assert (expired.returncode, json.loads(expired.stdout)["error"]) == (4, "cursor-expired")


def test_an_orchestrator_that_is_replaced_interrupts_nothing(commands: Callable[..., Commands]) -> None:
    cli = commands({"a": [{"call": "bash", "args": {"command": "echo x >> count; sleep 2"}}, {"say": "done"}]})
    cli.json("run", "--agent", "worker", "--task", "x", "--key", "a", "--request", "job", "--json")
    deadline = time.monotonic() + 30
    while not (cli.here.work / "count").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert "restarted (pid" in cli.run("restart").stdout
    found = cli.sealed("job")
    assert found["calls"][0]["status"] == "ok"
    assert "lastFence" not in found["calls"][0]
    assert (cli.here.work / "count").read_text() == "x\n"
    assert len(cli.here.requests) == 2


def test_an_agent_of_perdure_ask_starts_subagents_in_a_repository_and_hears_of_their_work(
    commands: Callable[..., Commands],
) -> None:
    cli = commands(
        {"fixer": [{"call": "bash", "args": {"command": "echo fixed >> code.txt"}}, {"say": "It is fixed."}]}
    )
    work = cli.here.work
    subprocess.run(["git", "init", "-q", "."], cwd=work, check=True)
    (work / "code.txt").write_text("broken\n")
    start = {"agent": "worker", "task": "Fix code.txt", "options": {"key": "fixer"}}
    turns: list[dict[str, Any]] = [
        {"calls": [{"name": "subagents", "arguments": start}]}, {"text": "I have started one."},
        {"text": "The subagent has fixed it."},
    ]  # fmt: skip
    with server(*turns) as model:
        environment = {
            **os.environ, "PERDURE_HOME": str(cli.here.root.path), "PERDURE_SESSIONS": str(work / ".sessions"),
            "OPENAI_API_KEY": "k", "OPENAI_BASE_URL": model.base_url,
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-m", "perdure.cli", "ask", "--model", "openai:x", "--subagents", "Have code.txt fixed"],
            cwd=work, env=environment, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        asked = json.dumps(model.requests[-1].body if hasattr(model.requests[-1], "body") else model.requests[-1])
    assert done.returncode == 0, done.stderr
    assert done.stdout == "I have started one.\nThe subagent has fixed it.\n"
    assert "subagents at work:" in done.stderr
    assert (work / "code.txt").read_text() == "broken\nfixed\n"
    assert "It is fixed." in asked
