"""Skills: folders with a `SKILL.md`. An agent is told of them by name and reads the file when it needs one."""

import re
from pathlib import Path
from typing import Final, NamedTuple

from perdure.subagents.agent_files import split
from perdure.subagents.projects import project_root, user_folder

FILE: Final = "SKILL.md"
DESCRIPTION_LENGTH: Final = 1000
"""Characters."""


class Skill(NamedTuple):
    """A skill as it is offered."""

    name: str
    description: str
    path: Path


def skill_places(cwd: Path) -> list[Path]:
    """Folders of skills, lowest first: the user's, then the project's."""
    found = [user_folder() / "skills", Path.home() / ".agents" / "skills"]
    root = project_root(cwd)
    if root is not None:
        found += [root / ".agents" / "skills", root / ".perdure" / "skills"]
    return found


def find_skills(cwd: Path) -> dict[str, Skill]:
    """All skills that may be named in this folder; the later one of a name wins. What cannot be read is none."""
    found: dict[str, Skill] = {}
    for place in skill_places(cwd):
        try:
            folders = sorted(place.iterdir())
        except OSError:
            continue
        for folder in folders:
            skill = _read(folder)
            if skill is not None:
                found[skill.name] = skill
    return found


def _read(folder: Path) -> Skill | None:
    path = folder / FILE
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    front = (split(text) or ("", ""))[0]
    return Skill(_field(front, "name") or folder.name, _field(front, "description")[:DESCRIPTION_LENGTH], path)


def _field(front: str, name: str) -> str:
    """A field of the front matter as one line; the lines below it that are indented go with it."""
    found = re.search(rf"^{name}:[ \t]*(?:[>|][-+]?[ \t]*)?(.*(?:\n[ \t]+.*)*)", front, re.MULTILINE)
    return " ".join(found[1].split()).strip("'\"") if found else ""
