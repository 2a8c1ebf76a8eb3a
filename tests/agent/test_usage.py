"""What was spent is booked once, where it was spent."""

from typing import Any

from perdure import Extension, ToolResult, Usage
from perdure.models.errors import Overloaded
from perdure.storage.memory import MemoryStorage
from perdure.testing.clock import FakeClock, settle
from perdure.testing.scripted_model import ScriptedModel, call, cut, fail, say
from tests.agent.kit import agent, ask


def spending() -> Extension:
    extension = Extension("spending")

    @extension.tool
    async def spend(ctx: Any) -> ToolResult:
        """Spend."""
        return ToolResult("spent", usage=Usage(input=5, cost=0.5))

    return extension


async def test_the_sum_equals_the_providers_own_ledger_with_retries_forks_and_a_restart() -> None:
    clock, storage = FakeClock(), MemoryStorage()
    turns = [
        fail(Overloaded("x")),
        cut(1, say("half")),
        call("spend"),
        say("one").with_usage(Usage(9, 3, cache_read=4)),
    ]
    model = ScriptedModel([*turns, "two", "three"], clock=clock, price=lambda usage: usage.input / 100)
    async with agent(model, spending(), storage=storage, clock=clock) as (harness, root):
        submission = await root.submit("a")
        await settle()
        await clock.advance(30)
        first = await submission.wait()
        assert first.usage is not None
        assert (first.usage.input, first.usage.cost) == (9, 0.09)
        fork = await root.fork(first.entry_id)
        assert (await fork.usage())["requests"] == 0
        await ask(fork, "b")
        own = await root.usage()
        assert (own["requests"], own["input"], own["cost"], own["unpriced"]) == (5, 114, 1.59, 2)
        total = await harness.usage()
    async with agent(model, spending(), storage=storage, clock=clock) as (harness, root):
        assert await harness.usage() == total
    assert total["input"] == model.usage.input + 5
    assert total["output"] == model.usage.output
    assert total["cache_read"] == 4


async def test_an_unknown_price_is_unknown_and_not_nothing() -> None:
    async with agent(["one"]) as (harness, root):
        answer = await (await root.submit("a")).wait()
        assert answer.usage is not None
        assert answer.usage.cost is None
        assert (await harness.usage())["unpriced"] == 1


async def test_names_with_slashes_and_tildes_are_booked_under_themselves() -> None:
    async with agent(["one"], model="a/b~c:d/e") as (harness, root):
        await ask(root)
        assert (await harness.usage())["requests"] == 1
