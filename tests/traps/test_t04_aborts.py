"""An acknowledged abort ends as aborted, whenever it comes; what had ended before stays as it was."""

import asyncio
from typing import Any

import pytest

from perdure import Extension
from perdure.models.messages import decode_messages
from perdure.storage.memory import MemoryStorage
from perdure.testing.clock import FakeClock, settle
from perdure.testing.scripted_model import ScriptedModel, call, say
from tests.agent.kit import agent, results


def slow(clock: FakeClock, ran: list[str]) -> Extension:
    extension = Extension("slow")

    @extension.tool
    async def work(ctx: Any) -> str:
        """Work for 200 ms."""
        ran.append("begun")
        ctx.output("half\n")
        await clock.sleep(0.2)
        ran.append("ended")
        return "worked"

    return extension


@pytest.mark.slow
@pytest.mark.parametrize("twice", [False, True])
async def test_an_abort_at_any_time_of_a_run_leaves_one_end_and_nothing_starts_after_it(twice: bool) -> None:
    for step in range(0, 405, 5):
        clock, ran = FakeClock(), list[str]()
        model = ScriptedModel([call("work"), say("done").after(0.1, between=0.05)], clock=clock)
        storage = MemoryStorage()
        async with agent(model, slow(clock, ran), storage=storage, clock=clock) as (harness, root):
            submission = await root.submit("a")
            ends: list[str] = []
            harness.session.listeners.append(
                lambda p, ends=ends, id=submission.id: ends.extend(  # type: ignore[misc]
                    s.status for s in p.submissions if s.id == id and s.status in ("done", "unanswered")
                )
            )
            await clock.advance(step / 1000)
            await asyncio.gather(*(root.abort() for _ in range(1 + twice)))
            asked, begun, settled = len(model.requests), list(ran), await submission.settled()
            await clock.advance(5)
            assert (len(model.requests), ran) == (asked, begun)
            assert len(ends) == 1
            assert settled.reason == ("aborted" if settled.status == "unanswered" else None)
            if settled.status == "unanswered" and "begun" in ran and "ended" not in ran:
                assert [text.split(":")[0] for text in await results(root)] == ["aborted"]
            assert (await submission.settled()) == settled
        async with agent(ScriptedModel(["again"], clock=clock), storage=storage, clock=clock) as (_, root):
            assert (await (await root.submit("b")).wait()).text == "again"


async def test_an_abort_at_any_commit_of_a_run_is_final() -> None:
    for number in range(1, 12):
        clock, ran = FakeClock(), list[str]()
        async with agent([call("work"), "done", "again"], slow(clock, ran), clock=clock) as (harness, root):
            aborts: list[asyncio.Task[None]] = []
            seen = 0

            def at(publication: Any, number: int = number, aborts: Any = aborts, root: Any = root) -> None:
                nonlocal seen
                seen += 1
                if seen == number:
                    aborts.append(asyncio.ensure_future(root.abort()))

            harness.session.listeners.append(at)
            submission = await root.submit("a")
            await settle()
            await clock.advance(1)
            await asyncio.gather(*aborts)
            settled = await submission.settled()
            expected = ("unanswered", "aborted") if settled.answer is None else ("done", None)
            assert (settled.status, settled.reason) == expected
            kinds = [decode_messages(entry.messages) for entry in await root.entries()]
            assert kinds
