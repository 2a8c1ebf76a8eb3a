"""Sends, questions, stops: what reaches a call, and when."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.subagents.place import Place

pytestmark = pytest.mark.slow
Make = Callable[..., Place]
ASK = {"call": "ask", "args": {"question": "Which color?"}}


def tool_results(here: Place) -> list[str]:
    return [text for role, text in here.requests[-1]["messages"] if role == "tool_result"]


def users(here: Place) -> list[str]:
    return [text for role, text in here.requests[-1]["messages"] if role == "user"]


async def send(here: Place, kind: Any, to: str, message: str = "", request: str | None = None, **more: Any) -> Any:
    body = {"to": to, **({"message": message} if message else {}), **more}
    return await here.client.ask(kind, {name: value for name, value in body.items() if value != ""}, request=request)


async def test_r125_a_steer_reaches_a_running_call_between_its_rounds(place: Make) -> None:
    here = place({"a": [{"call": "bash", "args": {"command": "sleep 1"}}, {"say": "done"}]})
    wid = await here.single("job")
    await here.asked(1)
    steered = await send(here, "steer", f"{wid}/a", "Mind the gap", "s1")
    assert (steered.state, steered.reply["delivery"]) == ("applied", "pending")
    await here.sealed("job")
    assert users(here) == ["Do it", "Mind the gap"]


async def test_r126_a_steer_to_a_sealed_call_is_refused_with_what_works(place: Make) -> None:
    here = place({"a": [{"say": "done"}]})
    wid = await here.single("job")
    await here.sealed("job")
    outcome = await send(here, "steer", f"{wid}/a", "more")
    assert outcome.state == "rejected"
    assert "follow-up" in outcome.reply["reason"]
    assert outcome.reply["status"] == "ok"


async def test_r133_a_follow_up_opens_the_next_generation_of_the_same_conversation(place: Make) -> None:
    here = place({"a": [{"say": "one"}, {"say": "two"}]})
    wid = await here.single("job")
    await here.sealed("job")
    for _ in range(2):
        outcome = await send(here, "follow-up", f"{wid}/a", "And more?", "f1", model="other/two")
        assert (outcome.state, outcome.reply["generation"], outcome.reply["call"]) == ("applied", 2, f"{wid}/a@2")
    found = await here.until("job", lambda found: found["calls"][0].get("output") == "two")
    assert found["calls"][0]["gen"] == 2
    assert [role for role, text in here.requests[-1]["messages"]] == ["user", "assistant", "user"]
    assert here.requests[-1]["model"] == "other:two"
    assert found["status"] == "done"


async def test_r130_notes_open_the_next_follow_up_once_and_in_order(place: Make) -> None:
    here = place({"a": [{"say": "one"}, {"say": "two"}, {"say": "three"}]})
    wid = await here.single("job")
    await here.sealed("job")
    for number, note in enumerate(("Config is TOML\nfrom now on", "Keep the parser")):
        assert (await send(here, "notify", f"{wid}/a", note, f"n{number}")).reply["delivery"] == "noted"
    assert (await here.described("job"))["calls"][0]["notesPending"] == 2
    await send(here, "follow-up", f"{wid}/a", "Go on")
    await here.until("job", lambda found: found["calls"][0].get("output") == "two")
    assert users(here)[-1] == (
        "Notes recorded after your last turn:\n- Config is TOML\n  from now on\n- Keep the parser\n\nGo on"
    )
    await send(here, "follow-up", f"{wid}/a", "Again")
    await here.until("job", lambda found: found["calls"][0].get("output") == "three")
    assert users(here)[-1] == "Again"


async def test_r183_a_question_waits_with_no_process_alive_and_its_answer_goes_on(place: Make) -> None:
    here = place({"a": [ASK, {"say": "blue it is"}]}, k={"hibernateMs": 0, "idleExitMs": 200})
    wid = await here.single("job", once=True)
    found = await here.until("job", lambda found: bool(found["calls"] and found["calls"][0].get("hibernated")))
    question = found["calls"][0]["question"]
    assert (found["state"], question["text"], question["rev"]) == ("asking", "Which color?", 1)
    await here.gone()
    answered = await send(here, "answer", "", "blue", "a1")
    assert answered.state == "applied", answered
    twice = await send(here, "answer", f"{wid}/a", "red", "a2")
    assert (twice.state, twice.reply["reason"]) in (("rejected", "already-answered"), ("rejected", "retired"))
    found = await here.sealed("job")
    assert (found["calls"][0]["status"], found["calls"][0].get("losses", 0)) == ("ok", 0)
    (result,) = tool_results(here)
    assert result.startswith("blue")
    assert "background ones too, are gone" in result, "it was away: R-006"
    assert users(here) == ["Do it"]
    assert len(here.requests) == 2


async def test_r128_a_steer_wakes_a_hibernated_asker_and_interrupts(place: Make) -> None:
    here = place({"a": [ASK, ASK, {"say": "fine"}]}, k={"hibernateMs": 0})
    wid = await here.single("job")
    await here.until("job", lambda found: bool(found["calls"] and found["calls"][0].get("hibernated")))
    assert (await send(here, "steer", f"{wid}/a", "Use the logo's")).reply["delivery"] == "interrupts-question"
    await here.until("job", lambda found: found["calls"][0].get("question", {}).get("rev") == 2)
    stale = await send(here, "answer", f"{wid}/a", "red", rev=1)
    assert (stale.state, stale.reply["reason"]) == ("rejected", "stale-rev")
    assert (await send(here, "answer", f"{wid}/a", "blue")).state == "applied"
    await here.sealed("job")
    assert "Message: Use the logo's" in tool_results(here)[0]
    assert tool_results(here)[1].split("\n")[0] == "blue"


async def test_r129_a_notify_waits_until_the_question_is_answered(place: Make) -> None:
    here = place({"a": [ASK, {"call": "bash", "args": {"command": "true"}}, {"say": "fine"}]})
    wid = await here.single("job")
    await here.until("job", lambda found: bool(found["calls"] and found["calls"][0].get("question")))
    assert (await send(here, "notify", f"{wid}/a", "By the way")).reply["delivery"] == "held-until-answer"
    await asyncio.sleep(0.3)
    assert len(here.requests) == 1
    await send(here, "answer", f"{wid}/a", "blue")
    await here.sealed("job")
    assert "By the way" in users(here)
    assert tool_results(here)[0] == "blue"


async def test_r144_of_two_steers_the_second_replaces_the_first_also_if_that_comes_later(place: Make) -> None:
    here = place({"a": [{"call": "bash", "args": {"command": "sleep 1"}}, {"say": "done"}]})
    wid = await here.single("job")
    await here.asked(1)
    second = await send(here, "steer", f"{wid}/a", "second", "s2", replaces=["s1"])
    first = await send(here, "steer", f"{wid}/a", "first", "s1")
    assert second.state == "applied"
    assert (first.state, first.reply["reason"]) == ("rejected", "withdrawn")
    await here.sealed("job")
    assert users(here) == ["Do it", "second"]


async def test_r160_stop_is_final_ends_every_process_and_keeps_what_was_used(place: Make) -> None:
    escape = "setsid sh -c 'sleep 300' & nohup sleep 301 >/dev/null 2>&1 & (sleep 302 &) ; sleep 303"
    here = place({"a": [{"call": "bash", "args": {"command": escape}}, {"say": "never"}]})
    wid = await here.single("job")
    await here.asked(1)
    await asyncio.sleep(0.5)
    stopped = await send(here, "stop", f"{wid}/a")
    assert stopped.state == "applied"
    found = await here.sealed("job")
    (call,) = found["calls"]
    assert call["status"] == "stopped"
    assert call["usage"]["output"] > 0
    again = await send(here, "stop", f"{wid}/a")
    assert (again.state, again.reply["reason"]) == ("rejected", "already-sealed:stopped")
    left = await asyncio.create_subprocess_exec("pgrep", "-f", "sleep 30[0-3]", stdout=asyncio.subprocess.PIPE)
    assert (await left.communicate())[0] == b""


async def test_stopping_a_workflow_stops_all_that_is_open_in_it(place: Make) -> None:
    here = place({"*": [{"say": "never", "hold": 60}]})
    outcome = await here.run("job", tasks=[{"agent": "worker", "task": "x"}, {"agent": "worker", "task": "y"}])
    await here.asked(2)
    assert (await send(here, "stop", outcome.reply["wid"])).state == "applied"
    found = await here.sealed("job")
    assert found["status"] == "stopped"
    assert {call["status"] for call in found["calls"]} == {"stopped"}
    again = await send(here, "stop", outcome.reply["wid"])
    assert again.reply["reason"] == "terminal:stopped"


async def test_r165_a_drain_holds_what_exists_survives_a_restart_and_is_released(place: Make) -> None:
    here = place({"one": [{"say": "first", "hold": 0.7}], "two": [{"say": "second"}]}, k={"idleExitMs": 200})
    steps = [{"agent": "worker", "task": "x", "key": "one"}, {"agent": "worker", "task": "y", "key": "two"}]
    await here.run("job", chain=steps)
    await here.asked(1)
    assert (await here.client.ask("drain", {})).state == "applied"
    await here.until("job", lambda found: len(found["calls"]) == 2)
    await here.gone()
    assert sum(request["key"] == "two" for request in here.requests) == 0
    later = await here.run("later", agent="worker", task="z", key="z")
    assert later.state == "applied"
    await here.sealed("later")
    resumed = await here.client.ask("resume", {})
    assert resumed.state == "applied"
    assert (await here.sealed("job"))["status"] == "done"
    nothing = await here.client.ask("resume", {})
    assert nothing.reply["reason"] == "nothing to resume"


async def test_r167_stop_all_cuts_off_and_everything_goes_on_after_a_resume(place: Make) -> None:
    here = place({"a": [{"say": "done", "once": {"say": "never", "hold": 60}}]})
    await here.single("job")
    await here.asked(1)
    assert (await here.client.ask("stop-all", {})).state == "applied"
    await here.until("job", lambda found: found["calls"][0].get("paused"))
    assert (await here.described("job"))["state"] == "running"
    await here.client.ask("resume", {})
    found = await here.sealed("job")
    assert found["calls"][0]["status"] == "ok"


async def test_r148_many_targets_are_decided_each_and_unknown_ones_name_what_there_is(place: Make) -> None:
    here = place({"*": [{"say": "done"}]})
    await here.run("job", tasks=[{"agent": "worker", "task": "x"}, {"agent": "worker", "task": "y"}])
    found = await here.sealed("job")
    wid = found["wid"]
    bad = await send(here, "notify", f"{wid}/nope", "x")
    assert bad.state == "rejected"
    assert bad.reply["targets"] == [f"{wid}/tasks:0", f"{wid}/tasks:1"]
    bare = await send(here, "notify", wid, "x")
    assert "name one" in bare.reply["reason"]
    gone = await send(here, "notify", "nosuch/a", "x")
    assert "there is no workflow 'nosuch'" in gone.reply["reason"]
