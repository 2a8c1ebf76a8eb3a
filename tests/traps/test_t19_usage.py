"""Each response counts once, where it was made: the sum is the provider's own ledger."""

from typing import Any

from perdure.storage.memory import MemoryStorage
from perdure.testing.clock import FakeClock, settle
from perdure.testing.scripted_model import ScriptedModel, call, say
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
        assert answer.entry_id is not None
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
