"""Which folder is the project that a request's folder belongs to, and what settings say there of agents."""

import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec

from perdure import InvalidValue
from perdure.subagents.agent_files import AgentDefinition, Diagnostic
from perdure.subagents.model_names import THINKING, parse_model

PROJECT_FILE: Final = "perdure.toml"
USER_FILE: Final = "config.toml"
OWN: Final = ".perdure"
OWN_CONTENT: Final = ("agents", "skills")
"""Without one of these a folder `.perdure` is what some tool left, and makes no project."""
SHARED: Final = ".agents"
INHERIT: Final = "inherit"
"""Like false: takes a field's value away, so that what holds without it counts."""


class AgentSettings(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The table `agents` of a file of settings."""

    directories: list[str] = []
    """More folders with agents; relative ones count from the file's folder."""
    exclude: list[str] = []
    """Folders that are not read, by their path or the one that a link leads to."""
    builtins: bool | None = None
    root: Literal["nearest", "git"] = "nearest"
    """In a project's file: `git` makes the enclosing checkout the project."""
    defaults: dict[str, Any] = {}
    override: dict[str, dict[str, Any]] = {}
    """By an agent's name: fields as its file has them, `systemPrompt`, `disabled`."""


class Settings(NamedTuple):
    """A file of settings, read: where it lies, what it says, and what is wrong with it."""

    path: Path
    said: AgentSettings
    problem: Diagnostic | None

    def folders(self, names: list[str]) -> list[Path]:
        """Folders as the file names them."""
        return [self.path.parent / Path(name).expanduser() for name in names]


def user_folder() -> Path:
    """The user's folder of configuration: below `XDG_CONFIG_HOME`, by default `~/.config/perdure`."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config", "perdure")


def user_settings() -> Settings:
    """What the user's `config.toml` says of agents."""
    return _read(user_folder() / USER_FILE)


def project_settings(cwd: Path) -> Settings | None:
    """What the nearest `perdure.toml` says of agents, from a folder upwards; None: there is none."""
    for folder in _upwards(cwd.resolve()):
        if os.path.isfile(folder / PROJECT_FILE):
            return _read(folder / PROJECT_FILE)
    return None


def project_root(cwd: Path) -> Path | None:
    """The nearest folder from `cwd` upwards, below the home folder, that is marked as a project: by a `perdure.toml`,
    agents or skills. From a linked worktree it goes on in the main checkout. Where nothing is marked, and where the
    project's settings say so, it is the checkout."""
    here = cwd.resolve()
    settings = project_settings(here)
    by_git = settings is not None and settings.said.root == "git"
    found = None if by_git else next((folder for folder in _upwards(here) if _is_marked(folder)), None)
    return found or next((folder for folder in _upwards(here) if os.path.lexists(folder / ".git")), None)


def _is_marked(folder: Path) -> bool:
    if os.path.isfile(folder / PROJECT_FILE) or any(os.path.isdir(folder / OWN / name) for name in OWN_CONTENT):
        return True
    try:
        return any((folder / SHARED).iterdir())
    except OSError:
        return False


def _upwards(folder: Path) -> Iterator[Path]:
    """Folders from one upwards, below the home folder and the top; after a linked worktree comes its main checkout."""
    home, seen = Path.home().resolve(), set()
    while folder not in (home, folder.parent) and folder not in seen:
        yield folder
        seen.add(folder)
        folder = _main_checkout(folder) or folder.parent


def _main_checkout(folder: Path) -> Path | None:
    """The main checkout, if the folder is a worktree that is linked to one."""
    try:
        word, _, path = (folder / ".git").read_text("utf-8").partition(":")
        administration = (folder / path.strip()).resolve()
        common = (administration / (administration / "commondir").read_text("utf-8").strip()).resolve()
    except (OSError, UnicodeDecodeError):
        return None  # a folder, or nothing; what has no common folder is a submodule
    return common.parent if word == "gitdir" and common.name == ".git" else None


def _read(path: Path) -> Settings:
    try:
        found = tomllib.loads(path.read_text("utf-8"))
        said = msgspec.convert(found.get("agents", {}), AgentSettings)
        _check(said)
    except FileNotFoundError:
        return Settings(path, AgentSettings(), None)
    except (OSError, ValueError, RecursionError, InvalidValue) as error:  # ValueError: no TOML, no text, wrong types
        problem = Diagnostic(path=str(path), problem=f"{path}: {error}", settings=True)
        return Settings(path, AgentSettings(), problem)
    return Settings(path, said, None)


def _check(said: AgentSettings) -> None:
    for name in said.defaults:
        if name not in ("model", "thinking"):
            raise InvalidValue(f"agents.defaults.{name}: no such field", hint="model and thinking have defaults")
    tables = {"defaults": said.defaults, **{f"override.{name}": fields for name, fields in said.override.items()}}
    for where, fields in tables.items():
        for name, value in fields.items():
            wanted = _wanted(name, value)
            if wanted:
                raise InvalidValue(f"agents.{where}.{name}: {wanted}, not {value!r:.100}")


def _wanted(name: str, value: Any) -> str:
    """What a field of an override has to be; empty: it is."""
    if name in ("disabled", "inheritProjectContext", "inheritSkills"):
        return "" if isinstance(value, bool) else "true or false"
    if name == "systemPromptMode":
        return "" if value in ("replace", "append") else "replace or append"
    if name == "defaultContext":
        return "" if value in ("fresh", "fork") else "fresh or fork"
    if name in ("tools", "skills"):
        listed = isinstance(value, list) and all(isinstance(one, str) and one.strip() for one in value)
        return "" if listed or _clears(value) else "a list of names, or false"
    if name == "thinking":
        return "" if _clears(value) or value in THINKING else f"{', '.join(THINKING)}, or false"
    if name == "model":
        return "" if _clears(value) or _is_model(value) else "provider/id, or false"
    if name in ("description", "systemPrompt"):
        return "" if isinstance(value, str) and value.strip() else "a text that is not blank"
    return "no such field"


def _is_model(value: Any) -> bool:
    try:
        parse_model(value)
    except InvalidValue:
        return False
    return True


def _clears(value: Any) -> bool:
    return value is False or value == INHERIT


def adjusted(agent: AgentDefinition, user: AgentSettings, project: AgentSettings) -> AgentDefinition | None:
    """An agent with what settings say of it; None: it is switched off. The project's word counts more than the user's,
    field by field; of a builtin agent what the user said does not count at all where the project says something."""
    if agent.source == "builtin" and (user.builtins if project.builtins is None else project.builtins) is False:
        return None
    mine, ours = user.override.get(agent.name, {}), project.override.get(agent.name, {})
    fields = ours if ours and agent.source == "builtin" else {**mine, **ours}
    if fields.get("disabled"):
        return None
    given: dict[str, Any] = {}
    for name, value in fields.items():
        if name != "disabled":
            given[_ATTRIBUTES.get(name, name)] = _EMPTY.get(name) if name in _EMPTY and _clears(value) else value
    defaults = {**user.defaults, **project.defaults}
    for name in ("model", "thinking"):
        if getattr(agent, name) is None and name not in fields and not _clears(defaults.get(name)):
            given[name] = defaults.get(name)
    return msgspec.structs.replace(agent, **given)


_EMPTY: Final[dict[str, Any]] = {"model": None, "thinking": None, "tools": None, "skills": []}
_ATTRIBUTES: Final = {
    "systemPrompt": "prompt", "systemPromptMode": "system_prompt_mode", "defaultContext": "default_context",
    "inheritProjectContext": "inherit_project_context", "inheritSkills": "inherit_skills",
}  # fmt: skip
