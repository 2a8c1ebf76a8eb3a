"""Subagents when something comes between: stops at every moment, owners that end, names and settings that change."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from perdure import Conversation, Harness, Registry
from perdure.models.protocol import ModelRequest
from perdure.testing.clock import FakeClock
from perdure.testing.scripted_model import ScriptedModel, call, say
from perdure.tools import Role, subagents
from perdure.tools.subagent_team import Ended, MemberDoc
from tests.tools.starting import Turn, ask, conversations, is_parent, opened, results, script, until

SPAWN = {"action": "spawn", "name": "ana", "message": "one"}
HEARD = "Message from your subagent ana:\n"


def kinds(harness: Harness) -> list[str]:
    return sorted(row["kind"] for row in harness.inspect()["tasks"])


async def users(conversation: Conversation) -> list[str]:
    return [message.text for message in await conversation.messages() if message.role == "user"]


def held(gate: asyncio.Event) -> Turn:
    """A subagent that answers once the gate opens."""
    return lambda request: say(f"answer to {request.messages[-1].text}").held_by(gate)


async def test_an_answer_whose_waiting_call_is_stopped_comes_as_a_message() -> None:
    gate = asyncio.Event()
    async with opened("memory:", script(SPAWN, {"action": "wait"}, child=held(gate))) as harness:
        root = await harness.root(model="scripted:model")
        submission = await root.submit("Go")
        await until(
            lambda: any(row["status"] == "waiting" for row in harness.inspect()["tasks"] if "tool" in row["kind"])
        )
        await root.abort()
        assert (await submission.settled()).reason == "aborted"
        gate.set()
        await until(lambda: kinds(harness) == ["subagents.anchor"])
        await root.wait_idle()
        assert await users(root) == ["Go", f"{HEARD}answer to one"]


async def test_waiting_ends_at_its_time_and_the_answer_comes_as_a_message() -> None:
    gate, clock = asyncio.Event(), FakeClock()
    turn = script(SPAWN, {"action": "wait", "minutes": 5}, child=held(gate))
    harness: Harness
    async with Harness.open(
        "memory:", registry=Registry([subagents()]), models=ScriptedModel(turn), clock=clock
    ) as harness:
        root = await harness.root(model="scripted:model")
        submission = await root.submit("Go")
        await until(lambda: "subagents.alarm" in kinds(harness) and harness.wake().at is not None)
        await clock.advance(299)
        assert await submission.status() == "placed"
        await clock.advance(2)
        assert "ana: not there yet; the answer comes as a message" in (await submission.wait()).text
        assert "subagents.alarm" not in kinds(harness)
        gate.set()
        await until(lambda: kinds(harness) == ["subagents.anchor"])
        assert await users(root) == ["Go", f"{HEARD}answer to one"]


async def test_a_wait_with_a_time_ends_with_the_last_answer_and_leaves_no_alarm() -> None:
    gate = asyncio.Event()
    calls: list[dict[str, Any] | str] = [SPAWN, {**SPAWN, "name": "ben"}, {"action": "wait", "minutes": 5}]
    async with opened("memory:", script(*calls, child=held(gate))) as harness:
        root = await harness.root(model="scripted:model")
        submission = await root.submit("Go")
        await until(lambda: "subagents.alarm" in kinds(harness))
        gate.set()
        assert "ana: answer to one\n\nben: answer to one" in (await submission.wait()).text
        await until(lambda: kinds(harness) == ["subagents.anchor"] * 2)
        assert await users(root) == ["Go"]


async def test_an_answer_has_one_taker_though_two_calls_wait() -> None:
    gate = asyncio.Event()

    def turn(request: ModelRequest) -> Any:
        if not is_parent(request):
            return held(gate)(request)
        done = len(results(request))
        if done == 0:
            return call("agents", SPAWN)
        if done == 1:
            return [call("agents", {"action": "wait"}), call("agents", {"action": "wait", "name": "ana"})]
        return say(" | ".join(results(request)[1:]))

    async with opened("memory:", turn) as harness:
        root = await harness.root(model="scripted:model")
        submission = await root.submit("Go")
        await until(
            lambda: any(row["status"] == "waiting" for row in harness.inspect()["tasks"] if "tool" in row["kind"])
        )
        gate.set()
        said = sorted((await submission.wait()).text.split(" | "))
        assert said == ["ana: answer to one", "no answers are to come"]
        await root.wait_idle()
        assert await users(root) == ["Go"]


async def test_a_report_that_is_withdrawn_from_the_queue_is_not_lost_and_starts_no_work() -> None:
    working, go, never = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def turn(request: ModelRequest) -> Any:
        if not is_parent(request):
            return say("news").held_by(go)
        if not results(request):
            return call("agents", SPAWN)
        if request.messages[-1].text == "More":
            return say("Understood.")
        working.set()
        return say("never said").held_by(never)

    async with opened("memory:", turn) as harness:
        root = await harness.root(model="scripted:model")
        first = await root.submit("Go")
        await working.wait()
        go.set()
        await until(lambda: "subagents.tell" in kinds(harness) and not harness_busy(harness, "subagents.tell"))
        await root.abort()
        assert (await first.settled()).reason == "aborted"
        await until(lambda: kinds(harness) == ["subagents.anchor"])
        assert await ask(harness, "More") == "Understood."
        assert (await users(root)).count(f"{HEARD}news") == 1
        assert "subagents.reported" in [entry.kind for entry in await root.entries()]


def harness_busy(harness: Harness, kind: str) -> bool:
    return any(row["status"] in ("pending", "running") for row in harness.inspect()["tasks"] if row["kind"] == kind)


async def test_whoever_stopped_it_it_is_stopped_for_the_model_too() -> None:
    calls = [{**SPAWN, "action": "message"}, {"action": "list"}, {"action": "wait"}, {"action": "wait", "name": "ana"}]

    def turn(request: ModelRequest) -> Any:
        if not is_parent(request):
            return held(asyncio.Event())(request)
        if not results(request):
            return call("agents", SPAWN)
        asked = [message.text for message in request.messages if message.role == "user"]
        if len(asked) == 1:
            return say("Started.")
        done = len(results(request)) - 1
        return call("agents", calls[done]) if done < len(calls) else say(" | ".join(results(request)[1:]))

    async with opened("memory:", turn) as harness:
        await ask(harness, "Go")
        root = await harness.root()
        await root.abort(background=True)
        assert kinds(harness) == []
        gone = "ana was stopped: spawn it anew"
        assert await ask(harness, "On") == f"{gone} | ana: stopped | no answers are to come | {gone}"


async def test_what_a_job_keeps_in_the_background_ends_with_the_job() -> None:
    def turn(request: ModelRequest) -> Any:
        top = any("Go" in message.text for message in request.messages)
        if top:
            return say(results(request)[0]) if results(request) else call("subagent", {"task": "Job"})
        if request.messages[0].text == "Job":
            return say("job done") if results(request) else call("agents", SPAWN)
        return say("never").held_by(asyncio.Event())

    async with opened("memory:", turn, depth=2) as harness:
        assert await ask(harness, "Go") == "job done"
        await until(lambda: kinds(harness) == [])
        assert len(await conversations(harness)) == 3


@pytest.mark.parametrize("answers", [False, True])
async def test_what_a_stopped_job_keeps_in_the_background_is_stopped_with_it(answers: bool) -> None:
    """Once it keeps one and works on; with `answers` that one answers at that moment."""
    spawned, go = asyncio.Event(), asyncio.Event()

    def turn(request: ModelRequest) -> Any:
        if any("Go" in message.text for message in request.messages):
            return call("subagent", {"task": "Job"})
        if request.messages[0].text == "Job":
            if not results(request):
                return call("agents", SPAWN)
            spawned.set()
            return say("never").held_by(asyncio.Event())
        return say("late").held_by(go)

    async with opened("memory:", turn, depth=2) as harness:
        root = await harness.root(model="scripted:model")
        submission = await root.submit("Go")
        await spawned.wait()
        if answers:
            go.set()
        await root.abort()
        assert (await submission.settled()).reason == "aborted"
        await until(lambda: kinds(harness) == [])


async def test_an_answer_that_nobody_is_left_to_hear_stops_who_gave_it() -> None:
    """The call that owned the conversation has ended without its tool's help: its code was gone."""
    spawned, go = asyncio.Event(), asyncio.Event()

    def turn(request: ModelRequest) -> Any:
        if any("Go" in message.text for message in request.messages):
            return call("subagent", {"task": "Job"})
        if request.messages[0].text == "Job":
            if not results(request):
                return call("agents", SPAWN)
            spawned.set()
            return say("never").held_by(asyncio.Event())
        return say("late").held_by(go)

    async with opened("memory:", turn, depth=2) as harness:
        root = await harness.root(model="scripted:model")
        await root.submit("Go")
        await spawned.wait()
        registry = harness.agent.registry
        registry.uninstall("subagents")
        await root.abort()
        assert "subagents.anchor" in kinds(harness), "nobody was there to stop it"
        registry.install(subagents(depth=2))
        go.set()
        await until(lambda: kinds(harness) == [])


async def test_a_role_that_is_gone_by_the_time_of_the_answer_takes_nothing_away(tmp_path: Path) -> None:
    def turn(request: ModelRequest) -> Any:
        if is_parent(request):
            return say(results(request)[0]) if results(request) else call("subagent", {"task": "Ask", "role": "clerk"})
        return say(results(request)[0]) if results(request) else call("ask_person", {"question": "Which?"})

    async with opened(tmp_path / "a.db", turn, roles={"clerk": Role()}) as harness:
        root = await harness.root(model="scripted:model")
        await root.submit("Go", request_id="Go")
        await until(lambda: not harness.wake().active)
    async with opened(tmp_path / "a.db", turn) as harness:
        (question,) = await harness.questions()
        await harness.answer(question.id, "blue")
        assert await ask(harness, "Go") == "blue"


HOSTILE = ["", " ", "a b", "../x", "a/b", "a\x00", "a\n", "\u202eana", "x" * 65, "ana:\nMessage", "e\u0301", "\ud800"]


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
@pytest.mark.parametrize("action", ["spawn", "message", "wait", "stop"])
async def test_a_hostile_name_is_refused_with_what_a_name_is(action: str, name: str) -> None:
    written = json.dumps({"action": action, "name": name, "message": "x"})
    async with opened("memory:", script(written)) as harness:
        answer = await ask(harness, "Go")
        assert "a name has 1 to 64 letters" in answer or "invalid_arguments" in answer, answer
        assert len(await conversations(harness)) == 1


@pytest.mark.parametrize("name", ["Ana", "ärger", "名前", "a-b_c9", "x" * 64])
async def test_names_may_be_of_any_script(name: str) -> None:
    calls = [{**SPAWN, "name": name}, {"action": "list"}]
    async with opened("memory:", script(*calls, child=held(asyncio.Event()))) as harness:
        assert f"{name}: works" in await ask(harness, "Go")


async def test_a_message_of_anything_arrives_as_it_is() -> None:
    hostile = "\x00\x1b[2J </system> \ud800 " + "長" * 1000
    seen: list[str] = []

    def child(request: ModelRequest) -> Any:
        seen.append(request.messages[-1].text)
        return say("fine")

    written = json.dumps({**SPAWN, "message": hostile})
    async with opened("memory:", script(written, {"action": "wait"}, child=child)) as harness:
        await ask(harness, "Go")
        await until(lambda: kinds(harness) == ["subagents.anchor"])
    assert seen == [hostile.replace("\ud800", "\ufffd")]


async def test_there_are_no_more_at_once_than_the_host_lets_and_stopped_ones_make_way() -> None:
    def spawn(name: str) -> dict[str, Any]:
        return {**SPAWN, "name": name}

    calls = [spawn("a"), spawn("b"), spawn("c"), {"action": "stop", "name": "a"}, spawn("c"), {"action": "list"}]
    for name in "defg":
        calls += [{"action": "stop", "name": "c" if name == "d" else chr(ord(name) - 1)}, spawn(name)]
    async with opened("memory:", script(*calls, child=held(asyncio.Event())), most=2) as harness:
        said = await ask(harness, "Go")
        assert "there are 2 subagents, no more may be at once; stop one: a, b" in said
        assert "a: stopped\nb: works\nc: works" in said
        names = await harness.session.document_keys(MemberDoc, (await harness.root()).id)
        assert {"b", "g"} <= set(names)
        assert len(names) <= 5, "names of stopped ones are given up"


async def test_an_anchor_that_is_told_to_end_ends_in_good_order() -> None:
    async with opened("memory:", script(SPAWN)) as harness:
        await ask(harness, "Go")
        await until(lambda: kinds(harness) == ["subagents.anchor"])
        (row,) = harness.inspect()["tasks"]
        assert await harness.signal(row["id"], Ended, "ended", True) == "delivered"
        assert (await harness.tasks.wait(row["id"])).status == "completed"
        assert kinds(harness) == []


async def test_rows_of_the_first_version_are_read() -> None:
    old = {"call": 7, "anchor": 9, "conversation": 3, "role": None, "reports": [], "awaited": [4], "stopped": True}
    assert MemberDoc.current(old, 1) == {
        "call": 7, "anchor": 9, "conversation": 3, "role": None, "reports": [], "waiting": {}
    }  # fmt: skip
