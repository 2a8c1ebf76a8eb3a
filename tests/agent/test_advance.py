"""A request that is prepared with the commit before it is the one that the long way would have made."""

import gc
from typing import Any

import pytest

from perdure import Budget, Extension
from perdure.models.messages import SystemMessage
from perdure.storage.memory import MemoryStorage
from perdure.testing.scripted_model import ScriptedModel, call
from tests.agent.kit import agent, ask, reports


def echo() -> Extension:
    extension = Extension("echo")

    @extension.tool
    async def echo(ctx: Any) -> str:
        """Say it."""
        return "hi"

    return extension


async def told(budget: Budget) -> tuple[Any, int]:
    model = ScriptedModel([call("echo"), "one", call("echo"), "two"])
    async with agent(model, echo(), instructions="first") as (harness, root):
        harness.settings.budget = budget
        await ask(root, "a")
        await root.configure(instructions="second", thinking="low")
        await ask(root, "b")
        sent = [(r.system, r.messages, [t.name for t in r.tools], r.thinking) for r in model.requests]
        return sent, harness.session.seq


async def test_the_short_way_sends_what_the_long_way_sends_in_fewer_commits() -> None:
    short, few = await told(Budget())
    long, many = await told(Budget(max_turns=100))
    assert short == long
    assert few < many


async def test_a_turn_leaves_nothing_behind_that_only_a_search_could_free() -> None:
    async with agent([call("echo"), "one", *[call("echo"), "two"] * 5], echo()) as (_, root):
        await ask(root, "a")
        gc.collect()
        gc.disable()
        try:
            for _ in range(5):
                await ask(root, "b")
            assert gc.collect() < 5
        finally:
            gc.enable()


@pytest.mark.parametrize("updates", [True, False])
async def test_sections_are_stored_as_they_change_and_replayed_after_a_restart(updates: bool) -> None:
    texts: dict[str, Any] = {"a": "A1", "b": "B1"}
    storage = MemoryStorage()

    def sections(*order: str) -> Extension:
        extension = Extension("sections")
        for name in order:

            async def render(ctx: Any, name: str = name) -> Any:
                if isinstance(texts[name], Exception):
                    raise texts[name]
                return texts[name]

            extension.section(name)(render)
        return extension

    async def request(*order: str, text: str) -> Any:
        model = ScriptedModel(["fine"], system_updates=updates)
        async with agent(model, sections(*order), storage=storage) as (harness, root):
            await ask(root, text)
            return model.requests[0], reports(harness)

    async def folded(*order: str, text: str) -> str:
        made, _ = await request(*order, text=text)
        whole = [m for m in made.messages if isinstance(m, SystemMessage)]
        assert bool(whole) == (updates and text != "1")
        return str(made.system)

    assert await folded("a", "b", text="1") == "A1\n\nB1"
    texts["a"] = "A2"
    expected = "A1\n\nB1" if updates else "A2\n\nB1"
    assert await folded("a", "b", text="2") == expected
    texts["a"] = ValueError("broken")
    made, where = await request("a", "b", text="3")
    assert where == ["section sections.a"]
    assert made.system == expected
    texts["a"] = None
    made, _ = await request("a", "b", text="4")
    assert made.system == ("A1\n\nB1" if updates else "B1")
    texts["a"] = "A3"
    made, _ = await request("b", "a", text="5")
    assert made.system == ("A1\n\nB1" if updates else "B1\n\nA3")
    async with agent([], storage=storage) as (_, root):
        changes = [e for e in await root.entries(limit=500) if e.kind == "perdure.system"]
        assert len(changes) == 4


async def test_a_plain_answer_takes_two_commits_and_one_with_a_tool_four() -> None:
    model = ScriptedModel(["first", "plain", call("echo"), "with a tool"])
    async with agent(model, echo()) as (harness, root):
        await ask(root, "warm up")
        taken = []
        for text in ("a", "b"):
            before = harness.session.seq
            await ask(root, text)
            taken.append(harness.session.seq - before)
        assert taken == [2, 4]
