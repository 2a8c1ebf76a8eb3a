"""The extension by which an agent starts others."""

from collections.abc import Mapping

from perdure.extensions.extension import Extension
from perdure.tools.subagent import subagent_tool
from perdure.tools.subagent_roles import DepthDoc, Role, Roles
from perdure.tools.subagent_team import Anchor, Ended, MemberDoc, Report, TakenDoc, agents_tool


def subagents(roles: Mapping[str, Role] | None = None, *, depth: int = 1, name: str = "subagents") -> Extension:
    """An extension with two tools: `subagent` gives a job to a subagent and waits for its answer; `agents` keeps named
    ones, which work in the background and can be written to.

    A subagent is a conversation of the same session: it begins with a copy of the agent that starts it, changed by the
    `role` that the model chooses. One of `subagent` belongs to the call: stopping the call stops it first, while it
    works the call is parked, and a crash neither makes a second one nor asks it twice. One of `agents` belongs to the
    conversation: an ordinary abort leaves it alone, and each of its answers comes as one message.
    `depth`: how many levels may start others.
    """
    found = Roles(roles or {}, depth, name)
    extension = Extension(name, tasks=[Anchor, Report], signals=[Ended])
    extension.add(DepthDoc, MemberDoc, TakenDoc, subagent_tool(found), agents_tool(found))
    return extension
