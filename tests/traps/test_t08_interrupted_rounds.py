"""Whatever interrupts a round, each call has one result, finished ones are kept, and a new message works at once."""

import asyncio
from typing import Any

import pytest

from perdure import Block, Extension
from perdure.storage.memory import MemoryStorage
from perdure.testing.clock import settle
from perdure.testing.scripted_model import ScriptedModel, say
from perdure.testing.turns import call
from tests.agent.kit import Gate, agent, ask, results

ROUND = [call(name) for name in "abc"]


def script(request: Any) -> Any:
    return ROUND if len(request.messages) == 1 else say("end")


def three(gate: Gate, *, sequential: bool) -> Extension:
    extension = Extension("three")

    @extension.tool(sequential=sequential)
    async def a(ctx: Any) -> str:
        """First."""
        return "real a"

    @extension.tool
    async def b(ctx: Any) -> str:
        """Second."""
        await gate.stop()
        return "real b"

    @extension.tool
    async def c(ctx: Any) -> str:
        """Third."""
        return "real c"

    return extension


@pytest.mark.parametrize("sequential", [True, False])
@pytest.mark.parametrize("how", ["abort", "close", "close and abort"])
async def test_a_round_that_was_interrupted_does_not_stop_the_next_message(sequential: bool, how: str) -> None:
    storage, gate = MemoryStorage(), Gate()
    async with agent(script, three(gate, sequential=sequential), storage=storage) as (_, root):
        submission = await root.submit("go")
        await gate.reached.wait()
        await settle()
        if how == "abort":
            await root.abort()
            assert (await submission.settled()).reason == "aborted"
            assert await ask(root, "hello") == "end"
    gate.go.set()
    async with agent(script, three(gate, sequential=sequential), storage=storage) as (harness, root):
        if how == "close and abort":
            await root.abort()
        await harness.resume()
        await root.wait_idle()
        assert await ask(root, "hello again") == "end"
        found = [text.split(":")[0] for text in await results(root)]
        assert found[0] == "real a"
        assert found[1] in ("aborted", "interrupted")
        assert found[2] in (("real c",) if not sequential or how == "close" else ("aborted", "interrupted"))


async def test_a_provider_that_fails_behind_a_round_leaves_a_whole_round() -> None:
    gate = Gate()
    gate.go.set()
    extension = three(gate, sequential=False)

    @extension.before_tool(tools=["c"])
    async def no(ctx: Any, made: Any) -> Block:
        return Block("not approved")

    failed: list[int] = []

    def failing(request: Any) -> Any:
        if len(request.messages) == 5 and not failed:
            failed.append(1)
            raise ZeroDivisionError
        return script(request)

    async with agent(ScriptedModel(failing), extension) as (_, root):
        assert (await (await root.submit("go")).settled()).status == "unanswered"
        assert await ask(root, "hello") == "end"
        assert await results(root) == ["real a", "real b", "blocked: not approved"]
        await asyncio.sleep(0)
