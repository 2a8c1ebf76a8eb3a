"""What a host says to its model: who it is, and what happened to an earlier execution."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from perdure.subagents.projects import project_root
from perdure.subagents.protocol import Launch
from perdure.subagents.skills import Skill, find_skills

GENERAL: Final = """You work on tasks with the tools that you are given: you read, change and run what lies in your \
working directory. Look before you change anything, keep to what the task asks for, and check what you did."""
"""What an agent that only adds to it (`systemPromptMode: append`) adds to."""
OWN: Final = "You are a subagent: you work on one task, and your last message is what comes of it."
TO_REPORT: Final = " Whatever you write does not count until you call `report`, as your last step."
CUT: Final = "An earlier run of yours was cut off."
GO_ON: Final = "Go on with your task."
GONE: Final = "Whatever processes your tools had started, background ones too, are gone: look before you wait for them."
AWAY: Final = f"(You were away while the question was open. {GONE})"
NO_ANSWER: Final = "Your last run ended without an answer that can be used. Finish the task and give the answer."
CONTEXT_FILE: Final = "AGENTS.md"
CONTEXT_LENGTH: Final = 64 * 1024
"""Characters of one context file; what is longer is cut."""


def instructions(launch: Launch) -> str:
    """The system prompt: the agent's own, alone or after the general one, then what else it asked for."""
    agent = launch.agent
    parts = [GENERAL] if agent.get("systemPromptMode") == "append" else []
    parts += [str(agent.get("prompt", "")).strip(), OWN + (TO_REPORT if launch.schema is not None else "")]
    if agent.get("inheritProjectContext"):
        parts += [f"From {path}:\n\n{text}" for path, text in project_context(Path(launch.cwd))]
    offered, missing = chosen_skills(launch)
    parts.append(listed(offered))
    if missing:
        parts.append(f"These skills were meant for you and are not there: {', '.join(missing)}.")
    return "\n\n".join(part for part in parts if part)


def chosen_skills(launch: Launch) -> tuple[list[Skill], list[str]]:
    """The skills that are offered, and the names of those that there are not."""
    if not launch.skills and not launch.agent.get("inheritSkills"):
        return [], []
    found = find_skills(Path(launch.cwd))
    names = dict.fromkeys([*launch.skills, *(found if launch.agent.get("inheritSkills") else ())])
    return [found[name] for name in names if name in found], [name for name in names if name not in found]


def listed(skills: Iterable[Skill]) -> str:
    """Skills by reference: the model reads the file of one when it needs it."""
    lines = [f"- {skill.name}: {skill.description} ({skill.path})" for skill in skills]
    return "\n".join(["Skills that you may use; read the file of one before you do:", *lines]) if lines else ""


def project_context(cwd: Path) -> list[tuple[Path, str]]:
    """What the project tells its agents, the outermost file first."""
    folder = cwd.resolve()
    top = project_root(folder) or folder
    within = [one for one in (folder, *folder.parents) if one == top or top in one.parents]
    found = []
    for one in reversed(within):
        try:
            text = (one / CONTEXT_FILE).read_text("utf-8", "replace").strip()
        except OSError:
            continue
        if text:
            found.append((one / CONTEXT_FILE, text[:CONTEXT_LENGTH]))
    return found


def restart_note(status: str, unfinished: list[str], *, schema: bool) -> str:
    """What the model is told after an interruption; `status` is that of the generation's task."""
    lines = [CUT if status == "placed" else GO_ON, GONE]
    if unfinished:
        lines.append(f"Of these calls it is not known whether they took effect: {', '.join(unfinished)}.")
    if status == "unanswered":
        lines.append(NO_ANSWER)
    if schema:
        lines.append("End by calling `report`.")
    return " ".join(lines)
