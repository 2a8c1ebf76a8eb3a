"""Where agents are found: builtin ones, those of packages, the user's, the project's; the later one of a name wins."""

import importlib.util
import os
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final, NamedTuple

from perdure import InvalidValue
from perdure.subagents.agent_files import AgentDefinition, Diagnostic, NotAnAgent, could_define, read_agent
from perdure.subagents.projects import (
    OWN,
    SHARED,
    AgentSettings,
    Settings,
    adjusted,
    project_root,
    project_settings,
    user_folder,
    user_settings,
)

DIRECTORIES_VARIABLE: Final = "PERDURE_AGENT_DIRS"
"""More folders of the user's, between colons."""
PACKAGES: Final = "perdure.agents"
"""Entry points of installed packages: `name = "package.folder"`, a folder with agents inside the package."""
SKIPPED: Final = (".git", "node_modules")
DEEPEST: Final = 32
"""Levels of folders below a place: more are a mistake, or meant to hurt."""
BUILTIN: Final = Path(__file__).parent / "builtin"


class Found(NamedTuple):
    """All agents by name, and what is wrong."""

    agents: dict[str, AgentDefinition]
    diagnostics: list[Diagnostic]


class Place(NamedTuple):
    """A folder with agents, and what its agents are called: builtin, package, user or project."""

    source: str
    folder: Path


def discover(cwd: str | Path) -> Found:
    """The agents that a request in this folder may name. A broken file hides no other."""
    here = Path(cwd)
    user, project = user_settings(), project_settings(here)
    settings = [one for one in (user, project) if one is not None]
    diagnostics = [one.problem for one in settings if one.problem is not None]
    excluded = [path for one in settings for path in one.folders(one.said.exclude)]
    agents: dict[str, AgentDefinition] = {}
    for place in places(here, user, project):
        found, broken = _read(place, excluded)
        if place.source == "package":
            taken = [name for name, agent in agents.items() if agent.source == "package"]
            found = {name: agent for name, agent in found.items() if name not in taken}
        for one in diagnostics:
            if one.name in found:
                one.name = None  # it would not have counted
        agents.update(found)
        diagnostics += broken
    said = AgentSettings() if project is None else project.said
    kept = {name: adjusted(agent, user.said, said) for name, agent in agents.items()}
    return Found({name: agent for name, agent in kept.items() if agent is not None}, diagnostics)


def places(cwd: Path, user: Settings, project: Settings | None) -> list[Place]:
    """Folders with agents, lowest first."""
    found = [Place("builtin", BUILTIN), *(Place("package", folder) for folder in package_folders())]
    more = [Path(one).expanduser() for one in os.environ.get(DIRECTORIES_VARIABLE, "").split(os.pathsep) if one]
    more += [*user.folders(user.said.directories), user_folder() / "agents", Path.home() / SHARED]
    found += [Place("user", folder) for folder in more]
    if project is not None:
        found += [Place("project", folder) for folder in project.folders(project.said.directories)]
    root = project_root(cwd)
    if root is not None:
        found += [Place("project", root / SHARED), Place("project", root / OWN / "agents")]
    return found


def package_folders() -> list[Path]:
    """Folders that installed packages name, in the order of their names. No code of theirs is run."""
    found = []
    for point in sorted(entry_points(group=PACKAGES), key=lambda point: (point.name, point.value)):
        top, *rest = point.value.split(".")
        try:
            spec = importlib.util.find_spec(top)
        except (ImportError, ValueError):
            continue
        for location in spec.submodule_search_locations or () if spec is not None else ():
            found.append(Path(location, *rest))
    return found


def _read(place: Place, excluded: list[Path]) -> tuple[dict[str, AgentDefinition], list[Diagnostic]]:
    agents: dict[str, AgentDefinition] = {}
    broken: list[Diagnostic] = []
    for path in files(place.folder, excluded):
        try:
            agent = read_agent(path, place.source)
        except NotAnAgent:
            continue
        except InvalidValue as error:
            broken.append(Diagnostic(path=str(path), problem=str(error), name=could_define(path)))
            continue
        agents[agent.name] = agent
    return agents, broken


def files(folder: Path, excluded: list[Path]) -> Iterator[Path]:
    """Markdown files below a folder, links followed and loops not; no chains, no skills, no projects of their own, and
    nothing of the excluded folders."""
    seen: set[tuple[int, int]] = set()
    barred = {Path(os.path.abspath(one)) for one in excluded} | {one.resolve() for one in excluded}

    def is_excluded(here: Path) -> bool:
        return any(one in barred for path in (Path(os.path.abspath(here)), here.resolve()) for one in _above(path))

    def walk(here: Path, depth: int) -> Iterator[Path]:
        try:
            status = here.stat()
            entries = sorted(os.scandir(here), key=lambda entry: entry.name)
        except OSError:
            return
        if (status.st_dev, status.st_ino) in seen or (barred and is_excluded(here)):
            return
        seen.add((status.st_dev, status.st_ino))
        if depth > DEEPEST or (depth and any(entry.name in (".git", SHARED, OWN) for entry in entries)):
            return
        for entry in entries:
            path = Path(entry.path)
            if os.path.isdir(path):
                if entry.name not in SKIPPED and not (entry.name == "skills" and here.name == SHARED):
                    yield from walk(path, depth + 1)
            elif entry.name.endswith(".md") and not entry.name.endswith(".chain.md"):
                yield path

    yield from walk(folder, 0)


def _above(path: Path) -> tuple[Path, ...]:
    return (path, *path.parents)
