"""What extension code is handed fits what it is told."""

import inspect
from typing import Any

import pytest

from perdure import Conversation, Extension, Submission
from perdure.agent import hook_context
from perdure.agent.agent import AgentNames
from perdure.agent.tool_context import ToolContext
from perdure.extensions import api
from perdure.testing.turns import call
from tests.agent.kit import agent, ask

# The type checker compares these: a context that lacks what its protocol promises does not pass.


def _tool(ctx: ToolContext) -> api.ToolContext:
    return ctx


def _hook(ctx: hook_context.HookContext) -> api.HookContext:
    return ctx


def _section(ctx: hook_context.SectionContext) -> api.SectionContext:
    return ctx


def _conversation(handle: Conversation) -> api.ConversationHandle:
    return handle


def _submission(handle: Submission) -> api.SubmissionHandle:
    return handle


def _names(names: AgentNames) -> api.AgentView:
    return names


def promised(protocol: type) -> set[str]:
    return {name for part in protocol.__mro__ for name in vars(part) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("protocol", "cls"),
    [
        (api.ToolContext, ToolContext),
        (api.HookContext, hook_context.HookContext),
        (api.SectionContext, hook_context.SectionContext),
        (api.ConversationHandle, Conversation),
        (api.SubmissionHandle, Submission),
    ],
)
def test_methods_take_what_they_are_promised_to_take(protocol: type, cls: type) -> None:
    for name in promised(protocol) - {"memo"}:  # it is overloaded: the type checker compares it
        asked = inspect.getattr_static(protocol, name)
        if inspect.isfunction(asked):
            given = inspect.signature(getattr(cls, name)).parameters
            assert list(given) == list(inspect.signature(asked).parameters), f"{cls.__name__}.{name}"
            assert inspect.iscoroutinefunction(asked) == inspect.iscoroutinefunction(getattr(cls, name)), name


def test_everything_that_is_promised_is_explained() -> None:
    for protocol in (api.ToolContext, api.HookContext, api.SectionContext):
        for name in promised(protocol) - {"conversation_id"}:
            assert inspect.getdoc(getattr(protocol, name)), f"{protocol.__name__}.{name}"


async def test_a_context_has_all_that_is_promised_while_its_code_runs() -> None:
    seen: dict[str, set[str]] = {}

    def missing(ctx: Any, protocol: type) -> set[str]:
        return {name for name in promised(protocol) if not hasattr(ctx, name)}

    ops = Extension("ops")

    @ops.tool
    async def look(ctx: api.ToolContext) -> str:
        """Look."""
        seen["tool"] = missing(ctx, api.ToolContext)
        seen["agent"] = missing(ctx.agent, api.AgentView)
        return ",".join(ctx.agent.tools)

    @ops.before_tool
    async def gate(ctx: api.HookContext, subject: Any) -> None:
        seen["hook"] = missing(ctx, api.HookContext)

    @ops.section("now")
    async def now(ctx: api.SectionContext) -> str | None:
        seen["section"] = missing(ctx, api.SectionContext)
        return None

    async with agent([call("look"), "done"], ops) as (_, root):
        assert await ask(root) == "done"
    assert seen == {"tool": set(), "agent": set(), "hook": set(), "section": set()}
