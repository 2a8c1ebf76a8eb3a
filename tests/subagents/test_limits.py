"""Timeouts, budgets, slots, gates, outputs, reports, once."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.subagents.place import Place

pytestmark = pytest.mark.slow
Make = Callable[..., Place]


async def test_r233_a_silent_tool_runs_into_its_timeout(place: Make) -> None:
    here = place({"a": [{"call": "bash", "args": {"command": "while :; do :; done"}}, {"say": "never"}]})
    await here.single("job", timeoutMs=700)
    (call,) = (await here.sealed("job"))["calls"]
    assert call["status"] == "timeout"
    assert len(here.requests) == 1


async def test_t14_waiting_for_an_answer_takes_no_active_time_and_no_slot(place: Make) -> None:
    ask = {"call": "ask", "args": {"question": "Now?"}}
    slow = {"call": "bash", "args": {"command": "sleep 1"}}
    here = place(
        {"a": [ask, slow, {"say": "done"}], "b": [{"say": "meanwhile"}]},
        k={"hibernateMs": 0}, providers={"test": {"slots": 1}},
    )  # fmt: skip
    await here.single("first", timeoutMs=2500)
    await here.until("first", lambda found: bool(found["calls"] and found["calls"][0].get("hibernated")))
    await here.single("second", key="b")
    assert (await here.sealed("second"))["calls"][0]["output"] == "meanwhile"
    await asyncio.sleep(2.0)
    here.kill_orchestrator()
    await here.gone()
    await here.client.ask("answer", {"message": "yes"})
    (call,) = (await here.sealed("first"))["calls"]
    assert call["status"] == "ok"
    assert 900 <= (await here.call((await here.described("first"))["wid"])).active_ms < 2500


async def test_r253_never_more_than_the_slots_at_a_provider(place: Make) -> None:
    here = place({"*": [{"say": "done", "hold": 0.2}]}, providers={"test": {"slots": 3}})
    await here.run("job", tasks=[{"agent": "scout", "task": str(n)} for n in range(9)])
    most = 0
    while (found := await here.described("job"))["state"] != "sealed":
        most = max(most, (await here.slots()).get("test", 0))
        waits = [call["waiting"]["reason"] for call in found["calls"] if "waiting" in call]
        assert set(waits) <= {"slot"}
        await asyncio.sleep(0.02)
    assert 1 <= most <= 3
    assert {call["status"] for call in found["calls"]} == {"ok"}


async def test_r240_a_calls_budget_seals_it_with_what_was_used(place: Make) -> None:
    here = place({"a": [{"call": "bash", "args": {"command": "true"}}] * 30})
    await here.single("job", budget={"tokens": 1})
    (call,) = (await here.sealed("job"))["calls"]
    assert call["status"] == "budget"
    assert call["usage"]["input"] + call["usage"]["output"] >= 1
    assert len(here.requests) == 1


async def test_r241_a_workflows_budget_stops_new_calls(place: Make) -> None:
    here = place({"*": [{"say": "done"}]})
    steps = [{"agent": "worker", "task": "x", "key": "one"}, {"agent": "worker", "task": "y", "key": "two"}]
    await here.run("job", chain=steps, usageBudget={"tokens": 1})
    found = await here.sealed("job")
    assert [result["status"] for result in found["result"]] == ["ok", "failed"]
    assert found["calls"][1]["error"] == "workflow budget reached"
    assert len(here.requests) == 1


async def test_r300_a_gate_judges_the_result_once_and_its_json_is_part_of_the_data(place: Make) -> None:
    here = place({"*": [{"say": "the result"}]})
    good = {
        "command": 'echo x >> gates; grep -q "the result" "$PERDURE_OUTPUT" && echo \'{"fine": true}\'',
        "output": "json",
    }
    steps = [
        {"agent": "worker", "task": "x", "key": "good", "gate": good},
        {"agent": "worker", "task": "x", "key": "bad", "gate": "echo not good enough; exit 3"},
    ]
    await here.run("job", tasks=steps)
    found = await here.sealed("job")
    passed, failed = found["calls"]
    assert (passed["status"], passed["data"]) == ("ok", {"gate": {"fine": True}})
    assert (failed["status"], failed["error"]) == ("gate-failed", "the gate ended with 3: not good enough")
    assert (here.work / "gates").read_text() == "x\n"


async def test_r310_a_schema_asks_for_a_report_and_gives_its_data(place: Make) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    here = place({"a": [{"call": "report", "args": {"outcome": "ok", "summary": "counted", "data": {"n": 3}}}]})
    await here.single("job", schema=schema)
    (call,) = (await here.sealed("job"))["calls"]
    assert (call["status"], call["data"], call["output"]) == ("ok", {"n": 3}, "counted")


async def test_r311_r314_text_alone_does_not_satisfy_a_schema(place: Make) -> None:
    here = place({"a": [{"say": "just words"}]})
    await here.single("job", schema={"type": "object"})
    (call,) = (await here.sealed("job"))["calls"]
    assert call["status"] == "failed"
    assert "it never reported" in call["error"]


async def test_r312_a_report_of_failure_fails_with_its_data(place: Make) -> None:
    report = {"call": "report", "args": {"outcome": "failed", "summary": "no way", "data": {"why": "x"}}}
    here = place({"a": [report]})
    await here.single("job", schema={"type": "object"})
    (call,) = (await here.sealed("job"))["calls"]
    assert (call["status"], call["data"], call["error"]) == ("failed", {"why": "x"}, "no way")


async def test_r320_an_output_is_an_artifact_with_a_pointer_to_the_latest(place: Make) -> None:
    here = place({"a": [{"say": "the text"}]})
    wid = await here.single("job", output="notes/out.md")
    (call,) = (await here.sealed("job"))["calls"]
    (path,) = call["artifacts"]
    assert Path(path).read_text() == "the text"  # noqa: ASYNC240
    assert (here.root.artifacts(wid) / "a-latest").read_text() == "the text"


async def test_r321_a_file_that_somebody_wrote_is_left_alone(place: Make) -> None:
    here = place({"a": [{"say": "ours"}], "b": [{"say": "ours"}]})
    mine, fresh = here.work / "mine.md", here.work / "fresh.md"
    mine.write_text("theirs")
    steps = [
        {"agent": "worker", "task": "x", "key": "a", "output": str(mine)},
        {"agent": "worker", "task": "x", "key": "b", "output": str(fresh)},
    ]
    await here.run("job", tasks=steps)
    kept, written = (await here.sealed("job"))["calls"]
    assert "artifacts" not in kept
    assert mine.read_text() == "theirs"
    assert written["artifacts"] == [str(fresh)]


async def test_r220_a_cut_once_call_is_unknown_and_never_run_again(place: Make) -> None:
    here = place({"a": [{"call": "bash", "args": {"command": "echo x >> marker; sleep 60"}}, {"say": "never"}]})
    await here.single("job", once=True)
    async with asyncio.timeout(20):
        while not (here.work / "marker").exists():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    here.kill_hosts()
    (found,) = (await here.sealed("job"))["calls"]
    assert found["status"] == "unknown"
    assert "bash" in found["error"]
    assert (here.work / "marker").read_text() == "x\n"


@pytest.mark.parametrize(
    ("error", "status"),
    [("402 payment required", "failed"), ("blocked by the content filter", "failed")],
)
async def test_r255_errors_that_stand_fail_at_once(place: Make, error: str, status: str) -> None:
    here = place({"a": [{"fail": error, "kind": "fatal"}]})
    await here.single("job")
    (call,) = (await here.sealed("job"))["calls"]
    assert (call["status"], call.get("losses", 0)) == (status, 0)
    assert error in call["error"]
