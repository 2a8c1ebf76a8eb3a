"""`perdure ask --subagents` that is told to end: what runs for it is held, and its return says so."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.agents_place import Commands
from tests.cli.kit import server
from tests.subagents.place import Place

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        pytest.param(signal.SIGHUP, marks=pytest.mark.long),
        pytest.param(signal.SIGINT, marks=pytest.mark.long),
    ],
)
def test_r170_each_way_to_quit_holds_the_work_of_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.setenv("PERDURE_TEST_SCRIPT", "")
    monkeypatch.setenv("PYTHONPATH", "")
    here = Place(tmp_path, {"a": [{"say": "done", "hold": 3.0}]}, k={"idleExitMs": 60_000})
    cli = Commands(here)
    start = {"agent": "worker", "task": "Do it", "options": {"key": "a"}}
    try:
        with server(
            {"calls": [{"name": "subagents", "arguments": start}]}, {"text": "Started."}, {"text": "x"}
        ) as model:
            environment = {
                **os.environ, "PERDURE_HOME": str(here.root.path), "PERDURE_SESSIONS": str(tmp_path / "sessions"),
                "OPENAI_API_KEY": "k", "OPENAI_BASE_URL": model.base_url,
            }  # fmt: skip
            words = [sys.executable, "-m", "perdure.cli", "ask", "--model", "openai:x", "--subagents", "--session", "s"]
            with subprocess.Popen(
                [*words, "Start it"], cwd=here.work, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            ) as process:
                deadline = time.monotonic() + 60
                while not here.requests and time.monotonic() < deadline:
                    time.sleep(0.05)
                process.send_signal(number)
                _, said = process.communicate(timeout=60)
            assert process.returncode == 130, said
            assert b"Traceback" not in said
            (live,) = cli.json("status", "--json")["live"]
            assert live["held"] is True
            again = subprocess.run(
                [*words, "Hello"],
                cwd=here.work,
                env=environment,
                capture_output=True,
                text=True,
                timeout=60,
                check=True,
            )
            assert f"held since this session was left: {live['wid']}" in again.stderr
            assert cli.json("resume", live["wid"], "--json")["resumed"] == [live["wid"]]
            assert cli.sealed(live["wid"])["calls"][0]["status"] == "ok"
    finally:
        here.end()
