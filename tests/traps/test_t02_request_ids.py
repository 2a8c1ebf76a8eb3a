"""A request id stands for one submission for ever, whoever retries it and whenever."""

import asyncio
from typing import Any

import pytest

from perdure import RequestConflict
from perdure.models.errors import AuthFailed
from perdure.storage.memory import MemoryStorage
from perdure.testing.crash import Scenario, explore
from perdure.testing.scripted_model import ScriptedModel, fail, say
from tests.agent.kit import agent, said


async def ask_again(process: Any) -> None:
    """The client asks again at every start of the process, until it is told an outcome."""
    await process.settled(await process.submit("do it", request_id="job-1"))


@pytest.mark.slow
def test_a_client_that_asks_again_after_a_crash_at_any_write_gets_the_one_outcome() -> None:
    explore(Scenario("job", ask_again, turns=["a"], finish=ask_again), ["memory"])


async def test_twenty_at_once_undecided_settled_and_restarted_are_one_entry_and_one_request() -> None:
    storage, go = MemoryStorage(), asyncio.Event()
    model = ScriptedModel([say("a").held_by(go)])
    async with agent(model, storage=storage) as (_, root):
        submissions = await asyncio.gather(*(root.submit("do it", request_id="job-1") for _ in range(20)))
        assert await submissions[0].status() == "placed"
        go.set()
        answers = {(await submission.wait()).entry_id for submission in submissions}
        assert len(answers) == 1
    async with agent(model, storage=storage) as (_, root):
        again = await root.submit("do it", request_id="job-1")
        assert (await again.wait()).entry_id in answers
        with pytest.raises(RequestConflict) as caught:
            await root.submit("something else", request_id="job-1")
        assert caught.value.code == "request_conflict"
        assert "do it" not in f"{caught.value} {caught.value.hint}"
        assert await said(root) == ["do it"]
        assert len(model.requests) == 1


async def test_a_failure_stays_the_outcome_of_its_id_and_a_new_id_may_succeed() -> None:
    async with agent([fail(AuthFailed("no key")), "a"]) as (_, root):
        first = await root.submit("do it", request_id="job-1")
        assert (await first.settled()).reason == "failed"
        again = await root.submit("do it", request_id="job-1")
        assert (again.id, (await again.settled()).reason) == (first.id, "failed")
        assert (await (await root.submit("do it", request_id="job-2")).wait()).text == "a"
