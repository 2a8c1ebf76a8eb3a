"""What settings say of agents, where projects begin, and what packages bring."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from perdure import InvalidValue
from perdure.cli.config import load_config
from perdure.subagents.agent_files import AgentDefinition
from perdure.subagents.discovery import Found, discover
from perdure.subagents.intake.run import check_agents
from perdure.subagents.projects import AgentSettings, adjusted, project_root, user_folder
from perdure.subagents.spec import parse_run

PLAIN = "---\nname: {name}\ndescription: {text}\n---\nThe prompt.\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / ".config"))
    monkeypatch.delenv("PERDURE_AGENT_DIRS", raising=False)
    return folder


@pytest.fixture
def project(home: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def write(path: Path, name: str, text: str = "d") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(PLAIN.format(name=name, text=text))
    return path


def user_says(text: str) -> None:
    user_folder().mkdir(parents=True, exist_ok=True)
    (user_folder() / "config.toml").write_text(text)


AGENTS = {
    "builtin": AgentDefinition(name="a", description="d", model="file/model", tools=["read"]),
    "user": AgentDefinition(name="a", description="d", model="file/model", tools=["read"], source="user"),
}


@pytest.mark.parametrize(
    ("source", "user", "project", "model", "tools"),
    [
        ("user", {}, {}, "file/model", ["read"]),
        ("user", {"model": "u/m"}, {}, "u/m", ["read"]),
        ("user", {"model": "u/m"}, {"model": "p/m"}, "p/m", ["read"]),
        ("user", {"model": "u/m"}, {"tools": ["bash"]}, "u/m", ["bash"]),
        ("builtin", {"model": "u/m"}, {"tools": ["bash"]}, "file/model", ["bash"]),
        ("builtin", {"model": "u/m"}, {}, "u/m", ["read"]),
        ("user", {"model": False}, {}, None, ["read"]),
        ("user", {"model": "inherit", "tools": False}, {}, None, None),
        ("user", {"model": "u/m"}, {"model": False}, None, ["read"]),
        ("user", {"tools": []}, {}, "file/model", []),
    ],
)
def test_r031_the_project_counts_more_than_the_user_and_both_more_than_the_file(
    source: str, user: dict[str, Any], project: dict[str, Any], model: str | None, tools: list[str] | None
) -> None:
    mine, ours = ({"a": one} if one else {} for one in (user, project))
    found = adjusted(AGENTS[source], AgentSettings(override=mine), AgentSettings(override=ours))
    assert found is not None
    assert (found.model, found.tools) == (model, tools)


@pytest.mark.parametrize(
    ("own", "user", "project", "override", "expected"),
    [
        (None, {"model": "u/d"}, {}, {}, "u/d"),
        (None, {"model": "u/d"}, {"model": "p/d"}, {}, "p/d"),
        (None, {"model": "u/d"}, {"model": False}, {}, None),
        ("file/m", {"model": "u/d"}, {}, {}, "file/m"),
        ("file/m", {"model": "u/d"}, {}, {"model": "inherit"}, None),
    ],
)
def test_r031_defaults_count_where_nothing_else_says_something(
    own: str | None, user: dict[str, Any], project: dict[str, Any], override: dict[str, Any], expected: str | None
) -> None:
    agent = AgentDefinition(name="a", description="d", model=own, source="user")
    overrides = {"a": override} if override else {}
    found = adjusted(agent, AgentSettings(defaults=user, override=overrides), AgentSettings(defaults=project))
    assert found is not None
    assert found.model == expected


def test_r031_every_field_from_the_files_themselves(project: Path) -> None:
    user_says("[agents.defaults]\nthinking = 'low'\n[agents.override.worker]\ndisabled = true\n")
    (project / "perdure.toml").write_text(
        "model = 'a:b'\n[agents.override.scout]\nmodel = 'x/y:high'\ndescription = 'other'\nsystemPrompt = 'Look.'\n"
        "systemPromptMode = 'append'\ninheritProjectContext = true\ninheritSkills = true\nskills = ['s']\n"
        "tools = ['bash']\nthinking = 'max'\ndefaultContext = 'fork'\n"
    )
    agents = discover(project).agents
    scout = agents["scout"]
    assert (scout.model, scout.description, scout.prompt, scout.thinking) == ("x/y:high", "other", "Look.", "max")
    assert (scout.system_prompt_mode, scout.inherit_project_context, scout.inherit_skills) == ("append", True, True)
    assert (scout.skills, scout.tools, scout.default_context) == (["s"], ["bash"], "fork")
    assert "worker" not in agents
    assert (agents["reviewer"].thinking, agents["oracle"].thinking) == ("low", "high")
    assert load_config(project).model == "a:b", "the command line reads the same file"


def test_r031_all_builtin_agents_can_be_switched_off_and_a_project_switches_them_on(project: Path) -> None:
    write(project / ".agents/worker.md", "worker", "mine")
    user_says("[agents]\nbuiltins = false\n")
    assert {name: agent.source for name, agent in discover(project).agents.items()} == {"worker": "project"}
    (project / "perdure.toml").write_text("[agents]\nbuiltins = true\n")
    assert "scout" in discover(project).agents


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("[agents", "perdure.toml"),
        ("[agents]\nnope = 1", "nope"),
        ("agents = 5", "object"),
        ("[agents.override.scout]\nmodle = 'a/b'", "agents.override.scout.modle: no such field"),
        ("[agents.override.scout]\nmodel = 'no provider'", "agents.override.scout.model: provider/id"),
        ("[agents.override.scout]\ntools = 'read'", "tools: a list of names"),
        ("[agents.override.scout]\ndescription = false", "description: a text"),
        ("[agents.override.scout]\nthinking = 'hard'", "thinking: off, minimal"),
        ("[agents.defaults]\ntools = []", "agents.defaults.tools: no such field"),
        ("[agents]\nroot = 'up'", "root"),
    ],
)
def test_r033_broken_settings_are_a_problem_and_no_run_starts_while_they_are(
    project: Path, text: str, word: str
) -> None:
    (project / "perdure.toml").write_text(text)
    found = discover(project)
    assert "scout" in found.agents, "the list is still there"
    assert word in found.diagnostics[0].problem
    assert str(project) in found.diagnostics[0].problem
    with pytest.raises(InvalidValue, match=r"perdure\.toml"):
        check_agents(parse_run({"agent": "scout", "task": "x"}, "/"), found)
    assert discover(project.parent).diagnostics == [], "elsewhere nobody needs them"


def test_r032_excluded_folders_by_their_path_and_by_where_links_lead(project: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    write(outside / "one.md", "one")
    write(project / ".agents/mine.md", "mine")
    (project / ".agents/link").symlink_to(outside)
    assert {"one", "mine"} <= set(discover(project).agents)
    for named in (outside, project / ".agents/link", tmp_path / "alias"):
        if named.name == "alias":
            named.symlink_to(outside)
        (project / "perdure.toml").write_text(f"[agents]\nexclude = ['{named}']\n")
        agents = discover(project).agents
        assert "one" not in agents, named
        assert "mine" in agents
    (project / "perdure.toml").write_text("[agents]\nexclude = ['.agents']\n")
    assert not {"one", "mine"} & set(discover(project).agents)


def test_r026_more_folders_in_settings_count_less_than_the_usual_ones_of_their_owner(project: Path) -> None:
    user_says("[agents]\ndirectories = ['more']\n")
    (project / "perdure.toml").write_text("[agents]\ndirectories = ['tools/agents']\n")
    places = [
        write(user_folder() / "more/a.md", "a", "user's more"),
        write(user_folder() / "agents/a.md", "a", "user"),
        write(project / "tools/agents/a.md", "a", "project's more"),
        write(project / ".perdure/agents/a.md", "a", "project"),
    ]
    for expected in ("project", "project's more", "user", "user's more"):
        assert discover(project).agents["a"].description == expected
        places.pop().unlink()
    assert "a" not in discover(project).agents


def test_r026_a_package_replaces_what_is_builtin_and_nothing_of_an_earlier_package(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    for package in ("apackage", "bpackage"):
        write(site / package / "agents/scout.md", "scout", package)
        write(site / package / f"agents/{package}.md", package)
        (site / package / "__init__.py").write_text("raise SystemExit('no code of a package is run')")
        information = site / f"{package}-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (information / "entry_points.txt").write_text(f"[perdure.agents]\n{package} = {package}.agents\n")
    monkeypatch.syspath_prepend(str(site))
    agents = discover(project).agents
    assert (agents["scout"].description, agents["scout"].source) == ("apackage", "package")
    assert {"apackage", "bpackage"} <= set(agents)
    write(project / ".agents/scout.md", "scout", "mine")
    assert discover(project).agents["scout"].description == "mine"


def git(folder: Path, *arguments: str) -> None:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.com")
    subprocess.run(["git", *identity, *arguments], cwd=folder, env=environment, check=True, capture_output=True)


@pytest.mark.slow
def test_r028_b117_a_linked_worktree_resolves_like_its_main_checkout(project: Path, tmp_path: Path) -> None:
    git(project, "init")
    git(project, "commit", "--allow-empty", "-m", "first")
    write(project / ".perdure/agents/mine.md", "mine")
    for tree in (project / "inside", tmp_path / "beside"):
        git(project, "worktree", "add", "--detach", str(tree))
        (tree / ".perdure").mkdir()
        assert project_root(tree) == project
        assert "mine" in discover(tree).agents
        write(tree / ".perdure/agents/own.md", "own")
        assert project_root(tree) == tree
        assert "mine" not in discover(tree).agents


def test_r028_the_nearest_marked_folder_is_the_project_or_the_checkout_if_settings_say_so(project: Path) -> None:
    (project / ".git").mkdir()
    assert project_root(project) == project, "without any mark the checkout is the project"
    package = project / "packages/one"
    write(package / ".agents/inner.md", "inner")
    write(project / ".agents/outer.md", "outer")
    (package / "src").mkdir()
    assert "outer" not in discover(package / "src").agents
    assert project_root(package / "src") == package
    (package / "perdure.toml").write_text("[agents]\nroot = 'git'\n")
    assert project_root(package / "src") == project
    assert "outer" in discover(package / "src").agents


def test_r028_the_home_folder_is_no_project(home: Path) -> None:
    write(home / ".agents/mine.md", "mine")
    (home / "work").mkdir()
    assert project_root(home / "work") is None
    assert discover(home / "work").agents["mine"].source == "user"


def broken(path: Path, name: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\nname: {name}\ndescription: a: b\n---\n")
    return path


RUNS: list[tuple[dict[str, Any], bool]] = [
    ({"agent": "other", "task": "x"}, True),
    ({"agent": "scout", "task": "x"}, False),
    ({"tasks": [{"agent": "scout", "task": "x"}, {"agent": "other", "task": "x"}]}, True),
    ({"source": "return await runs.run('k', {'agent': 'other', 'task': 'x'})"}, True),
    ({"source": 'return await runs.run("k", {"agent": "other", "task": "x"})'}, True),
    ({"source": "return runs.run('k', {agent: `other`})", "language": "javascript"}, True),
    ({"source": "# the others\nreturn args", "args": {"who": ["other"]}}, True),
    ({"source": "# other than that\nreturn 'another'", "args": {"other": "no"}}, False),
]


@pytest.mark.parametrize(("body", "refused"), RUNS)
def test_r034_b072_a_broken_file_stops_only_runs_that_could_use_it(
    project: Path, body: dict[str, Any], refused: bool
) -> None:
    path = broken(project / ".agents/x.md", "other")
    found = discover(project)
    launch = parse_run(body, str(project))
    if refused:
        with pytest.raises(InvalidValue, match=str(path)):
            check_agents(launch, found)
    else:
        check_agents(launch, found)
    assert [one.name for one in found.diagnostics] == ["other"]


def test_r034_a_broken_file_that_would_not_count_stops_nothing_and_one_that_would_hides_no_builtin_silently(
    project: Path, home: Path
) -> None:
    launch = parse_run({"agent": "scout", "task": "x"}, "/")
    broken(home / ".agents/scout.md", "scout")
    with pytest.raises(InvalidValue, match="'scout' cannot be used"):
        check_agents(launch, discover(project))
    write(project / ".agents/scout.md", "scout")
    found: Found = discover(project)
    check_agents(launch, found)
    assert len(found.diagnostics) == 1, "it is told all the same"


def test_r034_a_script_of_a_file_is_looked_into(project: Path) -> None:
    broken(project / ".agents/x.md", "other")
    launch = parse_run({"workflow": "flow.py"}, str(project))
    check_agents(launch, discover(project), "return 1")
    with pytest.raises(InvalidValue, match="'other' cannot be used"):
        check_agents(launch, discover(project), "await runs.run('k', {'agent': 'other'})")


def test_r033_b148_nothing_that_lies_among_agents_breaks_their_list(project: Path) -> None:
    folder = write(project / ".agents/good.md", "good").parent
    (folder / "self.md").symlink_to(folder / "self.md")
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "folder.md").mkdir()
    os.mkfifo(folder / "pipe.md")
    (folder / "deep.md").write_text("---\nname: deep\ndescription: d\ntools: " + "[" * 5_000 + "\n---\n")
    (folder / "large.md").write_text("---\nname: large\ndescription: d\n---\n" + "x" * 1_100_000)
    (folder / "front.md").write_text("---\nname: front\ndescription: " + "d " * 40_000 + "\n---\n")
    (folder / "lines.md").write_text('---\nname: "two\\nlines"\ndescription: d\n---\n')
    (folder / "flag.md").write_text("---\nname: flag\ndescription: d\ninheritSkills: perhaps\n---\n")
    (folder / "thinking.md").write_text("---\nname: thinking\ndescription: d\nthinking: hard\n---\n")
    found = discover(project)
    assert [name for name, agent in found.agents.items() if agent.source == "project"] == ["good"]
    names = {Path(one.path).stem for one in found.diagnostics}
    assert names == {"self", "pipe", "deep", "large", "front", "lines", "flag", "thinking"}


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only a root process may become somebody else")
def test_a_folder_that_may_be_listed_and_not_entered_hides_no_agent(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as scratch:
        home = Path(scratch)
        write(home / ".agents/good.md", "good")
        write(home / ".agents/closed/deep/other.md", "other")
        (home / ".agents/closed").chmod(0o744)
        home.chmod(0o755)
        code = (
            "import os, sys; sys.path[:0] = sys.argv[1].split(':'); "
            "from perdure.subagents.discovery import discover; os.setuid(65534); "
            "print('good' in discover(sys.argv[2]).agents)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, ":".join(sys.path), scratch],
            env={"HOME": scratch, "PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.stdout.strip() == "True", done.stderr
