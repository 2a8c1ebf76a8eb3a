"""Further generations of a call in the same session: what an older one left open ends, and is not charged."""

import asyncio
from pathlib import Path

import pytest

from tests.subagents.hosting import Bench, until

pytestmark = pytest.mark.slow
ASK = {"call": "ask", "args": {"question": "Which color?"}}


async def test_r133_a_follow_up_goes_on_with_the_conversation(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"a": [{"say": "one"}, {"say": "two"}]})
    async with bench.host(bench.launch()) as link:
        await until(link, "settled")
    second = bench.launch(generation=2, task="And more?")
    assert (await bench.evidence(second)).usage == {}, "nothing has begun yet"
    async with bench.host(second) as link:
        await until(link, "settled")
    assert [text for role, text in bench.requests[-1]["messages"]] == ["Do it", "one", "And more?"]
    found = await bench.evidence(second)
    assert found.text == "two"
    assert found.usage == {"input": 100, "output": 10, "costUsd": 0.01}, "R-242: of this generation only"


async def test_r222_a_tool_that_was_cut_for_good_is_not_taken_up_by_the_next_generation(tmp_path: Path) -> None:
    slow = {"call": "bash", "args": {"command": "echo x >> count; sleep 60; echo y >> count"}}
    bench = Bench(tmp_path, {"a": [slow, {"say": "looked"}]})
    first = bench.launch()
    async with bench.host(first) as link:
        await until(link, "tool")
        async with asyncio.timeout(10):
            while not (bench.work / "count").exists():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await link.deliver("f1", "follow-up", "Left over")
    assert (await bench.evidence(first)).unfinished == ["bash"]
    assert (await bench.evidence(first)).taken == [], "it only waits for its place"
    second = bench.launch(generation=2, task="And now?")
    async with bench.host(second) as link:
        await until(link, "settled")
    assert (bench.work / "count").read_text() == "x\n"
    assert len(bench.requests) == 2, "the older run asks for nothing more"
    users = [text for role, text in bench.requests[-1]["messages"] if role == "user"]
    assert users == ["Do it", "And now?"], "R-135: its orchestrator has it, and puts it into the opening"
    assert (await bench.evidence(second)).text == "looked"


async def test_a_question_of_an_ended_generation_is_closed_and_holds_up_no_other(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"a": [ASK, ASK, {"say": "fine"}]})
    first = bench.launch()
    async with bench.host(first) as link:
        old = await until(link, "question")
    second = bench.launch(generation=2, task="Go on without")
    async with bench.host(second) as link:
        new = await until(link, "question")
        assert new.qid != old.qid, "another generation asks for itself"
        assert new.rev == 1
        assert await link.answer("a1", old.qid, 1, "red") == "closed"
        assert (await bench.evidence(first)).question is None
        assert await link.answer("a2", new.qid, 1, "blue") == "delivered"
        await until(link, "settled")
    results = [text for role, text in bench.requests[-1]["messages"] if role == "tool_result"]
    assert results[-1] == "blue"


async def test_r242_a_budget_counts_from_the_generations_beginning(tmp_path: Path) -> None:
    look = {"call": "bash", "args": {"command": "true"}}
    bench = Bench(tmp_path, {"a": [look, {"say": "one"}, look, look, look]})
    first = bench.launch(budget={"tokens": 1000})
    async with bench.host(first) as link:
        await until(link, "settled")
    assert (await bench.evidence(first)).text == "one"
    second = bench.launch(generation=2, task="More", budget={"tokens": 150})
    async with bench.host(second) as link:
        await until(link, "settled")
    found = await bench.evidence(second)
    assert found.budget_reached
    assert found.usage == {"input": 200, "output": 20, "costUsd": 0.02}, "the request in flight is the overshoot"
    assert len(bench.requests) == 4


async def test_r240_a_budget_that_was_reached_holds_after_a_restart_too(tmp_path: Path) -> None:
    look = {"call": "bash", "args": {"command": "true"}}
    bench = Bench(tmp_path, {"a": [look] * 9})
    for attempt in (1, 2):
        launch = bench.launch(attempt, budget={"costUsd": 0.005})
        async with bench.host(launch) as link:
            await until(link, "settled")
        assert (await bench.evidence(launch)).budget_reached
        assert len(bench.requests) == 1
