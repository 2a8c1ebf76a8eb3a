"""Questions, hibernation, and what a once call is."""

import asyncio
import os
import time
from collections.abc import Callable
from typing import Any

import pytest

from perdure.env.containment import end_marked
from perdure.subagents import processes, rows, starter
from perdure.subagents.client import reading
from perdure.subagents.engine import recovery
from perdure.subagents.engine.judge import judge
from perdure.subagents.orchestrator import Orchestrator
from perdure.subagents.protocol import Evidence
from perdure.subagents.state import ExecutionDoc
from tests.subagents.place import Place

pytestmark = pytest.mark.slow
Make = Callable[..., Place]
ASK = {"call": "ask", "args": {"question": "Which color?"}}
OPEN = {"qid": "q", "rev": 1, "text": "?", "task": 1}
K = {"hibernateMs": 0, "idleExitMs": 60_000}


async def hibernated(at: Place, request: str, **more: Any) -> str:
    wid = await at.single(request, **more)
    await at.until(request, lambda found: bool(found["calls"]) and found["calls"][0].get("hibernated"))
    return wid


async def test_r187_r189_stop_time_and_budget_act_on_a_sleeping_call_without_waking_it(place: Make) -> None:
    at = place({"*": [ASK, {"say": "blue"}], "spends": [{"say": "x", "usage": {"input": 500, "output": 500}}]}, k=K)
    stopped = await hibernated(at, "one", key="a")
    kept = await hibernated(at, "two", key="b", timeoutMs=60_000)
    budget = await at.run(
        "three", usageBudget={"tokens": 900},
        tasks=[
            {"agent": "worker", "task": "x", "key": "asks"},
            {"agent": "worker", "task": "x", "key": "spends"},
        ],
    )  # fmt: skip
    assert budget.state == "applied"
    asked = len(at.requests)
    question = (await at.described("two"))["calls"][0]["question"]
    at.kill_orchestrator()
    await at.gone()
    await starter.ensure(at.root)
    again = (await at.described("two"))["calls"][0]["question"]
    assert (again["qid"], again["rev"], again["answered"]) == (question["qid"], question["rev"], False)
    assert (await at.client.ask("stop", {"to": f"{stopped}/a"}, wait=30)).state == "applied"
    assert (await at.sealed("one"))["calls"][0]["status"] == "stopped"
    assert [one["key"] for one in at.requests[asked:]].count("a") == 0
    found = await at.sealed("three")
    ended = {call["key"]: (call["status"], call.get("error")) for call in found["calls"]}
    assert ended["asks"] == ("failed", "workflow budget reached")
    assert (await at.call(kept, "b")).hibernated
    assert (await at.client.ask("answer", {"to": f"{kept}/b", "message": "blue"}, wait=30)).state == "applied"
    assert (await at.sealed("two"))["calls"][0]["status"] == "ok"


async def test_r188_b047_a_model_sent_to_a_sleeping_asker_is_what_its_next_execution_asks(place: Make) -> None:
    at = place({"*": [ASK, {"say": "blue"}]}, k=K)
    wid = await hibernated(at, "job")
    switched = await at.client.ask("model", {"to": f"{wid}/a", "model": "other/two"}, wait=30)
    assert switched.state == "applied"
    assert switched.reply["effect"] == "next-execution"
    assert (await at.call(wid)).hibernated, "it is not woken"
    await at.client.ask("answer", {"message": "blue"}, wait=30)
    await at.sealed("job")
    assert [one["provider"] for one in at.requests] == ["test", "other"]


async def test_r186_a_tool_beside_the_question_makes_the_cut_an_interruption(place: Make) -> None:
    both = [ASK, {"call": "bash", "args": {"command": "echo begun >> marks; sleep 30"}}]
    at = place({"*": [both, {"say": "blue"}]})
    plain, once = await at.single("plain", key="a"), await at.single("once", key="b", once=True)
    async with asyncio.timeout(30):
        while marks(at) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    for wid, key in ((plain, "a"), (once, "b")):
        await at.kill_host(wid, key)
    assert (await at.sealed("once"))["calls"][0]["status"] == "unknown"
    await at.until("plain", lambda found: found["calls"][0]["phase"] == "asking")
    assert marks(at) == 2, "the command is not run again"
    await at.client.ask("answer", {"to": f"{plain}/a", "message": "blue"}, wait=30)
    assert (await at.sealed("plain"))["calls"][0]["status"] == "ok"


def marks(at: Place) -> int:
    path = at.work / "marks"
    return path.read_text().count("begun") if path.exists() else 0


async def test_r221_r222_a_once_call_that_was_cut_between_its_tools_goes_on(place: Make) -> None:
    touch = {"call": "bash", "args": {"command": "echo begun >> marks"}}
    at = place({"a": [touch, {"say": "done", "first": [{"say": "never", "hold": 30}]}, {"say": "more"}]})
    wid = await at.single("job", once=True)
    await at.asked(2)
    await at.kill_host(wid)
    call = (await at.sealed("job"))["calls"][0]
    assert (call["status"], call["output"]) == ("ok", "done")
    assert marks(at) == 1
    followed = await at.client.ask("follow-up", {"to": f"{wid}/a", "message": "More"}, wait=30)
    assert followed.reply["generation"] == 2
    await at.sealed("job")
    texts = [text for _, text in at.requests[-1]["messages"]]
    assert "done" in texts
    assert texts[-1] == "More"


async def test_r223_r006_a_tool_that_was_cut_off_is_named_to_the_model_and_not_run_again(place: Make) -> None:
    cut = {"call": "bash", "args": {"command": "echo begun >> marks; sleep 30"}}
    at = place({"a": [cut, {"say": "I see."}]})
    wid = await at.single("job")
    async with asyncio.timeout(30):
        while marks(at) < 1:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    await at.kill_host(wid)
    assert (await at.sealed("job"))["calls"][0]["status"] == "ok"
    (result,) = [text for role, text in at.requests[-1]["messages"] if role == "tool_result"]
    assert "interrupt" in result.lower() or "unknown" in result.lower()
    assert marks(at) == 1


async def test_r244_what_was_asked_again_after_a_cut_is_paid_again_and_shown(place: Make) -> None:
    slow = {"say": "done", "usage": {"input": 7, "output": 3}, "first": [{"say": "lost", "hold": 30}]}
    at = place({"a": [slow]})
    wid = await at.single("job")
    await at.asked(1)
    await at.kill_host(wid)
    call = (await at.sealed("job"))["calls"][0]
    assert len(at.requests) == 2
    assert (call["usage"]["input"], call["usage"]["output"]) == (7, 3), "what the provider told of; the other is lost"
    assert (await at.call(wid)).losses == 1


@pytest.mark.parametrize(
    ("found", "more", "expected"),
    [
        ({"report": {"outcome": "ok", "summary": "s", "data": {}}, "budget_reached": True}, {}, "budget"),
        ({"report": {"outcome": "ok", "summary": "s", "data": {}}}, {"timed_out": True}, "timeout"),
        ({"budget_reached": True}, {"timed_out": True}, "timeout"),
        ({"report": {"outcome": "ok", "summary": "s", "data": {"a": 1}}}, {}, "ok"),
        ({"report": {"outcome": "failed", "summary": "s", "data": None}}, {}, "failed"),
        ({"settled": True, "stop": "stop", "text": "done"}, {}, "ok"),
        ({"settled": True, "stop": "error", "error": "no such key", "error_code": "auth_failed"}, {}, "failed"),
        ({"unfinished": ["bash"]}, {"once": True}, "unknown"),
        ({"question": OPEN}, {}, "asking"),
        ({"question": OPEN, "unfinished": ["bash"]}, {"once": True}, "unknown"),
        ({}, {}, "again"),
        ({"settled": True, "stop": "stop", "text": ""}, {}, "again"),
        ({}, {"losses": 4}, "failed"),
    ],
)  # fmt: skip
def test_r203_r094_which_of_several_that_apply_is_the_result(
    found: dict[str, Any], more: dict[str, Any], expected: str
) -> None:
    evidence = Evidence(**{"marker": True, "task_taken": True, "settled": False, **found})
    given = {"timed_out": False, "schema": False, "once": False, "forgiven": False, "losses": 0, "launches": 1, **more}
    verdict = judge(evidence, loss_bound=5, **given)
    assert (verdict.status if verdict.outcome == "sealed" else verdict.outcome) == expected


async def test_r415_b109_what_no_task_looks_after_is_ended(place: Make) -> None:
    at = place({"*": [{"say": "x", "hold": 60}]})
    async with Orchestrator(at.root) as orchestrator:
        wid = await at.single("job")
        await at.asked(1)
        async with reading(at.root) as reader:
            assert reader is not None
            (execution,) = await rows.rows(reader, ExecutionDoc)
        assert execution.pid is not None
        orphan = execution.exec.replace("a@1", "gone@1")
        async with orchestrator.harness.session.transaction() as tx:
            execution.exec, execution.key = orphan, "gone"
            await rows.write(tx, ExecutionDoc, orphan, execution)
        process = await asyncio.create_subprocess_exec("sleep", "60", env={**os.environ, "PERDURE_EXEC": orphan})
        assert await recovery.look(orchestrator.orchestration) is False
        assert await asyncio.wait_for(process.wait(), 10) == -9
        assert await rows.read(orchestrator.harness.session, ExecutionDoc, orphan) is None
        assert (await at.call(wid)).phase == "running", "what is looked after runs on"
        await at.client.ask("stop", {"to": wid}, wait=30)


async def test_r414_b032_a_fence_does_not_grow_with_the_number_of_processes(place: Make) -> None:
    at = place({"*": [{"say": "ok"}]})
    others = [await asyncio.create_subprocess_exec("sleep", "60") for _ in range(150)]
    try:
        began = time.monotonic()
        assert await asyncio.to_thread(processes_end, "no-such-execution") == ()
        assert time.monotonic() - began < 1.0
    finally:
        for other in others:
            other.kill()
        await asyncio.gather(*(other.wait() for other in others))
    assert at.processes() == []


def processes_end(mark: str) -> tuple[str, ...]:
    return end_marked("PERDURE_EXEC", mark)


async def test_r514_r515_r517_a_restart_cuts_off_nothing_and_is_not_done_twice(place: Make) -> None:
    at = place({"*": [ASK, {"say": "blue"}], "b": [{"say": "b", "hold": 2}]}, k=K, providers={"test": {"slots": 1}})
    wid = await hibernated(at, "asks", key="a")
    await at.single("runs", key="b")
    await at.asked(2)
    await at.single("waits", key="c")
    before = starter.running(at.root)
    question = (await at.call(wid)).question
    assert before is not None
    assert question is not None
    at.kill_orchestrator(15)
    await at.gone()
    await starter.ensure(at.root)
    after = starter.running(at.root)
    assert after is not None
    assert after.pid != before.pid
    assert processes.is_running(after.pid, after.started)
    call = await at.call(wid)
    assert call.question is not None
    assert (call.question.qid, call.question.rev) == (question.qid, question.rev)
    assert (await at.sealed("runs"))["calls"][0]["status"] == "ok"
    assert len({one["exec"] for one in at.requests if one["key"] == "b"}) == 1
    await at.until("waits", lambda found: found["calls"][0]["phase"] == "asking")
    for name in ("asks", "waits"):
        key = (await at.described(name))["calls"][0]["call"]
        await at.client.ask("answer", {"to": key, "message": "blue"}, wait=30)
        await at.sealed(name)
