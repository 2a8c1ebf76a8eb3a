"""Names that somebody else gives (ids, keys, kinds, sessions, folders) never lead out of where the session lies."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure import Error, Extension, Harness, Registry
from perdure.cli.main import run
from perdure.env.local import LocalEnv
from perdure.models.messages import ToolResultMessage
from perdure.session.documents import Document
from perdure.testing.scripted_model import ScriptedModel, call, say
from perdure.tools import coding_tools, search_tools
from tests.agent.kit import MODEL

HOSTILE = {
    "up": "../../x",
    "encoded": "..%2f..%2fx",
    "absolute": "/etc/x",
    "below": "a/b",
    "empty": "",
    "long": "x" * 300,
    "very long": "x" * 100_000,
    "nul": "a\0b",
    "other dots": "․․/․․/x",
    "full width": "．．／x",
    "windows": "C:\\x",
    "backslashes": "..\\..\\x",
    "dots": "..",
    "dot": ".",
    "option": "--help-me",
    "line": "a\nb",
    "terminal": "\x1b[2Jx",
    "half a character": "\ud800",
    "home": "~root/x",
}
NAMES = pytest.mark.parametrize("name", HOSTILE.values(), ids=[*HOSTILE])


def tree(folder: Path) -> dict[str, bytes | None]:
    """Everything below a folder, with its content."""
    found: dict[str, bytes | None] = {}
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            found[str(path.relative_to(folder))] = path.read_bytes()
        else:
            found[str(path.relative_to(folder))] = None
    return found


class Around:
    """A root three folders deep, and what lies around it: none of that may change."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "outside"
        self.root = self.folder / "a" / "b" / "root"
        self.root.mkdir(parents=True)
        (self.folder / "a" / "x").write_text("mine")
        (self.folder / "a" / "x.db").write_text("mine")
        self.before = self.outside()

    def outside(self) -> dict[str, bytes | None]:
        inside = str(self.root.relative_to(self.folder))
        return {path: data for path, data in tree(self.folder).items() if not path.startswith(inside)}

    def check(self) -> None:
        assert self.outside() == self.before


@pytest.fixture
def around(tmp_path: Path) -> Around:
    return Around(tmp_path)


async def attempt(coroutine: Any) -> Any:
    """What comes of it; a refusal is one of ours and shows none of our paths."""
    try:
        return await coroutine
    except Error as error:
        refusal = error
    assert "Traceback" not in str(refusal)
    assert len(str(refusal)) < 2_000
    return refusal


@NAMES
@pytest.mark.parametrize("store", ["agent.db", "jsonl"])
async def test_ids_and_keys_are_data_and_no_paths(around: Around, name: str, store: str) -> None:
    place = around.root / store if store != "jsonl" else f"jsonl:{around.root}/agent"
    async with Harness.open(place, models=ScriptedModel.by_progress([say("done")])) as harness:
        root = await harness.root(model=MODEL)
        answer = await (await root.submit("hello")).wait()
        fork = await attempt(root.fork(answer.entry_id, key=name))
        if not isinstance(fork, Error):
            assert (await harness.conversation(key=name)).id == fork.id
        again = [await attempt(root.submit("go", request_id=name)) for _ in range(2)]
        assert isinstance(again[0], Error) == isinstance(again[1], Error)
        if not isinstance(again[0], Error):
            assert again[0].id == again[1].id  # exactly once, whatever it is called
            await again[0].settled()
        for field in ("model", "instructions", "cwd", "thinking"):
            await attempt(fork.configure(**{field: name}) if not isinstance(fork, Error) else fork_nothing())
    around.check()
    assert {path.name.split(".")[0] for path in around.root.iterdir()} <= {"agent"}


async def fork_nothing() -> None:
    """There is no fork to configure."""


@NAMES
def test_names_in_code_are_refused_where_they_are_defined(around: Around, name: str) -> None:
    extension = Extension("app")
    definitions: list[Callable[[], object]] = [
        lambda: Extension(name),
        lambda: extension.add(Document(name, dict, scope="session")),
    ]
    if name != HOSTILE["option"]:  # a tool's name like any other to providers
        definitions.append(lambda: extension.tool(name=name)(nothing))
    for define in definitions:
        with pytest.raises(Error) as caught:
            define()
        assert len(str(caught.value)) < 600
    around.check()


async def nothing(ctx: Any) -> None:
    """Do nothing."""


@pytest.mark.slow
@NAMES
async def test_a_folder_that_cannot_be_is_told_to_the_model(around: Around, name: str) -> None:
    asked = [call("bash", {"command": "touch made"}), call("read", {"path": "made"}), call("find", {"pattern": "*"})]
    model = ScriptedModel.by_progress([asked, say("done")])
    registry = Registry([coding_tools, search_tools])

    def env(conversation: int, cwd: str | None) -> LocalEnv:
        return LocalEnv(os.path.join(around.root, cwd or "."))

    async with Harness.open(around.root / "agent.db", registry=registry, models=model, env=env) as harness:
        root = await harness.root(model=MODEL)
        if isinstance(await attempt(root.configure(cwd=f"nowhere/{name}")), Error):
            return
        assert (await (await root.submit("go")).wait()).text == "done"
        results = [m for m in await root.messages() if isinstance(m, ToolResultMessage)]
    if name != HOSTILE["dots"]:  # which is the root itself, by its text
        assert all(result.is_error for result in results)
    assert not any("Traceback" in str(result.content) for result in results)
    around.check()


@NAMES
def test_a_session_of_the_command_line_is_never_outside_its_folder(
    around: Around, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PERDURE_SESSIONS", str(around.root))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(around.folder / "a"))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    monkeypatch.chdir(around.root)
    for command in (
        ["ask", "--model", "openai:none", "--session", name, "--", "hello"],
        *([verb, "--", name] for verb in ("inspect", "log", "usage", "resume", "abort")),
    ):
        code = run(command)
        said = capsys.readouterr()
        assert code == 1, (command[0], code, said.err[:500])
        assert said.out == ""
        assert said.err.startswith("error: ")
        assert "Traceback" not in said.err
        assert "mistake in Perdure" not in said.err
        assert len(said.err) < 1_000
        assert "\x1b[2J" not in said.err
    around.check()
    assert [*around.root.iterdir()] == []


@pytest.mark.parametrize("verb", ["ask", "inspect", "log", "usage", "resume", "abort"])
def test_a_link_among_the_sessions_leads_nowhere_else(
    around: Around, verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PERDURE_SESSIONS", str(around.root))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(around.folder / "a"))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    monkeypatch.chdir(around.root)
    for name, target in (("there", "x.db"), ("not-there", "y.db")):
        (around.root / f"{name}.db").symlink_to(around.folder / "a" / target)
        words = ["--session", name, "hello"] if verb == "ask" else [name]
        assert run([verb, *words]) == 1
        assert "leads out" in capsys.readouterr().err
    around.check()


async def test_a_tag_is_no_pattern(around: Around) -> None:
    for name in HOSTILE.values():
        assert await LocalEnv(around.root).reap(name) == () if name else True
    around.check()
