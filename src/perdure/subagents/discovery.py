"""Where agents are found: builtin ones, the user's, the project's; the later one of a name wins."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from perdure import InvalidValue
from perdure.subagents.agent_files import AgentDefinition, Diagnostic, NotAnAgent, could_define, read_agent

DIRECTORIES_VARIABLE: Final = "PERDURE_AGENT_DIRS"
"""More folders of the user's, between colons."""
MARKERS: Final = (".git", "perdure.toml", ".perdure", ".agents")
"""What makes a folder a project."""
SKIPPED: Final = (".git", "node_modules", "skills")
BUILTIN: Final = Path(__file__).parent / "builtin"


class Found(NamedTuple):
    """All agents by name, and what is wrong."""

    agents: dict[str, AgentDefinition]
    diagnostics: list[Diagnostic]


def project_root(cwd: Path) -> Path | None:
    """The nearest folder from `cwd` upwards with a project's marker, below the home folder. A folder of settings with
    nothing in it, as tools leave in a linked worktree, does not hide the one above it."""
    home = Path.home().resolve()
    for folder in (cwd, *cwd.parents):
        if folder == home or folder == folder.parent:
            return None
        for marker in MARKERS:
            here = folder / marker
            if here.exists() and not (marker == ".perdure" and here.is_dir() and not any(here.iterdir())):
                return folder
    return None


def places(cwd: Path) -> list[tuple[str, Path]]:
    """Sources and folders, lowest first."""
    home = Path.home()
    config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    more = [Path(one).expanduser() for one in os.environ.get(DIRECTORIES_VARIABLE, "").split(":") if one]
    found = [("builtin", BUILTIN), *(("user", one) for one in more)]
    found += [("user", config / "perdure" / "agents"), ("user", home / ".agents")]
    root = project_root(cwd.resolve())
    if root is not None:
        found += [("project", root / ".agents"), ("project", root / ".perdure" / "agents")]
    return found


def discover(cwd: str | Path) -> Found:
    """The agents that a request in this folder may name. A broken file hides no other."""
    agents: dict[str, AgentDefinition] = {}
    diagnostics: list[Diagnostic] = []
    for source, folder in places(Path(cwd)):
        for path in files(folder):
            try:
                agent = read_agent(path, source)
            except NotAnAgent:
                continue
            except InvalidValue as error:
                diagnostics.append(Diagnostic(path=str(path), problem=str(error), name=could_define(path)))
                continue
            agents[agent.name] = agent
    return Found(agents, diagnostics)


def files(folder: Path) -> Iterator[Path]:
    """Markdown files below a folder, links followed and loops not; no chains, no skills, no projects of their own."""
    seen: set[tuple[int, int]] = set()

    def walk(here: Path, top: bool) -> Iterator[Path]:
        try:
            status = here.stat()
            entries = sorted(os.scandir(here), key=lambda entry: entry.name)
        except OSError:
            return
        if (status.st_dev, status.st_ino) in seen:
            return
        seen.add((status.st_dev, status.st_ino))
        if not top and any(entry.name in (".git", ".agents", ".perdure") for entry in entries):
            return
        for entry in entries:
            path = Path(entry.path)
            if entry.is_dir():
                if entry.name not in SKIPPED:
                    yield from walk(path, False)
            elif entry.name.endswith(".md") and not entry.name.endswith(".chain.md"):
                yield path

    yield from walk(folder, True)
