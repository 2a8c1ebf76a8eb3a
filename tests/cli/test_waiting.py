"""`perdure tasks`, `answer`, `signal`: what waits is seen and moved on, whoever has the session open."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.kit import Cli, kill, server, until

pytestmark = pytest.mark.slow
MODEL = ("--model", "openai:scripted", "--app", "app:registry")
APP = """
from perdure import Extension, Registry, Signal, Sleep, ToolContext
from perdure.tools import approvals, ask_person

Done = Signal("ops.done", schema=str)
ops = Extension("ops", signals=[Done])


@ops.tool(replay="safe")
async def run_ci(ctx: ToolContext) -> str | Sleep:
    "Run the build."
    state = await ctx.read_signal(Done, "done")
    return Sleep(signals=[Done.key("done")]) if state is None else f"build {state.value}"


@ops.tool
async def deploy(ctx: ToolContext, version: str) -> str:
    "Deploy."
    open("deployed", "a").write(version)
    return "deployed"


registry = Registry([ops, ask_person, approvals(tools=["deploy"])])
"""


def calls(name: str, **arguments: object) -> dict[str, object]:
    return {"calls": [{"name": name, "arguments": arguments}]}


def started(tmp_path: Path, model: Any) -> Cli:
    cli = Cli(tmp_path, model.base_url)
    (cli.repo / "app.py").write_text(APP)
    return cli


def sleeping(cli: Cli) -> list[dict[str, Any]]:
    if cli.run("tasks", "s").returncode:
        return []
    return [row for row in cli.json("tasks", "s")["tasks"] if row["status"] == "sleeping"]


def test_without_an_owner_an_answer_is_stored_and_the_next_process_goes_on(tmp_path: Path) -> None:
    with server(calls("ask_person", question="Which color?", choices=["red", "blue"]), {"text": "fine"}) as model:
        cli = started(tmp_path, model)
        asking = cli.start("ask", "--session", "s", *MODEL, "Paint it")
        until(lambda: bool(sleeping(cli)))
        kill(asking)
        (asked,) = cli.json("answer", "s")["questions"]
        assert (asked["text"], asked["choices"]) == ("Which color?", ["red", "blue"])
        assert asked["id"] in cli.run("answer", "s").stdout
        assert "  - blue" in cli.run("answer", "s", asked["id"]).stdout
        assert f"? {asked['id']}  Which color?" in cli.run("tasks", "s").stdout
        wrong = cli.run("answer", "s", asked["id"], "green")
        assert (wrong.returncode, wrong.stdout) == (1, "")
        assert "invalid" in wrong.stderr
        short = asked["id"][: asked["id"].index("-") + 2]
        done = cli.run("answer", "s", short, "blue", "--note", "the dark one", "--json")
        assert (done.returncode, json.loads(done.stdout)) == (0, {"result": "delivered", "by": None})
        assert cli.json("answer", "s")["questions"] == []
        second = cli.run("answer", "s", asked["id"], "red", "--json")
        assert (second.returncode, json.loads(second.stdout)["result"]) == (3, "duplicate")
        assert len(model.requests) == 1, "nothing ran"
        resumed = cli.run("resume", "s", "--app", "app:registry")
        assert (resumed.returncode, resumed.stdout) == (0, "fine\n")
        assert "the dark one" in json.dumps(model.requests[-1])
        assert cli.run("answer", "s", asked["id"], "red").returncode == 1
        assert cli.run("tasks", "s").stdout == "nothing runs and nothing waits\n"


def test_the_owner_is_asked_to_take_an_approval(tmp_path: Path) -> None:
    with server(calls("deploy", version="v2"), {"text": "live"}) as model:
        cli = started(tmp_path, model)
        asking = cli.start("ask", "--session", "s", *MODEL, "Deploy v2")
        until(lambda: bool(sleeping(cli)))
        (asked,) = cli.json("answer", "s")["questions"]
        assert (asked["kind"], asked["tool"], asked["arguments"]) == ("approval", "deploy", {"version": "v2"})
        assert '{"version":"v2"}' in cli.run("answer", "s").stdout
        assert not (cli.repo / "deployed").exists()
        assert cli.run("answer", "s", asked["id"], "perhaps").returncode == 1
        done = cli.run("answer", "s", asked["id"], "-", "--json", stdin="yes\n")
        assert json.loads(done.stdout) == {"result": "delivered", "by": asking.pid}
        assert asking.communicate(timeout=30)[0] == "live\n"
    assert (cli.repo / "deployed").read_text() == "v2"


def test_a_value_is_delivered_by_name_to_a_sleeping_task(tmp_path: Path) -> None:
    with server(calls("run_ci"), {"text": "green"}) as model:
        cli = started(tmp_path, model)
        asking = cli.start("ask", "--session", "s", *MODEL, "Check")
        until(lambda: bool(sleeping(cli)))
        (row,) = sleeping(cli)
        assert row["signals"] == [["ops.done", "done"]]
        task = str(row["id"])
        told = cli.run("signal", "s", task, "ops.other", "done", '"x"')
        assert (told.returncode, "no installed extension brings a signal" in told.stderr) == (1, True)
        kill(asking)
        unknown = cli.run("signal", "s", task, "ops.done", "done", '"passed"')
        assert (unknown.returncode, "ops.done" in unknown.stderr) == (1, True)
        for value, code in (("not json", 2), ("NaN", 2), ("7", 1)):
            done = cli.run("signal", "s", task, "ops.done", "done", value, "--app", "app:registry")
            assert (done.returncode, done.stdout) == (code, "")
        assert cli.run("signal", "s", "4711", "ops.done", "done", '"x"', "--app", "app:registry").returncode == 1
        (cli.repo / "perdure.toml").write_text('app = "app:registry"\n')
        assert cli.json("signal", "s", task, "ops.done", "done", '"passed"') == {"result": "delivered", "by": None}
        assert cli.run("signal", "s", task, "ops.done", "done", '"failed"').returncode == 3
        assert len(model.requests) == 1
        assert cli.run("resume", "s").stdout == "green\n"
        assert "build passed" in json.dumps(model.requests[-1])


def test_the_owner_delivers_a_value_and_refuses_one_that_is_too_large(tmp_path: Path) -> None:
    with server(calls("run_ci"), {"text": "green"}) as model:
        cli = started(tmp_path, model)
        asking = cli.start("ask", "--session", "s", *MODEL, "Check")
        until(lambda: bool(sleeping(cli)))
        task = str(sleeping(cli)[0]["id"])
        large = cli.run("signal", "s", task, "ops.done", "done", "-", stdin=json.dumps("x" * 100_000))
        assert (large.returncode, "send a reference" in large.stderr) == (1, True)
        assert cli.json("signal", "s", task, "ops.done", "done", '"passed"')["by"] == asking.pid
        assert asking.communicate(timeout=30)[0] == "green\n"


def test_what_is_no_question_or_session_is_refused(tmp_path: Path) -> None:
    with server({"text": "hello"}) as model:
        cli = started(tmp_path, model)
        assert cli.run("ask", "--session", "s", *MODEL, "hi").returncode == 0
        assert cli.run("answer", "s").stdout == "no open questions\n"
        for arguments, code in (
            (("answer", "s", "12"), 1),
            (("answer", "s", "nonsense", "yes"), 1),
            (("answer", "s", "4711-answer", "yes"), 1),
            (("signal", "s", "0", "ops.done", "done", "1"), 2),
            (("signal", "s", "x", "ops.done", "done", "1"), 2),
            (("tasks", "nosuch"), 1),
        ):
            done = cli.run(*arguments)
            assert (done.returncode, done.stdout) == (code, ""), arguments
            assert "Traceback" not in done.stderr
