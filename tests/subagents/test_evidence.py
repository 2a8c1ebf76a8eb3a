"""Evidence: what a call's session says, also while its host lives, and whatever ended it."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.subagents.hosting import Bench, until

pytestmark = pytest.mark.slow
LOOK = {"call": "bash", "args": {"command": "true"}}
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


async def test_where_there_is_no_session_nothing_is_said(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {})
    found = await bench.evidence(bench.launch())
    assert (found.marker, found.task_taken, found.settled, found.usage) == (False, False, False, {})


async def test_it_is_read_while_the_host_works_and_disturbs_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"a": [LOOK, {"say": "a long answer", "between": 0.3}]})
    launch = bench.launch()
    async with bench.host(launch) as link:
        await bench.asked(2)
        found = await bench.evidence(launch)
        assert (found.marker, found.task_taken, found.settled, found.text) == (True, True, False, "")
        assert found.stop == "tool_calls"
        assert found.usage["output"] == 10
        await until(link, "settled")
        found = await bench.evidence(launch)
    assert (found.settled, found.text, found.model) == (True, "a long answer", "test:one")


@pytest.mark.parametrize(
    ("turn", "error", "code"),
    [
        ({"fail": "402 payment required", "kind": "fatal"}, "402 payment required", "model_error"),
        ({"fail": "not today", "kind": "refused_by_provider"}, "not today", "refused_by_provider"),
        ({"say": "I will not", "stop": "refusal"}, "I will not", "refused"),
        ({"say": "and so on and", "stop": "length"}, "the model reached its output limit", "length"),
        ({"say": " "}, "the answer was empty", "empty"),
    ],
)
async def test_r095_r255_what_is_no_answer_says_why(tmp_path: Path, turn: Any, error: str, code: str) -> None:
    bench = Bench(tmp_path, {"a": [LOOK, turn]})
    launch = bench.launch()
    async with bench.host(launch) as link:
        await until(link, "settled")
    found = await bench.evidence(launch)
    assert (found.settled, found.text, found.error_code) == (True, "", code)
    assert error in (found.error or "")


async def test_r095_a_text_beside_a_call_is_no_result(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"a": [[{"call": "bash", "args": {"command": "sleep 30"}}]]})
    launch = bench.launch()
    async with bench.host(launch) as link:
        await until(link, "tool")
    found = await bench.evidence(launch)
    assert (found.settled, found.text) == (False, "")


async def test_a_stream_that_breaks_off_after_a_round_of_tools_is_asked_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"a": [LOOK, {"say": "whole and well", "first": [{"say": "whole and", "cut": 1}]}]})
    launch, seen = bench.launch(), list[Any]()
    async with bench.host(launch) as link:
        await until(link, "settled", seen)
    assert [(news.stop, news.code) for news in seen if news.what == "answer"] == [
        ("tool_calls", ""), ("error", "cut_off"), ("stop", ""),
    ]  # fmt: skip
    assert any(news.what == "retry" for news in seen)
    found = await bench.evidence(launch)
    assert found.text == "whole and well"
    assert found.error is None


async def test_r003_a_report_counts_for_the_execution_that_made_it(tmp_path: Path) -> None:
    report = {"call": "report", "args": {"outcome": "failed", "summary": "no luck", "data": {"n": 1}}}
    bench = Bench(tmp_path, {"a": [report, report, {"say": "never"}]})
    first, second = bench.launch(schema=SCHEMA), bench.launch(2, schema=SCHEMA)
    async with bench.host(first) as link:
        await until(link, "settled")
        assert await link.deliver("s1", "steer", "Too late") == "held", "R-313"
    assert (await bench.evidence(first)).report == {"outcome": "failed", "summary": "no luck", "data": {"n": 1}}
    assert (await bench.evidence(second)).report is None
    async with bench.host(second) as link:
        await until(link, "settled")
    assert (await bench.evidence(second)).report is not None
    assert all("s1" not in text for text in (await bench.evidence(second)).taken)


async def test_r313_what_was_queued_before_a_report_makes_no_further_request(tmp_path: Path) -> None:
    slow = {"call": "bash", "args": {"command": "sleep 0.4"}}
    report = {"call": "report", "args": {"outcome": "ok", "data": {"n": 1}}}
    bench = Bench(tmp_path, {"a": [slow, report, {"say": "never"}]})
    launch = bench.launch(schema=SCHEMA)
    async with bench.host(launch) as link:
        await until(link, "tool")
        await link.deliver("f1", "follow-up", "And then?")
        await until(link, "settled")
    assert len(bench.requests) == 2


async def test_r314_it_is_kept_why_a_report_was_refused(tmp_path: Path) -> None:
    wrong = {"call": "report", "args": {"outcome": "ok", "data": {"n": "one"}}}
    bench = Bench(tmp_path, {"a": [wrong, {"say": "I give up"}]})
    launch = bench.launch(schema=SCHEMA)
    async with bench.host(launch) as link:
        await until(link, "settled")
    found = await bench.evidence(launch)
    assert found.report is None
    assert "/data/n" in (found.report_rejected or "")


async def test_r125_took_is_told_and_kept_when_a_message_has_its_place(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"a": [{"call": "bash", "args": {"command": "sleep 0.5"}}, {"say": "done"}]})
    launch = bench.launch()
    async with bench.host(launch) as link:
        await until(link, "tool")
        await link.deliver("s1", "steer", "Mind the gap")
        assert (await bench.evidence(launch)).taken == []
        assert (await until(link, "took")).request == "s1"
        assert (await bench.evidence(launch)).taken == ["s1"]
        await until(link, "settled")


async def test_r008_messages_keep_their_order_and_join_one_run(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"a": [{"call": "bash", "args": {"command": "sleep 0.5"}}, {"say": "done"}]})
    async with bench.host(bench.launch()) as link:
        await until(link, "tool")
        for number in range(3):
            await link.deliver(f"s{number}", "steer", f"Step {number}")
        await until(link, "settled")
    texts = [text for role, text in bench.requests[-1]["messages"]]
    assert texts[-3:] == ["Step 0", "Step 1", "Step 2"]
    assert len(bench.requests) == 2


async def test_r014_an_entry_that_cannot_be_read_is_named_and_hides_no_other(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"a": [LOOK, {"say": "done"}]})
    launch = bench.launch()
    async with bench.host(launch) as link:
        await until(link, "settled")
        await link.close_host()
        bench.processes[0].wait(10)
    store = sqlite3.connect(bench.root.call_store(launch.wid, launch.key))
    (number,) = store.execute("SELECT max(id) FROM entry").fetchone()
    store.execute("UPDATE entry SET messages = ? WHERE id = ?", (b'[{"torn', number))
    store.commit()
    store.close()
    found = await bench.evidence(launch)
    assert found.damaged == [number]
    assert (found.settled, found.text, found.stop) == (True, "", "tool_calls")


async def test_r010_news_hold_no_arguments_results_or_texts(tmp_path: Path) -> None:
    secret = {"call": "bash", "args": {"command": "echo hush-1; sleep 0.2"}}
    bench = Bench(tmp_path, {"a": [secret, {"say": "hush-2"}]})
    seen: list[Any] = []
    async with bench.host(bench.launch()) as link:
        await until(link, "settled", seen)
    assert "hush" not in repr(seen)
