"""The host process: one execution of a call, driven over its socket."""

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import pytest

from perdure.subagents.host.link import HostRefused
from perdure.subagents.protocol import News
from tests.subagents.hosting import Bench, until

pytestmark = pytest.mark.slow


async def test_a_task_runs_to_its_settlement_and_the_evidence_says_so(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"a": [{"call": "bash", "args": {"command": "echo hi > out"}}, {"say": "done"}]})
    launch, seen = bench.launch(), list[News]()
    async with bench.host(launch) as link:
        await until(link, "settled", seen)
        evidence = await bench.evidence(launch)
    assert (evidence.marker, evidence.task_taken, evidence.settled, evidence.text) == (True, True, True, "done")
    assert evidence.usage["output"] > 0
    assert (bench.work / "out").read_text() == "hi\n"
    whats = [news.what for news in seen]
    assert [what for what in whats if what in ("request", "answer")] == ["request", "answer"] * 2
    assert whats.index("answer") < whats.index("tool") < whats.index("tool-end")
    assert bench.requests[0]["messages"][-1] == ["user", "Do it"]
    assert "P." in bench.requests[0]["system"]


async def test_r002_a_host_that_is_not_current_leaves_the_session_untouched(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"a": [{"say": "done"}]})
    launch = bench.launch()
    async with bench.host(launch) as link:
        await until(link, "settled")
        await link.close_host()
        bench.processes[0].wait(10)
    store = bench.root.call_store(launch.wid, launch.key)
    before = hashlib.sha256(store.read_bytes()).hexdigest()
    stale = bench.launch(7)
    process = bench.start(stale)
    link = await bench.connect(stale)
    assert await link.begin(stale, "another nonce") == "not mine"
    assert process.wait(10) == 0
    await link.disconnect()
    assert hashlib.sha256(store.read_bytes()).hexdigest() == before
    assert len(bench.requests) == 1


async def test_r001_one_process_owns_the_session(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"a": [{"say": "done", "hold": 30}]})
    first, second = bench.launch(), bench.launch(2)
    async with bench.host(first) as link:
        await until(link, "request")
        bench.start(second)
        other = await bench.connect(second)
        with pytest.raises(HostRefused) as refused:
            await other.begin(second, "n1")
        assert refused.value.code_of_it == "storage_in_use"
        await other.disconnect()


async def test_r005_the_task_is_handed_over_once_however_often_it_begins(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"a": [{"say": "done", "hold": 30, "once": {"say": "never", "hold": 30}}]})
    async with bench.host(bench.launch()):
        await bench.asked(1)
    bench.script({"a": [{"say": "done"}]})
    launch = bench.launch(2)
    async with bench.host(launch) as link:
        await until(link, "settled")
    users = [text for role, text in bench.requests[-1]["messages"] if role == "user"]
    assert users.count("Do it") == 1
    assert users == ["Do it"], "nothing had happened that it would have to know of"
    assert (await bench.evidence(launch)).text == "done"


async def test_r006_a_cut_tool_is_named_and_an_unsafe_one_is_not_run_again(tmp_path: Path) -> None:
    slow = {"call": "bash", "args": {"command": "echo x >> count; sleep 60"}}
    bench = Bench(tmp_path, {"a": [slow, {"say": "looked"}]})
    first = bench.launch()
    async with bench.host(first) as link:
        await until(link, "tool")
        async with asyncio.timeout(10):
            while not (bench.work / "count").exists():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert (await bench.evidence(first)).unfinished == ["bash"]
    launch = bench.launch(2)
    async with bench.host(launch) as link:
        await until(link, "settled")
    assert (bench.work / "count").read_text() == "x\n"
    users = [text for role, text in bench.requests[-1]["messages"] if role == "user"]
    assert any("not known whether they took effect: bash" in text for text in users), users


async def test_r004_a_steer_delivered_twice_is_there_once_and_comes_between_rounds(tmp_path: Path) -> None:
    slow = {"call": "bash", "args": {"command": "sleep 0.5"}}
    bench = Bench(tmp_path, {"a": [slow, {"say": "done"}]})
    async with bench.host(bench.launch()) as link:
        await until(link, "tool")
        for _ in range(2):
            assert await link.deliver("s1", "steer", "Mind the gap") == "taken"
        await until(link, "settled")
    roles = [role for role, text in bench.requests[-1]["messages"]]
    texts = [text for role, text in bench.requests[-1]["messages"]]
    assert texts.count("Mind the gap") == 1
    assert roles[-2:] == ["tool_result", "user"]


async def test_r134_a_follow_up_is_taken_when_the_run_would_end(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"a": [{"say": "one", "hold": 0.5}, {"say": "two"}]})
    launch = bench.launch()
    async with bench.host(launch) as link:
        await until(link, "request")
        await link.deliver("f1", "follow-up", "And more")
        await until(link, "settled")
    assert [text for role, text in bench.requests[-1]["messages"]][-2:] == ["one", "And more"]
    assert (await bench.evidence(launch)).text == "two"


async def test_r180_a_question_parks_survives_the_process_and_is_answered_once(tmp_path: Path) -> None:
    ask = {"call": "ask", "args": {"question": "Which color?"}}
    bench = Bench(tmp_path, {"a": [ask, {"say": "blue it is"}]})
    first = bench.launch()
    async with bench.host(first) as link:
        question = await until(link, "question")
        assert (question.rev, question.text) == (1, "Which color?")
        await until(link, "parked")
        evidence = await bench.evidence(first)
        assert evidence.question is not None
        assert evidence.question["qid"] == question.qid
        assert evidence.unfinished == []
        await link.close_host()
        bench.processes[0].wait(10)
    launch = bench.launch(2)
    async with bench.host(launch) as link:
        again = await until(link, "question")
        assert (again.qid, again.rev) == (question.qid, 1), "asked once"
        assert await link.answer("a1", question.qid, 1, "blue") == "delivered"
        assert await link.answer("a1", question.qid, 1, "blue") == "delivered", "a repetition changes nothing"
        assert await link.answer("a2", question.qid, 1, "red") == "closed"
        await until(link, "settled")
    messages = bench.requests[-1]["messages"]
    results = [text for role, text in messages if role == "tool_result"]
    assert [text.split("\n\n")[0] for text in results] == ["blue"]
    assert "processes your tools had started" in results[0], "R-006: the asker is told, too"
    assert [role for role, text in messages].count("user") == 1, "no word of an interruption: there was none"
    assert len(bench.requests) == 2


async def test_r127_a_steer_interrupts_the_question_which_stays_open_and_is_asked_again_as_rev_two(
    tmp_path: Path,
) -> None:
    ask = {"call": "ask", "args": {"question": "Which color?"}}
    bench = Bench(tmp_path, {"a": [ask, ask, {"say": "fine"}]})
    async with bench.host(bench.launch()) as link:
        question = await until(link, "question")
        assert await link.deliver("s1", "steer", "Use the logo's") == "interrupted"
        assert await link.deliver("s1", "steer", "Use the logo's") == "interrupted"
        again = await until(link, "question")
        assert (again.qid, again.rev) == (question.qid, 2)
        assert await link.answer("a1", again.qid, 2, "blue") == "delivered"
        await until(link, "settled")
    results = [text for role, text in bench.requests[-1]["messages"] if role == "tool_result"]
    assert "Message: Use the logo's" in results[0]
    assert "Which color?" in results[0]
    assert results[1] == "blue"


async def test_r181_one_question_at_a_time(tmp_path: Path) -> None:
    two = [{"call": "ask", "args": {"question": "One?"}}, {"call": "ask", "args": {"question": "Two?"}}]
    bench = Bench(tmp_path, {"a": [two, {"say": "fine"}]})
    async with bench.host(bench.launch()) as link:
        question = await until(link, "question")
        await link.answer("a1", question.qid, 1, "yes")
        await until(link, "settled")
    results = [text for role, text in bench.requests[-1]["messages"] if role == "tool_result"]
    assert sorted(text.startswith("a question is open already") for text in results) == [False, True]


async def test_r310_a_report_is_checked_and_ends_the_run(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    wrong = {"call": "report", "args": {"outcome": "ok", "data": {"n": "1"}}}
    right = {"call": "report", "args": {"outcome": "ok", "summary": "counted", "data": {"n": 1}}}
    bench = Bench(tmp_path, {"a": [wrong, right, {"say": "never said"}]})
    launch = bench.launch(schema=schema)
    async with bench.host(launch) as link:
        await until(link, "settled")
        evidence = await bench.evidence(launch)
    assert evidence.report == {"outcome": "ok", "summary": "counted", "data": {"n": 1}}
    assert len(bench.requests) == 2
    results = [text for role, text in bench.requests[-1]["messages"] if role == "tool_result"]
    assert "/data/n: string where integer is wanted" in results[0]


async def test_r009_no_request_goes_to_a_model_without_a_slot_also_after_a_resume(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"a": [{"say": "never", "hold": 30}]})
    async with bench.host(bench.launch()):
        await bench.asked(1)
    bench.script({"a": [{"say": "done"}]})
    async with bench.host(bench.launch(2, model="other:two")) as link:
        await until(link, "settled")
    assert [request["model"] for request in bench.requests] == ["test:one", "other:two"]


async def test_r240_a_budget_ends_the_run_with_a_stored_receipt(tmp_path: Path) -> None:
    look = {"call": "bash", "args": {"command": "true"}}
    bench = Bench(tmp_path, {"a": [look] * 50})
    launch = bench.launch(budget={"tokens": 1})
    async with bench.host(launch) as link:
        await until(link, "settled")
        evidence = await bench.evidence(launch)
    assert evidence.budget_reached
    assert len(bench.requests) == 1


@pytest.mark.parametrize(
    ("tools", "expected"),
    [([], ["ask"]), (["read"], ["ask", "read"]), (None, ["ask", "bash", "edit", "read", "write"])],
)
async def test_r037_r038_the_tools_are_those_of_the_list_and_the_protocols(
    tmp_path: Path, tools: list[str] | None, expected: list[str]
) -> None:
    bench = Bench(tmp_path, {"a": [{"say": "done"}]})
    async with bench.host(bench.launch(tools=tools)) as link:
        await until(link, "settled")
    assert sorted(bench.requests[0]["tools"]) == expected


async def test_r038_a_tool_that_is_not_there_fails_the_launch_before_any_request(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"a": [{"say": "done"}]})
    launch = bench.launch(tools=["read", "teleport"])
    bench.start(launch)
    link = await bench.connect(launch)
    with pytest.raises(HostRefused, match="no such tool: teleport"):
        await link.begin(launch, "n1")
    await link.disconnect()
    bench.kill()
    assert bench.requests == []


async def test_r013_tools_know_their_call_and_find_the_command_and_no_parent_session(tmp_path: Path) -> None:
    show = {
        "call": "bash",
        "args": {"command": "echo $PERDURE_CALL $PERDURE_EXEC $PERDURE_HOME [$PERDURE_SESSION] $PATH"},
    }
    bench = Bench(tmp_path, {"a": [show, {"say": "done"}]})
    launch = bench.launch()
    async with bench.host(launch) as link:
        await until(link, "settled")
    shown: Any = next(text for role, text in bench.requests[-1]["messages"] if role == "tool_result")
    assert f"{launch.wid}/a {launch.exec} {bench.root.path} [] {bench.root.bin}:" in shown


async def test_an_empty_answer_settles_without_a_text(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"a": [{"say": ""}]})
    launch = bench.launch()
    async with bench.host(launch) as link:
        await until(link, "settled")
        evidence = await bench.evidence(launch)
    assert evidence.settled
    assert evidence.text == ""
