"""Agents as Markdown files: front matter between `---` lines, then the system prompt."""

import re
import stat
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from perdure import Error, InvalidValue
from perdure.subagents.model_names import THINKING

FENCE: Final = "---"
LONGEST_NAME: Final = 100
LONGEST_FRONT: Final = 64 * 1024
"""Characters of front matter: reading them takes a second at most."""
BRACKETS: Final = 200
"""In front matter: the time that PyYAML takes grows with the square of those that are open."""
LARGEST: Final = 1024 * 1024
"""Bytes of an agent's file; a prompt that is longer fits no model's context."""
REPLACED: Final = {
    "fallbackModels": "name one model, or a pool of models",
    "runner": "subagents run on Perdure itself",
}
"""Fields that other tools know and that mean something else here, and what takes their place."""


class NotAnAgent(Exception):
    """The file is plain text: it has no front matter, or neither a name nor a description."""


class AgentDefinition(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    """An agent, as its file defines it."""

    name: str
    description: str
    prompt: str = ""
    model: str | None = None
    thinking: str | None = None
    tools: list[str] | None = None
    """None: the default tools, which edit and write; empty: none."""
    skills: list[str] = []
    system_prompt_mode: Literal["replace", "append"] = "replace"
    inherit_project_context: bool = False
    inherit_skills: bool = False
    default_context: Literal["fresh", "fork"] = "fresh"
    source: str = "builtin"
    path: str = ""


class Diagnostic(msgspec.Struct, kw_only=True):
    """A file that was meant as an agent, or as settings of agents, and cannot be one."""

    path: str
    problem: str
    name: str | None = None
    """The name that it would define, if no place that counts more defines it."""
    settings: bool = False
    """It is a file of settings: what it says of any agent is not known."""


class MissingYaml(Error):
    """Agent files need PyYAML."""

    code = "no_yaml"


def parse_agent(text: str, path: str = "", source: str = "builtin") -> AgentDefinition:
    """An agent from the text of its file. Raises `NotAnAgent`, and `InvalidValue` for what is wrong in it."""
    found = split(text)
    if found is None:
        raise NotAnAgent
    fields = _yaml(found[0], path)
    name, description = fields.get("name"), fields.get("description")
    if not _said(name) or not _said(description):
        raise NotAnAgent
    for key, instead in REPLACED.items():
        if key in fields:
            raise InvalidValue(f"{path}: {key} is not supported: {instead}")
    given: dict[str, Any] = {
        "name": _packaged(str(name), fields.get("package"), path), "description": " ".join(str(description).split()),
        "prompt": found[1].strip(), "source": source, "path": path,
    }  # fmt: skip
    for key in ("model", "thinking"):
        if _said(fields.get(key)) and str(fields[key]).strip() != "false":
            given[key] = str(fields[key]).strip()
    if given.get("thinking", THINKING[0]) not in THINKING:
        raise InvalidValue(f"{path}: thinking is one of {', '.join(THINKING)}, not {given['thinking']!r:.100}")
    if "tools" in fields:
        given["tools"] = _list(fields["tools"], "tools", path)
    given["skills"] = _list(fields.get("skills", fields.get("skill", "")), "skills", path)
    delegate = given["name"] == "delegate"
    mode = fields.get("systemPromptMode", "append" if delegate else "replace")
    given["systemPromptMode"] = mode
    given["inheritProjectContext"] = _flag(fields, "inheritProjectContext", delegate, path)
    given["inheritSkills"] = _flag(fields, "inheritSkills", False, path)
    given["defaultContext"] = fields.get("defaultContext", "fresh")
    try:
        return msgspec.convert(given, AgentDefinition)
    except msgspec.ValidationError as error:
        raise InvalidValue(f"{path}: {error}") from error


def split(text: str) -> tuple[str, str] | None:
    """Front matter and the rest; None without a closed front matter."""
    lines = text.lstrip("\ufeff").replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() != FENCE:
        return None
    for number, line in enumerate(lines[1:], 1):
        if line.rstrip() == FENCE:
            return "\n".join(lines[1:number]), "\n".join(lines[number + 1 :])
    return None


def _yaml(text: str, path: str) -> dict[str, Any]:
    if len(text) > LONGEST_FRONT:
        raise InvalidValue(f"{path}: front matter of more than {LONGEST_FRONT} characters")
    if text.count("[") + text.count("{") > BRACKETS:
        raise InvalidValue(f"{path}: front matter with more than {BRACKETS} brackets")
    try:
        yaml = import_module("yaml")
    except ImportError as error:
        raise MissingYaml("agent files need PyYAML", hint="pip install 'perdure[agents]'") from error
    try:
        found = yaml.load(text, Loader=yaml.BaseLoader)  # every scalar stays the text that was written
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 2}" if mark is not None else ""
        raise InvalidValue(
            f"{path}{line}: {getattr(error, 'problem', error)}", hint="quote texts with a colon"
        ) from error
    except RecursionError as error:
        raise InvalidValue(f"{path}: the front matter is nested too deeply") from error
    if found is None or found == "":
        return {}
    if not isinstance(found, dict):
        raise InvalidValue(f"{path}: the front matter holds no fields")
    return {str(key): value for key, value in found.items()}


def _said(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _packaged(name: str, package: Any, path: str) -> str:
    if len(name) > LONGEST_NAME or any(ord(character) < 32 for character in name.strip()):
        raise InvalidValue(f"{path}: a name is one line of at most {LONGEST_NAME} characters")
    if not _said(package):
        return name.strip()
    normal = re.sub(r"[^a-z0-9.-]", "", str(package).strip().lower().replace(" ", "-"))
    if not normal.strip(".-"):
        raise InvalidValue(f"{path}: the package {package!r:.100} has no usable name")
    return f"{normal}.{name.strip()}"


def _list(value: Any, field: str, path: str) -> list[str]:
    """A comma form or a list of items."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return [item.strip() for item in value if item.strip()]
    raise InvalidValue(f"{path}: {field} is a list of names")


def _flag(fields: dict[str, Any], name: str, default: bool, path: str) -> bool:
    value = fields.get(name)
    if value is None or value == "":
        return default
    word = str(value).strip().lower()
    if word not in ("true", "yes", "false", "no"):
        raise InvalidValue(f"{path}: {name} is true or false, not {value!r:.100}")
    return word in ("true", "yes")


def read_agent(path: Path, source: str) -> AgentDefinition:
    """An agent from its file. Raises as `parse_agent`, and `InvalidValue` for a file that is no text."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
            raise InvalidValue(f"{path}: no file, or one of more than {LARGEST} bytes")
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidValue(f"{path}: {error}") from error
    return parse_agent(text, str(path), source)


def could_define(path: Path) -> str | None:
    """The name that a broken file would define, as far as can be told; with its package, where that has a name."""
    try:
        if not path.is_file():
            return None
        with path.open(encoding="utf-8", errors="replace") as file:
            text = file.read(LARGEST)
    except OSError:
        return None
    found = re.search(r"^name:\s*['\"]?([^'\"\n]+)", text, re.MULTILINE)
    name = found[1].strip() if found else path.stem
    package = re.search(r"^package:\s*['\"]?([^'\"\n]+)", text, re.MULTILINE)
    try:
        return _packaged(name, package and package[1], str(path))
    except InvalidValue:
        return None
