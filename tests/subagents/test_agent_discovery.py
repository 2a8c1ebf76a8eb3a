"""Agent files: their form, their places, and which of several counts."""

from pathlib import Path

import pytest

from perdure import InvalidValue
from perdure.subagents.agent_files import NotAnAgent, parse_agent
from perdure.subagents.discovery import discover

PLAIN = "---\nname: {name}\ndescription: {text}\n---\nThe prompt.\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / ".config"))
    monkeypatch.delenv("PERDURE_AGENT_DIRS", raising=False)
    return folder


def write(path: Path, name: str, text: str = "d") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(PLAIN.format(name=name, text=text))
    return path


@pytest.mark.parametrize(
    "text", ["no front matter", "---\nname: x\n---\n", "---\ndescription: x\n---\n", "---\nname: a\ndescription: b\n"]
)
def test_r020_r022_a_file_that_lacks_something_is_no_agent(text: str) -> None:
    with pytest.raises(NotAnAgent):
        parse_agent(text)


@pytest.mark.parametrize(
    ("tools", "expected"),
    [
        ("tools: read, bash", ["read", "bash"]),
        ("tools:\n  - read\n  - bash", ["read", "bash"]),
        ("tools: []", []),
        ("tools:", []),
        ("", None),
    ],
)
def test_r021_r022_r038_lists_in_both_forms(tools: str, expected: list[str] | None) -> None:
    agent = parse_agent(f"---\nname: a\ndescription: b\n{tools}\n---\nP")
    assert agent.tools == expected


def test_r021_r022_all_fields_quotes_folds_and_other_line_ends() -> None:
    text = (
        '---\r\nname: "a"\r\ndescription: >\r\n  two\r\n  lines\r\nmodel: x/y\r\nthinking: false\r\nskill: one\r\n'
        "systemPromptMode: append\r\ninheritProjectContext: true\r\ndefaultContext: fork\r\nnosuch: 1\r\n---\r\n"
        "The prompt.\r\n"
    )
    agent = parse_agent(text)
    assert (agent.name, agent.description, agent.model, agent.thinking) == ("a", "two lines", "x/y", None)
    assert (agent.skills, agent.system_prompt_mode, agent.inherit_project_context) == (["one"], "append", True)
    assert (agent.default_context, agent.prompt) == ("fork", "The prompt.")


def test_r023_delegate_appends_and_inherits_by_itself() -> None:
    agent = parse_agent(PLAIN.format(name="delegate", text="d"))
    assert (agent.system_prompt_mode, agent.inherit_project_context) == ("append", True)


def test_r024_packages_are_part_of_the_name() -> None:
    assert parse_agent("---\nname: scout\ndescription: d\npackage: My Pkg\n---\n").name == "my-pkg.scout"
    with pytest.raises(InvalidValue, match="no usable name"):
        parse_agent('---\nname: scout\ndescription: d\npackage: "!!"\n---\n')


def test_r025_what_has_another_name_here_says_which() -> None:
    with pytest.raises(InvalidValue, match="fallbackModels is not supported: name one model"):
        parse_agent("---\nname: a\ndescription: b\nfallbackModels: x, y\n---\n")


def test_a_bare_colon_is_told_with_its_line() -> None:
    with pytest.raises(InvalidValue, match="line 3"):
        parse_agent("---\nname: a\ndescription: Reviews: code\n---\n", "x.md")


def test_r026_r028_the_later_place_of_a_name_wins(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    more = tmp_path / "more"
    monkeypatch.setenv("PERDURE_AGENT_DIRS", str(more))
    places = [
        write(more / "scout.md", "scout", "more"), write(home / ".config/perdure/agents/scout.md", "scout", "config"),
        write(home / ".agents/scout.md", "scout", "user"), write(project / ".agents/scout.md", "scout", "project"),
        write(project / ".perdure/agents/scout.md", "scout", "own"),
    ]  # fmt: skip
    (project / "deep/er").mkdir(parents=True)
    for expected in ("own", "project", "user", "config", "more"):
        assert discover(project / "deep/er").agents["scout"].description == expected
        places.pop().unlink()
    assert discover(project).agents["scout"].source == "builtin"


def test_r027_folders_are_read_with_links_and_without_loops_chains_and_inner_projects(
    home: Path, tmp_path: Path
) -> None:
    agents = home / ".agents"
    write(agents / "deep/one.md", "one")
    write(agents / "node_modules/two.md", "two")
    write(agents / "skills/three.md", "three")
    write(agents / "flow.chain.md", "four")
    write(agents / "inner/five.md", "five")
    (agents / "inner/.git").mkdir()
    outside = write(tmp_path / "outside/six.md", "six").parent
    (agents / "link").symlink_to(outside)
    (agents / "loop").symlink_to(agents)
    found = {name for name, agent in discover(tmp_path).agents.items() if agent.source == "user"}
    assert found == {"one", "six"}


def test_r028_b117_an_empty_marker_of_a_linked_worktree_hides_nothing(home: Path, tmp_path: Path) -> None:
    main = tmp_path / "main"
    (main / ".git").mkdir(parents=True)
    write(main / ".agents/mine.md", "mine")
    tree = main / "tree"
    (tree / ".perdure").mkdir(parents=True)
    assert "mine" in discover(tree).agents


def test_r029_b118_one_project_folder_never_hides_the_other(home: Path, tmp_path: Path) -> None:
    (tmp_path / "p/.agents/skills").mkdir(parents=True)
    write(tmp_path / "p/.perdure/agents/mine.md", "mine")
    assert "mine" in discover(tmp_path / "p").agents


def test_r030_b119_the_requests_folder_decides(home: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / ".git").mkdir(parents=True)
        write(tmp_path / name / ".agents/mine.md", "mine", name)
    assert [discover(tmp_path / name).agents["mine"].description for name in ("one", "two")] == ["one", "two"]


def test_r033_b148_a_broken_file_hides_no_other(home: Path, tmp_path: Path) -> None:
    write(home / ".agents/good.md", "good")
    (home / ".agents/bad.md").write_text("---\nname: bad\ndescription: a: b\n---\n")
    (home / ".agents/binary.md").write_bytes(b"\xff\xfe\x00")
    found = discover(tmp_path)
    assert "good" in found.agents
    assert sorted(str(one.name) for one in found.diagnostics) == ["bad", "binary"]


def test_r036_the_builtin_agents(home: Path, tmp_path: Path) -> None:
    agents = discover(tmp_path).agents
    assert set(agents) == {"scout", "researcher", "evidence-auditor", "worker", "reviewer", "oracle", "delegate"}
    for name, agent in agents.items():
        edits = agent.tools is None or bool({"edit", "write"} & set(agent.tools))
        assert edits == (name in ("worker", "delegate")), name
        assert len(agent.prompt) > 60


def test_r040_a_new_file_is_seen_at_once(home: Path, tmp_path: Path) -> None:
    assert "late" not in discover(tmp_path).agents
    write(home / ".agents/late.md", "late")
    assert "late" in discover(tmp_path).agents
