"""Options, exit codes and replies of `perdure agents`."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.cli.agents import COMMANDS
from perdure.subagents import starter
from tests.cli.agents_place import Commands
from tests.subagents.place import Place

pytestmark = pytest.mark.slow
Make = Callable[..., Commands]
LATER = {"drill", "hold", "leases", "install-service", "uninstall-service"}
"""Commands that come with failover, leases and the service."""


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


WORKER = ("run", "--agent", "worker", "--task", "Do it", "--key", "a")


def test_r420_help_lists_every_command_and_another_word_is_an_error(commands: Make) -> None:
    cli = commands({})
    told = cli.run("--help")
    assert told.returncode == 0
    for name in COMMANDS:
        assert f"\n  {name} " in told.stdout
    wanted = "smoke chaos status events tail start resume drain run send stop describe stop-all prune restart doctor"
    assert set(wanted.split()) <= set(COMMANDS)
    for name in ("unknown", *LATER):
        refused = cli.run(name)
        assert refused.returncode == 2
        assert "No such command" in refused.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "--agnt", "worker", "--task", "x"),
        ("run", "--agent", "worker", "--task", "x", "stray"),
        ("run", "--agent", "worker", "--task", "x", "--wait-ms", "soon"),
        ("send", "shout", "--to", "x/y", "--message", "m"),
        ("send", "steer", "--to", "x/y", "--rev", "one"),
        ("send", "steer", "--to", "x/y"),
        ("send", "steer", "--to", "x/y", "--message", "  "),
        ("send", "answer", "--to", "x/y", "--to", "x/z", "--message", "m"),
        ("send", "steer", "--to", "x/y", "--to", "x/z", "--message", "m", "--replaces", "r"),
        ("stop",),
        ("status", "w", "--tail", "0"),
        ("events", "--limit", "many"),
        ("prune", "--older-than", "x"),
    ],
)  # fmt: skip
def test_r421_a_wrong_option_is_an_error_before_any_effect(commands: Make, arguments: tuple[str, ...]) -> None:
    cli = commands({})
    refused = cli.run(*arguments)
    assert refused.returncode in (1, 2)
    assert refused.stderr
    assert not cli.here.root.store.exists()
    assert starter.running(cli.here.root) is None


def test_r422_r423_r425_r426_r443_exit_codes_and_replies_of_run(commands: Make) -> None:
    cli = commands({"a": [{"say": "ok"}]})
    agents = cli.here.work / ".agents"
    agents.mkdir()
    (agents / "mine.md").write_text("---\nname: mine\ndescription: d\n---\nYou work.\n")
    mine = ("run", "--agent", "mine", "--task", "Do it", "--key", "a", "--request", "job", "--json")
    first = cli.json(*mine)
    assert {"request", "wid", "created", "spec_digest"} <= set(first)
    assert first["created"] is True
    (agents / "mine.md").unlink()
    again = cli.json(*mine)
    assert (again["wid"], again["created"]) == (first["wid"], False), "a recorded run is not refused for its agent"
    other = cli.json("run", "--agent", "nobody", "--task", "Other", "--request", "job", "--json", code=3)
    assert {"request", "error", "spec_digest", "state"} <= set(other), "before any look at agents"
    refused = cli.run("run", "--agent", "nobody", "--task", "x", "--request", "second", "--json")
    assert refused.returncode == 1
    assert "unknown agent" in refused.stderr + refused.stdout
    cli.sealed("job")
    cli.json("prune", first["wid"], "--json", "--wait-ms", "20000")
    pruned = cli.json("run", "--agent", "nobody", "--task", "Other", "--request", "job", "--json", code=3)
    assert (pruned["spec_digest"], pruned["state"]) == (first["spec_digest"], "pruned"), "a name is never free again"


def test_r422_r424_several_targets_have_a_line_each_and_the_gravest_code(commands: Make) -> None:
    cli = commands({"a": [{"say": "never", "hold": 60}]})
    wid = cli.json(*WORKER, "--request", "job", "--json")["wid"]
    good, bad = f"{wid}/a", f"{wid}/b"
    told = cli.run("send", "notify", "--to", good, "--to", bad, "--message", "hello", "--request", "n")
    assert told.returncode == 1
    assert len((told.stdout + told.stderr).strip().splitlines()) >= 2
    both = ("send", "notify", "--to", good, "--to", bad, "--request", "n", "--json")
    again = cli.json(*both, "--message", "hello", code=1)
    assert [one["applied"] for one in again["targets"]] == [True, False]
    other = cli.run(*both, "--message", "bye")
    assert other.returncode == 3
    assert cli.json("stop", wid, "--json")["applied"] is True
    rejected = cli.json("stop", wid, "--json", code=1)
    assert rejected["applied"] is False
    assert rejected["reason"].startswith(("terminal:", "already"))


def test_r428_r425_without_an_orchestrator_nothing_is_waited_for_and_nothing_is_refused(
    commands: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli = commands({"a": [{"say": "ok"}]})
    began = time.monotonic()
    pending = cli.json(*WORKER, "--request", "job", "--wait-ms", "0", "--json", code=75)
    assert time.monotonic() - began < 5
    assert pending["pending"] is True
    assert cli.json("describe", "job")["state"] in ("pending", "running", "sealed")
    cli.run("start")
    assert cli.sealed("job")["calls"][0]["status"] == "ok"


def test_r425_a_starter_that_fails_after_recording_is_no_refusal(commands: Make) -> None:
    cli = commands({"a": [{"say": "ok"}]})
    log = cli.here.root.path / "orchestrator.log"
    log.mkdir()  # the orchestrator cannot be started
    pending = cli.json(*WORKER, "--request", "job", "--wait-ms", "3000", "--json", code=75)
    assert pending["pending"] is True
    assert pending["reason"]
    log.rmdir()
    assert cli.json(*WORKER, "--request", "job", "--json")["applied"] is True


def test_r427_messages_from_files_and_specs_from_standard_input(commands: Make) -> None:
    cli = commands({"a": [{"say": "one"}, {"say": "two"}]})
    spec = {"agent": "worker", "task": "Do it", "key": "a"}
    wid = cli.run("run", "--spec", "-", "--request", "job", "--json", stdin=json.dumps(spec))
    assert wid.returncode == 0, wid.stderr
    cli.sealed("job")
    (cli.here.work / "more.txt").write_text("Go on\nlike this\n")
    sent = cli.json("send", "follow-up", "--to", json.loads(wid.stdout)["wid"], "--message", "@more.txt", "--json")
    assert sent["generation"] == 2
    deadline = time.monotonic() + 30
    while len(cli.here.requests) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert cli.here.requests[-1]["messages"][-1] == ["user", "Go on\nlike this\n"]
    for field in ({"action": "stop"}, {"request": "x"}, {"labels": {"a": "b"}}, {"tsak": "x"}):
        refused = cli.run("run", "--spec", "-", stdin=json.dumps({**spec, **field}))
        assert refused.returncode == 1
        assert next(iter(field)) in refused.stderr
    for text in ("[1]", "{", ""):
        assert cli.run("run", "--spec", "-", stdin=text).returncode == 1


def test_r429_start_does_nothing_where_nothing_waits(commands: Make) -> None:
    cli = commands({})
    told = cli.run("start")
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")
    assert starter.running(cli.here.root) is None
    assert not cli.here.root.store.exists()


@pytest.mark.parametrize("after", [0.02, 0.15, 0.3, 0.6])
def test_r431_an_interrupted_run_is_absent_or_can_be_asked_for_again(commands: Make, after: float) -> None:
    cli = commands({"a": [{"say": "ok"}]})
    environment = {**os.environ, "PERDURE_HOME": str(cli.here.root.path)}
    arguments = [sys.executable, "-m", "perdure.cli", "agents", *WORKER, "--request", "job", "--json"]
    with subprocess.Popen(
        arguments, cwd=cli.here.work, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        time.sleep(after)
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        process.stdout.close()
        process.wait(30)
    assert cli.json(*WORKER, "--request", "job", "--json")["applied"] is True
    found = cli.sealed("job")
    assert len(found["calls"]) == 1
    assert len(cli.json("status", "--json")["recent"]) == 1
    assert len(cli.here.requests) == 1


def test_r445_without_a_name_each_run_is_a_new_one(commands: Make) -> None:
    cli = commands({"a": [{"say": "ok"}]})
    assert cli.json(*WORKER, "--json")["wid"] != cli.json(*WORKER, "--json")["wid"]


def test_r518_there_is_nothing_to_restart(commands: Make) -> None:
    cli = commands({})
    told = cli.run("restart")
    assert (told.returncode, told.stdout) == (0, "no orchestrator runs\n")


def test_r358_reading_starts_nothing(commands: Make) -> None:
    cli = commands({"a": [{"say": "ok"}]}, k={"idleExitMs": 100})
    cli.json(*WORKER, "--request", "job", "--json")
    cli.sealed("job")
    deadline = time.monotonic() + 20
    while starter.running(cli.here.root) is not None and time.monotonic() < deadline:
        time.sleep(0.05)
    before = sorted(path.name for path in cli.here.root.path.iterdir())
    for words in (("status",), ("describe", "job"), ("events",), ("events", "job"), ("doctor",), ("list",)):
        cli.run(*words)
    assert starter.running(cli.here.root) is None
    assert {path.name for path in cli.here.root.path.iterdir()} - set(before) <= {
        "orchestrator.db-wal",
        "orchestrator.db-shm",
    }
    shutil.rmtree(cli.here.root.path / "bin", ignore_errors=True)
