"""An acknowledged abort ends as aborted, whenever it comes; what had ended before stays as it was."""

import asyncio
from typing import Any

import pytest

from perdure import Extension, Registry
from perdure.models.messages import decode_messages
from perdure.storage.memory import MemoryStorage
from perdure.testing.clock import FakeClock, settle
from perdure.testing.crash import Process, Scenario, explore
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


def abort_and_kill(step: float) -> Scenario:
    """A run that is aborted after so many seconds; once the abort is acknowledged, no process goes on with it."""
    aborted = "aborted"

    def registry(process: Process) -> Registry:
        extension = Extension("slow")

        @extension.tool
        async def work(ctx: Any) -> str:
            """Work for 200 ms."""
            process.ledger.ran(ctx, "work")
            assert aborted not in process.history.notes, "a tool was begun after the abort had been acknowledged"
            await process.clock.sleep(0.2)
            return "worked"

        return Registry([extension])

    async def start(process: Process) -> None:
        submission = await process.submit("go", request_id="go")
        if aborted in process.history.notes:
            assert await submission.status() in ("done", "unanswered")
            return
        until = process.clock.monotonic() + step

        async def due() -> bool:
            return process.clock.monotonic() >= until or await submission.status() in ("done", "unanswered")

        await process.until(due)
        await process.abort()
        process.history.notes[aborted] = True
        asked = len(process.model.requests)
        settled = await process.settled(submission)
        await process.run_out()
        assert len(process.model.requests) == asked
        assert settled.reason == ("aborted" if settled.status == "unanswered" else None)

    turns = [call("work"), say("done").after(0.1, between=0.05)]
    return Scenario(f"abort after {step} s", start, turns=turns, registry=registry, finish=start)


@pytest.mark.slow
@pytest.mark.parametrize("step", [0.0, 0.1, 0.2, 0.3, 0.35])
def test_an_acknowledged_abort_stays_one_whenever_the_process_is_killed(step: float) -> None:
    explore(abort_and_kill(step), ["memory"], snapshots=True)


@pytest.mark.long
@pytest.mark.parametrize("step", range(0, 405, 25))
def test_an_acknowledged_abort_stays_one_whenever_the_process_is_killed_on_files(step: int) -> None:
    explore(abort_and_kill(step / 1000), ["memory", "power"], snapshots=True, doubled=10)
