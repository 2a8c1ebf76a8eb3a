"""A question that waits a week, while nothing of ours runs."""

import asyncio
import time
from collections.abc import Callable

from perdure.base.clock import SystemClock
from perdure.subagents import events, rows, starter
from perdure.subagents.client import reading
from perdure.subagents.orchestrator import Orchestrator
from perdure.subagents.state import NoticeDoc
from tests.subagents.place import Place

WEEK = 7 * 86_400.0


class Later(SystemClock):
    """The machine's clock, moved."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def now(self) -> float:
        return super().now() + self._seconds


async def test_r183_r184_a_question_waits_a_week_with_no_process_and_its_answer_resumes_it_within_two_seconds(
    place: Callable[..., Place],
) -> None:
    ask = {"call": "ask", "args": {"question": "Which color?"}}
    at = place({"*": [ask, {"say": "blue it is"}]}, k={"hibernateMs": 0, "idleExitMs": 200})
    wid = await at.single(timeoutMs=60_000)
    await at.until(wid, lambda found: found["calls"][0].get("hibernated"))
    async with asyncio.timeout(30):
        while at.processes():  # noqa: ASYNC110 - nothing of ours is alive then
            await asyncio.sleep(0.05)
    assert not await starter.has_work(at.root), "and nothing would start it"
    began = time.monotonic()
    async with Orchestrator(at.root, clock=Later(WEEK)):
        outcome = await at.client.ask("answer", {"to": f"{wid}/a", "message": "blue"}, request="answer-1")
        assert outcome.state == "applied"
        again = await at.client.ask("answer", {"to": f"{wid}/a", "message": "blue"}, request="answer-1")
        assert again.state == "applied"
        other = await at.client.ask("answer", {"to": f"{wid}/a", "message": "red"}, request="answer-2")
        assert (other.state, other.reply["reason"]) == ("rejected", "already-answered")
        await at.asked(2)
        assert time.monotonic() - began < 2.0
        found = await at.sealed(wid)
    assert found["calls"][0]["status"] == "ok"
    results = [text for role, text in at.requests[-1]["messages"] if role == "tool_result"]
    assert len(results) == 1
    assert "blue" in results[0]
    async with reading(at.root) as reader:
        assert reader is not None
        asked = [one for one in await events.of_workflow(reader, wid) if one.type == "asking"]
        notices = [one for one in await rows.rows(reader, NoticeDoc) if one.kind == "question"]
    assert (len(asked), len(notices)) == (1, 1)
    assert (await at.call(wid)).losses == 0
