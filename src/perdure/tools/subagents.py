"""The extension by which an agent starts others."""

from collections.abc import Mapping
from typing import Final

from perdure.base.errors import InvalidDefinition
from perdure.extensions.extension import Extension
from perdure.tools.subagent import subagent_tool
from perdure.tools.subagent_agents import agents_tool
from perdure.tools.subagent_roles import DepthDoc, Role, Roles
from perdure.tools.subagent_team import MOST_NAMES, Alarm, Anchor, Ended, MemberDoc, Report, Reported, TakenDoc, Tell

MOST: Final = 16
"""Named subagents of a conversation at once: more than a model keeps apart."""


def subagents(
    roles: Mapping[str, Role] | None = None, *, depth: int = 1, most: int = MOST, name: str = "subagents"
) -> Extension:
    """An extension with two tools: `subagent` gives a job to a subagent and waits for its answer; `agents` keeps named
    ones, which work in the background and can be written to.

    A subagent is a conversation of the same session: it begins with a copy of the agent that starts it, changed by the
    `role` that the model chooses. One of `subagent` belongs to the call: stopping the call stops it first, while it
    works the call is parked, and a crash neither makes a second one nor asks it twice. One of `agents` belongs to the
    conversation: an ordinary abort leaves it alone, and each of its answers comes as one message.
    `depth`: how many levels may start others. `most`: named ones that a conversation may have at once.
    """
    found = Roles(roles or {}, depth, name)
    if type(most) is not int or not 0 < most < MOST_NAMES // 2:
        raise InvalidDefinition(f"most counts named subagents from 1 to {MOST_NAMES // 2 - 1}, it is not {most!r}")
    extension = Extension(name, tasks=[Anchor, Report, Tell, Alarm], signals=[Ended])
    extension.add(DepthDoc, MemberDoc, TakenDoc, Reported, subagent_tool(found), agents_tool(found, most))
    return extension
