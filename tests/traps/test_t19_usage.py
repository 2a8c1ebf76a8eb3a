"""Each response counts once, where it was made: the sum is the provider's own ledger."""

from typing import Any

import pytest

from perdure import Conversation, Extension, Usage
from perdure.base.ids import ROOT, ConversationId
from perdure.storage.memory import MemoryStorage
from perdure.testing.clock import FakeClock, settle
from perdure.testing.crash import Process, Scenario, explore
from perdure.testing.scenarios_agents import HELPED, delegating, family, helpers
from perdure.testing.scripted_model import ScriptedModel, call, say
from tests.agent.compacting import small
from tests.agent.kit import agent, ask
from tests.agent.test_runs import gated


async def test_a_fork_an_abort_and_a_request_repeated_after_a_restart_sum_up_to_the_providers_ledger() -> None:
    clock, storage = FakeClock(), MemoryStorage()
    extension, gate = gated()

    def script(request: Any) -> Any:
        last = request.messages[-1]
        if last == request.messages[0] and str(last.content) == "work":
            return call("work")
        return say("done").after(1.0) if str(getattr(last, "content", "")) == "slow" else say("done")

    model = ScriptedModel(script, clock=clock)
    async with agent(model, extension, storage=storage, clock=clock) as (harness, root):
        await root.submit("work")
        await gate.reached.wait()
        gate.go.set()
        await root.wait_idle()
        answer = await (await root.submit("again")).wait()
        fork = await root.fork(answer.entry_id)
        await ask(fork, "in the fork")
        assert (await fork.usage())["input"] == 100
        await root.submit("slow")
        await settle()
        await clock.advance(0.5)
        assert len(model.requests) == 5
    async with agent(model, extension, storage=storage, clock=clock) as (harness, root):
        await harness.resume()
        await settle()
        await clock.advance(2)
        await root.wait_idle()
        assert len(model.requests) == 6
        await root.submit("slow")
        await settle()
        await clock.advance(0.5)
        await root.abort()
        total = await harness.usage()
        assert (total["input"], total["output"]) == (model.usage.input, model.usage.output) == (500, 50)
        assert total["cost"] == 0
        assert total["unpriced"] == total["requests"]
    async with agent(model, storage=storage, clock=clock) as (harness, _):
        assert await harness.usage() == total


SPENT = Usage(input=100, output=10, cache_read=40)


def family_of(children: list[ConversationId]) -> Extension:
    """A tool that lets a conversation of its own do the work."""
    extension = Extension("family")

    @extension.tool
    async def delegate(ctx: Any, number: int) -> str:
        """Let a child do it."""
        async with ctx.transaction() as tx:
            child = tx.create_conversation(owner=ctx.task_id)
        children.append(child)
        answer = await (await ctx.conversation(child).submit(f"part {number}")).wait()
        return str(answer.text)

    return extension


async def spent(harness: Any, conversations: list[ConversationId]) -> dict[int, int]:
    """Requests that each conversation has made itself."""
    return {id: (await Conversation(harness, id).usage())["requests"] for id in conversations}


async def test_two_children_a_fork_a_cut_stream_a_crash_and_a_summary_count_where_they_were_made_and_once() -> None:
    clock, storage, children = FakeClock(), MemoryStorage(), list[ConversationId]()

    def script(request: Any) -> Any:
        newest = str(getattr(request.messages[-1], "content", ""))
        if newest == "work":
            return [call("delegate", {"number": number}) for number in (1, 2)]
        return say("done", usage=SPENT).after(1.0) if newest == "slow" else say("done", usage=SPENT)

    model = ScriptedModel(script, clock=clock, context_window=2_000)
    options: dict[str, Any] = {"clock": clock, "settings": small(keep_tokens=10)}
    async with agent(model, family_of(children), storage=storage, **options) as (harness, root):
        answer = await (await root.submit("work")).wait()
        assert await spent(harness, [ROOT, *children]) == {ROOT: 2, children[0]: 1, children[1]: 1}
        fork = await root.fork(answer.entry_id)
        assert (await fork.usage())["requests"] == 0
        await ask(fork, "in the fork")
        assert (await fork.usage())["cache_read"] == 40
        await root.submit("slow", request_id="slow")
        await settle()
        await clock.advance(0.5)
        crashed = storage.copy()
        assert len(model.requests) == 6
    every = [ROOT, *children, fork.id]
    async with agent(model, family_of([]), storage=crashed, **options) as (harness, root):
        again = await root.submit("slow", request_id="slow")
        await settle()
        await clock.advance(2)
        await again.wait()
        assert len(model.requests) == 7
        await root.submit("slow")
        await settle()
        await clock.advance(0.5)
        await root.abort()
        done = await (await root.compact())
        assert done.status == "placed"
        total = await harness.usage()
        rows = [await Conversation(harness, id).usage() for id in every]
        assert {name: sum(row[name] for row in rows) for name in total} == total
        provider = model.usage
        assert (total["input"], total["output"], total["cache_read"]) == (
            (provider.input, provider.output, provider.cache_read)
        )
        assert total["unpriced"] == total["requests"]
        assert total["cost"] == 0
    async with agent(model, storage=crashed, **options) as (harness, _):
        assert await harness.usage() == total


async def fork_and_stop(process: Process) -> None:
    """Two helpers work; a fork goes its own way; an answer is stopped in the middle."""
    settled = await process.settled(await process.submit("go", request_id="first"))
    if settled.answer is not None:
        other = await process.root.fork(settled.answer, key="other")
        await process.settled(await process.submit("what if?", request_id="fork", to=other))
    last = await process.submit("tell", request_id="last")
    until = process.clock.monotonic() + 0.25

    async def halfway() -> bool:
        return process.clock.monotonic() > until or await last.status() in ("done", "unanswered")

    await process.until(halfway)
    await process.abort()
    await process.settled(last)


@pytest.mark.slow
@pytest.mark.parametrize("storage", ["memory", "power"])
def test_wherever_a_crash_comes_nothing_is_booked_twice_and_only_what_was_on_its_way_is_lost(storage: str) -> None:
    turns = family(
        [
            *delegating("delegate", "delegate"),
            say("And on it goes, piece by piece, for a while.").after(0.1, between=0.1),
        ],
        HELPED,
    )
    scenario = Scenario("family", fork_and_stop, turns=turns, registry=helpers, finish=fork_and_stop, streams=3)
    explore(scenario, [storage], stops=["before", "after"], snapshots=True)
