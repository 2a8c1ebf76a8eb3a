"""Workflows from a request to their end: the real orchestrator, real hosts, a scripted model."""

from collections.abc import Callable

import pytest

from tests.subagents.place import Place

pytestmark = pytest.mark.slow
Make = Callable[..., Place]


async def test_a_single_run_comes_to_its_result(place: Make) -> None:
    here = place({"a": [{"call": "bash", "args": {"command": "echo hi > out"}}, {"say": "It is done."}]})
    wid = await here.single("job")
    found = await here.sealed("job")
    assert found["wid"] == wid
    assert found["status"] == "done"
    (call,) = found["calls"]
    assert (call["status"], call["output"], call["gen"]) == ("ok", "It is done.", 1)
    assert call["usage"]["output"] > 0
    assert (here.work / "out").read_text() == "hi\n"
    assert len(here.requests) == 2


async def test_r054_a_chain_hands_the_whole_output_on_as_it_is(place: Make) -> None:
    odd = "a $& b {previous} c\\1"
    here = place({"one": [{"say": odd}], "two": [{"say": "second"}]})
    chain = [
        {"agent": "worker", "task": "First", "key": "one"},
        {"agent": "reviewer", "task": "See: {previous} / {previous}", "key": "two"},
    ]
    outcome = await here.run("job", chain=chain)
    found = await here.sealed("job")
    assert [result["output"] for result in found["result"]] == [odd, "second"]
    assert here.requests[-1]["messages"][-1] == ["user", f"See: {odd} / {odd}"]
    assert outcome.created


async def test_r055_a_failed_step_ends_the_chain_and_the_rest_is_skipped(place: Make) -> None:
    here = place({"two": [{"say": ""}], "*": [{"say": "fine"}]})
    steps = [{"agent": "worker", "task": str(n), "key": key} for n, key in enumerate(("one", "two", "three"))]
    await here.run("job", chain=steps)
    found = await here.sealed("job")
    assert found["status"] == "done"
    assert [result["status"] for result in found["result"]] == ["ok", "failed", "skipped"]
    assert found["skipped"] == ["three"]
    assert found["calls"][1]["error"].startswith("lost ×5")
    assert sum(request["key"] == "three" for request in here.requests) == 0


async def test_tasks_run_side_by_side_and_results_come_in_the_order_of_the_steps(place: Make) -> None:
    here = place({"tasks:0": [{"say": "slow", "hold": 1.0}], "tasks:1": [{"say": "quick"}]})
    await here.run("job", tasks=[{"agent": "worker", "task": "x"}, {"agent": "scout", "task": "y"}])
    found = await here.sealed("job")
    assert [result["output"] for result in found["result"]] == ["slow", "quick"]


async def test_r096_a_dropped_stream_continues_the_same_session_and_keeps_finished_tools(place: Make) -> None:
    count = {"call": "bash", "args": {"command": "echo x >> count; echo counted"}}
    here = place({"a": [count, {"say": "done", "once": {"fail": "the stream was dropped", "kind": "fatal"}}]})
    await here.single("job")
    found = await here.sealed("job")
    assert found["calls"][0]["status"] == "ok"
    assert (here.work / "count").read_text() == "x\n"
    results = [text for role, text in here.requests[-1]["messages"] if role == "tool_result"]
    assert len(results) == 1


async def test_r096_four_empty_answers_are_losses_and_the_fifth_fails(place: Make) -> None:
    here = place({"a": [{"say": ""}]})
    await here.single("job")
    (call,) = (await here.sealed("job"))["calls"]
    assert (call["status"], call["losses"]) == ("failed", 5)


async def test_r441_a_retry_gets_the_first_outcome_and_starts_nothing(place: Make) -> None:
    here = place({"a": [{"say": "done"}]})
    first = await here.run("job", agent="worker", task="Do it", key="a")
    await here.sealed("job")
    again = await here.run("job", agent="worker", task="Do it", key="a")
    other = await here.run("job", agent="worker", task="Do another", key="a")
    assert (again.state, again.reply["wid"], again.created) == ("applied", first.reply["wid"], False)
    assert (other.state, other.digest) == ("conflict", first.digest)
    assert len(here.requests) == 1


async def test_r053_an_unknown_agent_is_refused_with_those_there_are(place: Make) -> None:
    here = place({})
    outcome = await here.run("job", agent="nobody", task="x")
    assert outcome.state == "rejected"
    assert "unknown agent 'nobody'; there are: delegate, evidence-auditor" in outcome.reply["reason"]
    assert (await here.described("job"))["state"] == "rejected"


async def test_the_orchestrator_ends_by_itself_when_nothing_is_left(place: Make) -> None:
    here = place({"a": [{"say": "done"}]}, k={"idleExitMs": 300})
    await here.single("job")
    await here.sealed("job")
    await here.gone()
    assert (await here.described("job"))["state"] == "sealed", "reading starts nothing"
