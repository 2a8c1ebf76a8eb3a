"""Whatever interrupts a round, each call has one result, finished ones are kept, and a new message works at once."""

import asyncio
from typing import Any

import pytest

from perdure import Block, Extension, Registry, ToolResultMessage
from perdure.storage.memory import MemoryStorage
from perdure.testing.clock import settle
from perdure.testing.crash import Process, Scenario, explore
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


@pytest.mark.slow
@pytest.mark.parametrize("sequential", [True, False])
async def test_an_abort_after_any_commit_of_a_round_keeps_what_had_ended_and_the_next_message_works(
    sequential: bool,
) -> None:
    for number in range(1, 14):
        gate = Gate()
        async with agent(script, three(gate, sequential=sequential)) as (harness, root):
            aborts: list[asyncio.Task[None]] = []
            ended: list[str] = []
            seen = 0

            def at(publication: Any, number: int = number, aborts: Any = aborts, root: Any = root) -> None:
                nonlocal seen
                seen += 1
                if seen == number:
                    aborts.append(asyncio.ensure_future(root.abort()))

            harness.session.listeners.append(at)
            submission = await root.submit("go")
            await settle(200)
            ended += [text for text in await results(root) if text.startswith("real")]
            gate.go.set()
            await settle(200)
            await asyncio.gather(*aborts)
            await root.abort()
            await submission.settled()
            assert await ask(root, "hello") == "end"
            found = await results(root)
            assert len(found) in (0, 3)
            assert [text for text in found if text in ended] == ended
            for text, name in zip(found, "abc", strict=False):
                assert text == f"real {name}" or text.split(":")[0] in ("aborted", "interrupted")


def killed(*, sequential: bool) -> Scenario:
    """A round of three unsafe calls, killed at every write; then it goes on by itself."""

    def registry(process: Process) -> Registry:
        extension = Extension("three")

        def make(name: str) -> None:
            @extension.tool(name=name, sequential=sequential)
            async def run(ctx: Any) -> str:
                """Act."""
                process.ledger.ran(ctx, name)
                ctx.output("half\n")
                return f"real {name}"

        for name in "abc":
            make(name)
        return Registry([extension])

    async def start(process: Process) -> None:
        await process.settled(await process.submit("go", request_id="go"))

    async def check(process: Process) -> None:
        told = [str(m.content) for m in await process.root.messages() if isinstance(m, ToolResultMessage)]
        assert len(told) == 3, told
        for text, name in zip(told, "abc", strict=True):
            assert text == f"real {name}" or text.startswith("interrupted"), told
        assert sum(not text.startswith("real") for text in told) <= (1 if sequential else 3), told
        assert process.number > 1 or told == ["real a", "real b", "real c"]

    return Scenario("killed round", start, turns=[ROUND, say("end")], registry=registry, finish=start, check=check)


@pytest.mark.slow
@pytest.mark.parametrize("storage", ["memory", "power"])
@pytest.mark.parametrize("sequential", [True, False])
def test_a_kill_at_any_write_of_a_round_costs_the_calls_that_ran_and_no_other(sequential: bool, storage: str) -> None:
    explore(killed(sequential=sequential), [storage], stops=["before", "after"], snapshots=True)
