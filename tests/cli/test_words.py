"""What the command line says to people who ask, mistype, or mean harm."""

import json
from pathlib import Path

import pytest

from perdure.cli.main import COMMANDS
from tests.cli.kit import Cli, server

pytestmark = pytest.mark.slow
HOSTILE = ["../../x", "..%2f..%2fx", "/etc/x", "a/b", "", "x" * 300, "C:\\x", "ﾊ", "a..b", ".hidden", "a\nb"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_helps(tmp_path: Path, command: str) -> None:
    done = Cli(tmp_path).run(command, "--help")
    assert done.returncode == 0
    assert f"perdure {command}" in done.stdout


def test_the_help_names_commands_and_exit_codes(tmp_path: Path) -> None:
    text = Cli(tmp_path).run("--help").stdout
    assert all(name in text for name in COMMANDS)
    assert "75 try again" in " ".join(text.split())


def test_hostile_session_names_are_refused_and_make_nothing(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    before = sorted(path for path in tmp_path.rglob("*"))
    for name in HOSTILE:
        for arguments in (("ask", "--session", name, "--model", "openai:x", "hi"), ("log", name), ("abort", name)):
            done = cli.run(*arguments)
            assert done.returncode == 1, (arguments, done.stdout)
            assert done.stdout == ""
            assert "Traceback" not in done.stderr
    assert [path for path in sorted(tmp_path.rglob("*")) if path not in before] in ([], [cli.sessions])


def test_mistakes_get_a_clear_word_and_no_session(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    for arguments, word in (
        (("ask", "hi"), "no model is configured"),
        (("ask", "--model", "nosuch:m", "hi"), "no provider 'nosuch'"),
        (("ask", "--model", "nocolon", "hi"), "no model's name"),
        (("ask", "--model", "openai:x", "   "), "the input is empty"),
        (("log", "nosuch"), "no session 'nosuch'"),
        (("ask", "--model", "openai:x", "--app", "nosuch", "hi"), "not an app"),
    ):
        done = cli.run(*arguments)
        assert done.returncode == 1
        assert word in done.stderr
        assert "certain: nothing was stored" in done.stderr
    assert cli.run("log").returncode == 2
    assert cli.run("nosuch").returncode == 2
    assert "Did you mean 'sessions'" in cli.run("session").stderr
    assert cli.json("sessions") == []


def test_a_session_that_was_named_wrongly_tells_what_it_could_be(tmp_path: Path) -> None:
    with server({"text": "one"}) as model:
        cli = Cli(tmp_path, model.base_url)
        for name in ("alpha-1", "alpha-2", "beta"):
            assert cli.run("ask", "--session", name, "--model", "openai:x", "-", stdin="hi").stdout == "one\n"
    assert "beta" in cli.run("inspect", "b").stdout
    ambiguous = cli.run("inspect", "alpha")
    assert ambiguous.returncode == 1
    assert "alpha-1" in ambiguous.stderr
    assert "alpha-2" in ambiguous.stderr


def test_configuration_is_read_and_its_mistakes_are_named(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    (cli.repo / "perdure.toml").write_text('modle = "openai:x"\n')
    done = cli.run("sessions")
    assert done.returncode == 1
    assert "unknown key 'modle'" in done.stderr
    assert "did you mean 'model'?" in done.stderr
    (cli.repo / "perdure.toml").write_text("model = [\n")
    assert "is no TOML" in cli.run("sessions").stderr
    (cli.repo / "perdure.toml").write_text("model = 7\n")
    assert "Expected `str | null`" in cli.run("sessions").stderr
    with server({"text": "configured"}) as model:
        (cli.repo / "perdure.toml").write_text(f'model = "openai:x"\nbase_url = "{model.base_url}"\n')
        assert cli.run("ask", "hi").stdout == "configured\n"


def test_what_models_and_tools_say_does_not_reach_the_terminal_as_commands(tmp_path: Path) -> None:
    with server({"text": "\x1b[2Jclean\x1b]0;title\x07 text\x07"}) as model:
        cli = Cli(tmp_path, model.base_url)
        done = cli.run("ask", "--session", "s", "--model", "openai:x", "\x1b[31mhi")
    assert done.stdout == "clean text\n"
    log = cli.run("log", "s").stdout
    assert "\x1b" not in log
    assert "\x07" not in log
    assert any("\x1b" in json.loads(line)["messages"][0]["content"] for line in _json_lines(cli))


def _json_lines(cli: Cli) -> list[str]:
    return [line for line in cli.run("log", "s", "--json").stdout.splitlines() if '"role": "user"' in line]


def test_the_tour_proves_what_it_says(tmp_path: Path) -> None:
    done = Cli(tmp_path).run("tour")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAILED" not in done.stdout
    assert "deployments that really ran" in done.stdout
