"""How a subagent differs from who starts it, and how deep subagents may go."""

from collections.abc import Mapping
from typing import Any, TypedDict

import msgspec

from perdure.base.errors import InvalidDefinition
from perdure.base.text import well_formed
from perdure.extensions.api import ConversationHandle, ToolContext
from perdure.extensions.documents import Document
from perdure.extensions.results import ToolError


class Role(msgspec.Struct, frozen=True, kw_only=True):
    """How a subagent differs from who starts it; None: not at all. `description` tells the model when to choose it."""

    description: str = ""
    model: str | None = None
    thinking: str | None = None
    instructions: str | None = None
    extensions: tuple[str, ...] | None = None
    tools: tuple[str, ...] | None = None
    cwd: str | None = None


class Depth(TypedDict):
    """How many subagents stand between a conversation and the person."""

    depth: int


DepthDoc: Document[Any] = Document("subagents.depth", Depth, scope="conversation", fork="current")


class Roles:
    """The roles that the host offers, and how deep subagents may start others."""

    def __init__(self, roles: Mapping[str, Role], depth: int, extension: str) -> None:
        for name, role in roles.items():
            if not name.strip() or type(role) is not Role:
                raise InvalidDefinition(f"a role is a Role under a name, not {name!r}: {role!r:.100}")
        if type(depth) is not int or depth < 1:
            raise InvalidDefinition(f"depth counts from 1, it is not {depth!r}")
        self._roles = dict(roles)
        self._depth = depth
        self._extension = extension

    def describe(self) -> str:
        """For a tool's description."""
        lines = [f"- {name}: {well_formed(role.description)}" for name, role in self._roles.items()]
        return "\n".join(["\n\nRoles:", *lines]) if lines else ""

    def chosen(self, name: str | None) -> Role:
        """The role of that name. Raises `ToolError` naming those there are."""
        if name is None:
            return Role()
        if name not in self._roles:
            known = ", ".join(self._roles) or "none; leave it out"
            raise ToolError(f"no role {name!r}; roles: {known}")
        return self._roles[name]

    async def below(self, ctx: ToolContext[Any]) -> int:
        """The depth of a subagent of this conversation. Raises `ToolError` where it may have none."""
        own = await ctx.read(DepthDoc)
        depth = 1 if own is None else own["depth"] + 1
        if depth > self._depth:
            raise ToolError("you are a subagent and may not start others: do it yourself")
        return depth

    async def set_up(self, ctx: ToolContext[Any], child: ConversationHandle, role: Role, depth: int) -> None:
        """Give a new conversation its agent: a copy of this one's with the role's changes. May be repeated."""
        extensions = role.extensions if role.extensions is not None else ctx.agent.extensions
        if depth >= self._depth:
            extensions = tuple(name for name in extensions if name != self._extension)
        changes: dict[str, Any] = {"extensions": list(extensions)}
        for field in ("model", "thinking", "instructions", "cwd"):
            if (value := getattr(role, field)) is not None:
                changes[field] = value
        if role.tools is not None:
            changes["tools"] = list(role.tools)
        await child.configure(**changes)
