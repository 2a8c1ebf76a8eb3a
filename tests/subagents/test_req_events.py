"""How long events are kept, and what a cursor means after that."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from perdure import Harness
from perdure.subagents import events, rows
from perdure.subagents.client import reading
from perdure.subagents.orchestrator import Orchestrator
from perdure.subagents.retention import AT_ONCE, compact
from perdure.subagents.state import EventDoc, LiveDoc, Workflow
from perdure.testing.clock import FakeClock
from tests.subagents.place import Place
from tests.subagents.test_a_week import Later

Make = Callable[..., Place]
DAY = 86_400
ASK = {"call": "ask", "args": {"question": "Which?"}}


def a_workflow(wid: str, **more: Any) -> Workflow:
    return Workflow(wid=wid, request="r", sender="s", form="single", cwd="/", created=0.0, digest="", **more)


async def kept(harness: Harness) -> list[str | None]:
    return [one.wid for one in await rows.rows(harness.session, EventDoc)]


async def log(harness: Harness, *wids: str) -> None:
    async with harness.session.transaction() as tx:
        for wid in wids:
            await events.append_event(tx, "submitted", workflow=a_workflow(wid))


async def test_r355_what_is_old_goes_if_nothing_of_its_workflow_is_under_way() -> None:
    clock = FakeClock(1_000_000.0)
    async with Harness.open("memory:", clock=clock) as harness:
        async with harness.session.transaction() as tx:
            for wid, row in (
                ("done", a_workflow("done", status="done")),
                ("asking", a_workflow("asking")),
                ("parked", a_workflow("parked", status="parked")),
                ("followed", a_workflow("followed", status="done", open=["a"])),
            ):
                await rows.put_workflow(tx, row)
                if wid != "done":
                    await rows.write(tx, LiveDoc, wid, {})
        await log(harness, "asking", "done", "parked", "pruned", "followed")
        await clock.advance(6.9 * DAY)
        await log(harness, "done")
        assert await compact(harness.session, 7 * DAY * 1000) == 0, "nothing is old enough"
        await clock.advance(0.2 * DAY)
        head = await events.head(harness.session)
        assert await compact(harness.session, 7 * DAY * 1000) == 2
        assert await kept(harness) == ["asking", "parked", "followed", "done"]
        assert await compact(harness.session, 7 * DAY * 1000) == 0, "once"
        epoch = head.partition(".")[0]
        for number in (0, 3):
            with pytest.raises(events.CursorExpired) as expired:
                await events.after(harness.session, f"{epoch}.{number}")
            assert (expired.value.head, expired.value.oldest) == (head, f"{epoch}.4")
        page = await events.after(harness.session, f"{epoch}.4")
        assert [one.wid for one in page.events] == ["followed", "done"]
        timeline = await events.of_workflow(harness.session, "asking")
        assert [one.wid for one in timeline] == ["asking"], "a timeline keeps what is under way"
        await log(harness, "new")
        assert await events.head(harness.session) == f"{epoch}.7", "no number is given twice"


async def test_r355_a_long_log_is_gone_through_in_pieces() -> None:
    clock = FakeClock(1_000_000.0)
    async with Harness.open("memory:", clock=clock) as harness:
        async with harness.session.transaction() as tx:
            await rows.put_workflow(tx, a_workflow("live"))
            await rows.write(tx, LiveDoc, "live", {})
        for number in range(5):
            await log(harness, *["live" if number % 2 else "gone"] * AT_ONCE)
        await clock.advance(8 * DAY)
        assert await compact(harness.session, 7 * DAY * 1000) == 3 * AT_ONCE
        assert await kept(harness) == ["live"] * 2 * AT_ONCE


@pytest.mark.slow
async def test_r355_r356_an_orchestrator_that_starts_drops_what_is_old(place: Make) -> None:
    at = place({"ask": [ASK, {"say": "x"}], "*": [{"say": "ok"}]}, k={"idleExitMs": 100})
    async with Orchestrator(at.root):
        await at.single("asks", key="ask")
        await at.until("asks", lambda found: found["state"] == "asking")
        done = await at.single("done")
        await at.sealed("done")
    async with reading(at.root) as reader:
        assert reader is not None
        before = await events.head(reader)
    start = f"{before.partition('.')[0]}.0"
    async with Orchestrator(at.root, clock=Later(8.0 * DAY)) as orchestrator:
        session = orchestrator.harness.session
        async with asyncio.timeout(30):
            while await events.of_workflow(session, done):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert await events.of_workflow(session, (await at.described("asks"))["wid"])
        with pytest.raises(events.CursorExpired):
            await events.after(session, start)
        assert int((await events.head(session)).partition(".")[2]) >= int(before.partition(".")[2])
        await at.client.ask("stop", {"to": "asks"}, wait=30.0)


@pytest.mark.slow
async def test_r352_r354_the_head_of_an_empty_log_is_followed_by_its_first_event(place: Make) -> None:
    at = place({"*": [{"say": "ok"}]})
    async with Orchestrator(at.root) as orchestrator:
        session = orchestrator.harness.session
        head = await events.head(session)
        assert (await events.after(session, head)).events == []
        await at.single("job")
        await at.sealed("job")
        found = (await events.after(session, head)).events
        assert found[0].type == "submitted"
