"""Wraps of sections: what is rendered around a part of the prompt, whoever brings that part."""

from typing import Any

import pytest

from perdure import Extension, InvalidDefinition, SectionContext
from perdure.testing.scripted_model import ScriptedModel
from tests.agent.kit import agent, ask


def rules(text: str | None = "be kind") -> Extension:
    ext = Extension("rules")

    @ext.section("rules")
    async def render(ctx: SectionContext) -> str | None:
        return text

    return ext


def framed(name: str, mark: str) -> Extension:
    ext = Extension(name)

    @ext.wrap_section("rules")
    async def frame(ctx: SectionContext, call_next: Any) -> str | None:
        inner = await call_next()
        return None if inner is None else f"{mark}{inner}{mark}"

    return ext


async def prompt(*extensions: Extension) -> str:
    model = ScriptedModel(["fine"])
    async with agent(model, *extensions) as (_, root):
        await ask(root)
    return model.requests[0].system


async def test_the_last_extensions_wrap_is_the_outermost() -> None:
    assert await prompt(rules(), framed("a", "+"), framed("b", "*")) == "*+be kind+*"


async def test_it_goes_around_whichever_section_wins_wherever_it_is_defined() -> None:
    other = Extension("other")

    @other.section("rules")
    async def render(ctx: SectionContext) -> str:
        return "be brief"

    assert await prompt(framed("a", "+"), rules(), other) == "+be brief+"


async def test_one_around_a_section_that_is_not_there_is_skipped() -> None:
    assert await prompt(framed("a", "+")) == ""
    assert await prompt(rules(None), framed("a", "+")) == ""


async def test_one_that_raises_keeps_the_last_text() -> None:
    odd = Extension("odd")
    fails: list[bool] = []

    @odd.wrap_section("rules")
    async def frame(ctx: SectionContext, call_next: Any) -> str:
        if fails:
            raise ValueError("no frame today")
        return f"<{await call_next()}>"

    model = ScriptedModel(["one", "two"])
    async with agent(model, rules(), odd) as (harness, root):
        await ask(root)
        fails.append(True)
        await ask(root)
        assert "no frame today" in str(harness.inspect()["reports"])
    assert [request.system for request in model.requests] == ["<be kind>"] * 2


def test_it_is_checked_when_it_is_defined() -> None:
    ext = Extension("odd")
    with pytest.raises(InvalidDefinition):
        ext.wrap_section("rules")(lambda ctx, call_next: "text")
    with pytest.raises(InvalidDefinition):
        ext.wrap_section("")
