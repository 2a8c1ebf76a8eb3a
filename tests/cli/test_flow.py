"""The command line at its main job: an agent over HTTP in a real repository, killed, resumed, stopped by others."""

import json
import os
import signal
import stat
from pathlib import Path

import pytest

from tests.cli.kit import Cli, alive, kill, server, until

pytestmark = pytest.mark.slow
MODEL = ("--model", "openai:scripted")


def calls(name: str, **arguments: object) -> dict[str, object]:
    return {"calls": [{"name": name, "arguments": arguments}]}


def test_an_agent_reads_edits_and_runs_in_a_repository(tmp_path: Path) -> None:
    turns = (
        calls("read", path="add.py"),
        calls("edit", path="add.py", old_text="a - b", new_text="a + b"),
        calls("bash", command="python3 add.py && echo passed"),
        {"text": "It subtracted; now it adds."},
    )
    with server(*turns) as model:
        cli = Cli(tmp_path, model.base_url)
        (cli.repo / "add.py").write_text("def add(a, b):\n    return a - b\n\nassert add(2, 2) == 4\n")
        done = cli.run("ask", "--session", "fix", *MODEL, "Make add.py pass")
        assert (done.returncode, done.stdout) == (0, "It subtracted; now it adds.\n")
        assert done.stderr == "session fix\n"
    assert "a + b" in (cli.repo / "add.py").read_text()
    log = cli.run("log", "fix").stdout
    assert [line.split()[1] for line in log.splitlines()] == [
        *("user", "system", "call", "result", "call", "result", "call", "result", "agent")
    ]
    assert "passed" in log
    assert cli.json("usage", "fix")["total"]["requests"] == 4
    assert cli.json("inspect", "fi")["conversations"][0]["busy"] is False
    assert [row["name"] for row in cli.json("sessions")] == ["fix"]


def test_a_killed_ask_is_resumed_and_no_command_runs_twice(tmp_path: Path) -> None:
    marker = f"sleep 3{os.getpid()}"
    with server(calls("bash", command=f"echo ran >> ledger; (setsid {marker} &); {marker}"), {"text": "ok"}) as model:
        cli = Cli(tmp_path, model.base_url)
        asking = cli.start("ask", "--session", "job", "--request-id", "r1", *MODEL, "Run it")
        until((cli.repo / "ledger").exists)
        until(lambda: alive(marker))
        assert cli.json("sessions")[0]["pid"] == asking.pid
        other = cli.run("ask", "--session", "job", "Me too")
        assert other.returncode == 75
        assert "certain: nothing was stored" in other.stderr
        kill(asking)
        until(lambda: not alive(marker), 5)
        resumed = cli.run("resume", "job")
        assert (resumed.returncode, resumed.stdout) == (0, "ok\n")
        again = cli.run("ask", "--session", "job", "--request-id", "r1", "Run it")
        assert (again.returncode, again.stdout) == (0, "ok\n")
        conflict = cli.run("ask", "--session", "job", "--request-id", "r1", "Something else")
        assert conflict.returncode == 3
        assert "Run it" not in conflict.stderr
        assert len(model.requests) == 2
    assert (cli.repo / "ledger").read_text() == "ran\n"
    assert "interrupted" in cli.run("log", "job").stdout
    assert cli.run("resume", "job").returncode == 0


def test_a_stream_that_is_killed_is_sent_again_and_its_beginning_kept(tmp_path: Path) -> None:
    with server({"text": "A beginning of", "hold": True}, {"text": "the whole answer"}) as model:
        cli = Cli(tmp_path, model.base_url)
        asking = cli.start("ask", "--session", "s", "--json", *MODEL, "Tell me")
        assert asking.stdout is not None
        while json.loads(asking.stdout.readline())["type"] != "message_update":
            pass
        kill(asking)
        resumed = cli.run("resume", "s")
        assert (resumed.returncode, resumed.stdout) == (0, "the whole answer\n")
    assert "[aborted: the process ended while the answer was streaming] A b" in cli.run("log", "s").stdout


def test_the_owner_is_told_to_abort_through_its_socket(tmp_path: Path) -> None:
    with server(calls("bash", command="touch started; sleep 60"), {"text": "never"}) as model:
        cli = Cli(tmp_path, model.base_url)
        asking = cli.start("ask", "--session", "s", *MODEL, "Run it")
        until((cli.repo / "started").exists)
        (socket,) = cli.sockets()
        assert stat.S_IMODE(socket.stat().st_mode) == 0o600
        assert cli.json("abort", "s") == {"aborted": 1, "by": asking.pid}
        _, errors = asking.communicate(timeout=30)
        assert asking.returncode == 1
        assert "no answer: aborted" in errors
        assert not socket.exists()
        assert len(model.requests) == 1


def test_without_an_owner_an_abort_is_a_mark_and_the_next_process_cleans_up(tmp_path: Path) -> None:
    with server(calls("bash", command="touch started; sleep 60"), {"text": "never"}) as model:
        cli = Cli(tmp_path, model.base_url)
        asking = cli.start("ask", "--session", "s", *MODEL, "Run it")
        until((cli.repo / "started").exists)
        kill(asking)
        assert len(cli.sockets()) == 1  # a dead owner's, and nobody minds
        assert cli.json("abort", "s") == {"aborted": 1, "by": None}
        tasks = cli.json("inspect", "s")["tasks"]
        assert tasks
        assert all(task["abort_requested"] for task in tasks)
        assert cli.run("resume", "s").returncode == 1
        assert cli.json("inspect", "s")["tasks"] == []
        assert len(model.requests) == 1


def test_ctrl_c_stops_in_good_order_and_the_work_can_go_on(tmp_path: Path) -> None:
    with server(calls("bash", command="touch started; sleep 60"), {"text": "done"}) as model:
        cli = Cli(tmp_path, model.base_url)
        asking = cli.start("ask", "--session", "s", "--json", *MODEL, "Run it", start_new_session=True)
        until((cli.repo / "started").exists)
        asking.send_signal(signal.SIGINT)
        output, errors = asking.communicate(timeout=30)
        assert asking.returncode == 130
        assert json.loads(output.splitlines()[0])["type"] == "submitted"
        assert errors.split("\n") == ["the input is stored: `perdure resume s` goes on with it", "", "stopped", ""]
        assert cli.run("resume", "s").stdout == "done\n"


def test_a_reader_that_goes_away_is_no_mistake(tmp_path: Path) -> None:
    with server({"text": "line\n" * 2000}) as model:
        cli = Cli(tmp_path, model.base_url)
        cli.run("ask", "--session", "s", *MODEL, "Talk")
        logging = cli.start("log", "s", "--full")
        assert logging.stdout is not None
        logging.stdout.readline()
        logging.stdout.close()
        logging.wait(30)
        assert logging.stderr is not None
        assert "Traceback" not in logging.stderr.read()
        logging.stderr.close()


def test_json_output_is_json_in_every_outcome(tmp_path: Path) -> None:
    with server({"status": 401, "error": "no such key"}) as model:
        cli = Cli(tmp_path, model.base_url)
        failed = cli.run("ask", "--session", "s", "--json", *MODEL, "Hi")
        assert failed.returncode == 1
        lines = [json.loads(line) for line in failed.stdout.splitlines()]
        assert lines[-1]["type"] == "unanswered"
        assert lines[-1]["detail"].startswith("auth_failed")


def test_an_attached_image_reaches_the_model_and_is_named_in_the_log(tmp_path: Path) -> None:
    with server({"text": "A red square."}, {"text": "Still red."}) as model:
        cli = Cli(tmp_path, model.base_url)
        (cli.repo / "square.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(64))
        (cli.repo / "notes.md").write_text("# Colours\n")
        shown = ("--attach", str(cli.repo / "square.png"), "--attach", str(cli.repo / "notes.md"))
        done = cli.run("ask", "--session", "see", *MODEL, *shown, "What is it?")
        assert (done.returncode, done.stdout) == (0, "A red square.\n")
        assert cli.run("ask", "--session", "see", "Sure?").stdout == "Still red.\n"
        parts = model.requests[1]["messages"][0]["content"]
    assert [part["type"] for part in parts] == ["text", "image_url", "text"]
    assert parts[2]["text"] == "[notes.md]\n# Colours\n"
    assert "square.png" in cli.run("log", "see").stdout


def test_without_a_stdin_nothing_is_read_from_it(tmp_path: Path) -> None:
    asking = Cli(tmp_path).start("ask", "-", preexec_fn=lambda: os.close(0))
    _, errors = asking.communicate(timeout=30)
    assert asking.returncode == 1
    assert errors.startswith("error: there is no stdin")
