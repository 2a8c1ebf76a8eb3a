"""Agents that start others: for one job, or named ones that stay."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from perdure import ROOT, Conversation, InvalidDefinition
from perdure.models.protocol import ModelRequest
from perdure.testing.scripted_model import call, say
from perdure.tools import Role, subagents
from perdure.tools.subagent_team import MemberDoc
from tests.tools.starting import ask, conversations, is_parent, opened, results, script, until


async def test_a_subagent_answers_the_call_and_sees_nothing_but_its_job() -> None:
    seen: list[ModelRequest] = []

    def turn(request: ModelRequest) -> Any:
        if not is_parent(request):
            seen.append(request)
            return say("42")
        return say(results(request)[0]) if results(request) else call("subagent", {"task": "Compute"})

    async with opened("memory:", turn) as harness:
        assert await ask(harness, "Go") == "42"
        assert len(await conversations(harness)) == 2
        assert harness.inspect()["tasks"] == []
    (only,) = seen
    assert [message.text for message in only.messages] == ["Compute"]
    assert not any(tool.name in ("subagent", "agents") for tool in only.tools), "it may not start others"


async def test_a_role_changes_the_copy_of_the_agent() -> None:
    def turn(request: ModelRequest) -> Any:
        if not is_parent(request):
            return say(f"{request.system} {request.tools}")
        return say(results(request)[0]) if results(request) else call("subagent", {"task": "Look", "role": "reviewer"})

    reviewer = Role(description="Only looks.", model="scripted:small", instructions="Review.", tools=())
    async with opened("memory:", turn, roles={"reviewer": reviewer}) as harness:
        assert await ask(harness, "Go") == "Review. []"
        child = await harness.conversation((await conversations(harness))[-1])
        assert (await child.agent()).model == "scripted:small"
        assert (await (await harness.root()).agent()).model == "scripted:model"


async def test_an_unknown_role_is_told_to_the_model_with_those_there_are() -> None:
    def turn(request: ModelRequest) -> Any:
        return say(results(request)[0]) if results(request) else call("subagent", {"task": "Look", "role": "cook"})

    async with opened("memory:", turn, roles={"reviewer": Role()}) as harness:
        assert await ask(harness, "Go") == "no role 'cook'; roles: reviewer"
        assert len(await conversations(harness)) == 1, "nothing was made"


@pytest.mark.parametrize("depth", [1, 2])
async def test_subagents_go_as_deep_as_the_host_allows(depth: int) -> None:
    def turn(request: ModelRequest) -> Any:
        if results(request):
            return say(f"({results(request)[0]})")
        return call("subagent", {"task": "Deeper"}) if is_parent(request) else say("bottom")

    async with opened("memory:", turn, depth=depth) as harness:
        assert await ask(harness, "Go") == "(" * depth + "bottom" + ")" * depth
        assert len(await conversations(harness)) == depth + 1


async def test_everything_parks_while_a_subagent_waits_for_a_person_and_another_process_goes_on(tmp_path: Path) -> None:
    def turn(request: ModelRequest) -> Any:
        if results(request):
            return say(f"It is {results(request)[0]}")
        if is_parent(request):
            return call("subagent", {"task": "Ask for the color"})
        return call("ask_person", {"question": "Which color?"})

    async with opened(tmp_path / "a.db", turn) as harness:
        root = await harness.root(model="scripted:model")
        await root.submit("Go", request_id="Go")
        await until(lambda: not harness.wake().active)
    async with opened(tmp_path / "a.db", turn) as harness:
        (question,) = await harness.questions()
        assert await harness.answer(question.id, "blue") == "delivered"
        assert await ask(harness, "Go") == "It is It is blue"
        assert len(await conversations(harness)) == 2


async def test_stopping_the_conversation_stops_the_subagent_first() -> None:
    asked = asyncio.Event()

    def turn(request: ModelRequest) -> Any:
        if is_parent(request):
            return call("subagent", {"task": "Never ends"})
        asked.set()
        return say("never").held_by(asyncio.Event())

    async with opened("memory:", turn) as harness:
        root = await harness.root(model="scripted:model")
        submission = await root.submit("Go")
        await asked.wait()
        await root.abort()
        assert (await submission.settled()).reason == "aborted"
        assert harness.inspect()["tasks"] == []
        child = await harness.conversation((await conversations(harness))[-1])
        assert [message.role for message in await child.messages()][:2] == ["system", "user"]


async def test_a_subagent_without_an_answer_is_an_error_for_the_model() -> None:
    def turn(request: ModelRequest) -> Any:
        if not is_parent(request):
            return say("")
        return say(results(request)[0]) if results(request) else call("subagent", {"task": "Say nothing"})

    async with opened("memory:", turn) as harness:
        assert (await ask(harness, "Go")).startswith("the subagent ended without an answer")


# named ones


async def test_a_named_subagent_answers_with_one_message_and_keeps_its_context() -> None:
    histories: list[list[str]] = []

    def child(request: ModelRequest) -> Any:
        histories.append([message.text for message in request.messages])
        return say(f"answer to {request.messages[-1].text}")

    calls = [
        {"action": "spawn", "name": "ana", "message": "one"},
        {"action": "message", "name": "ana", "message": "two"},
    ]
    async with opened("memory:", script(*calls, child=child)) as harness:
        await ask(harness, "Go")
        root = await harness.root()
        for _ in range(400):
            await asyncio.sleep(0.005)
            texts = [message.text for message in await root.messages() if message.role == "user"]
            if len(texts) == 3 and harness.wake().active is False:
                break
        await root.wait_idle()
    assert sorted(texts[1:]) == [
        "Message from your subagent ana:\nanswer to one", "Message from your subagent ana:\nanswer to two"
    ]  # fmt: skip
    assert len(histories) == 2
    assert histories[-1][:2] == ["one", "answer to one"], "the same conversation goes on"


async def test_waiting_takes_the_answers_as_a_result_and_no_message_comes() -> None:
    calls = [
        {"action": "spawn", "name": "ana", "message": "one"},
        {"action": "spawn", "name": "ben", "message": "two"},
        {"action": "wait"},
        {"action": "wait"},
        {"action": "list"},
    ]
    gate = asyncio.Event()

    def child(request: ModelRequest) -> Any:
        return say(f"answer to {request.messages[-1].text}").held_by(gate)

    async with opened("memory:", script(*calls, child=child)) as harness:
        root = await harness.root(model="scripted:model")
        submission = await root.submit("Go")
        await until(
            lambda: any(
                (row["kind"], row["status"]) == ("perdure.tool", "waiting") for row in harness.inspect()["tasks"]
            )
        )
        gate.set()
        text = (await submission.wait()).text
        await root.wait_idle()
        assert [message.text for message in await root.messages() if message.role == "user"] == ["Go"]
    assert "ana: answer to one\n\nben: answer to two | no answers are to come | ana: idle\nben: idle" in text


async def test_a_stopped_one_is_gone_with_its_work_and_its_name_is_free() -> None:
    calls = [
        {"action": "spawn", "name": "ana", "message": "one"},
        {"action": "stop", "name": "ana"},
        {"action": "stop", "name": "ana"},
        {"action": "message", "name": "ana", "message": "more"},
        {"action": "spawn", "name": "ana", "message": "anew"},
        {"action": "spawn", "name": "ana", "message": "twice"},
        {"action": "message", "name": "eve", "message": "?"},
        {"action": "stop", "name": "eve"},
        {"action": "spawn", "name": "no name", "message": "x"},
        {"action": "spawn", "name": "x"},
    ]
    never = asyncio.Event()
    async with opened("memory:", script(*calls, child=lambda request: say("x").held_by(never))) as harness:
        text = await ask(harness, "Go")
        root = await harness.root()
        assert len(await conversations(harness)) == 3
        await root.abort()
        kinds = sorted(row["kind"] for row in harness.inspect()["tasks"])
        assert "subagents.anchor" in kinds, "an ordinary abort leaves it alone"
        await root.abort(background=True)
        assert harness.inspect()["tasks"] == []
    for part in (
        "ana is stopped | ana is stopped | ana was stopped: spawn it anew | ana works on it",
        "there is a subagent ana already",
        "no subagent eve; there are: ana | no subagent eve; there are: ana | a name has 1 to 64 letters",
        "spawn needs a message",
    ):
        assert part in text, text


async def test_a_report_survives_the_process_and_comes_once(tmp_path: Path) -> None:
    asked = asyncio.Event()
    hold: list[asyncio.Event] = [asyncio.Event()]

    def child(request: ModelRequest) -> Any:
        asked.set()
        return say("late news").held_by(hold[0]) if hold else say("late news")

    turn = script({"action": "spawn", "name": "ana", "message": "one"}, child=child)
    async with opened(tmp_path / "a.db", turn) as harness:
        await ask(harness, "Go")
        await asked.wait()
    hold.clear()
    for _ in range(2):
        async with opened(tmp_path / "a.db", turn) as harness:
            await harness.resume()
            root = await harness.root()
            await until(lambda: all(row["kind"] != "subagents.report" for row in harness.inspect()["tasks"]))
            await root.wait_idle()
            users = [message.text for message in await root.messages() if message.role == "user"]
            assert users == ["Go", "Message from your subagent ana:\nlate news"]


async def test_a_fork_has_no_subagents_of_its_own() -> None:
    turn = script({"action": "spawn", "name": "ana", "message": "one"}, {"action": "list"})
    async with opened("memory:", turn) as harness:
        await ask(harness, "Go")
        root: Conversation = await harness.conversation(ROOT)
        entries = await root.entries()
        fork = await root.fork(entries[-1].id)
        answer = await (await fork.submit("And here?")).wait()
        assert "ana" in answer.text, "what was said is said"
        assert await harness.session.document_keys(MemberDoc, fork.id) == []


@pytest.mark.parametrize(
    "options",
    [{"depth": 0}, {"depth": True}, {"most": 0}, {"most": 1000}, {"roles": {"": Role()}}, {"roles": {"a": "b"}}],
)
def test_a_bad_definition_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidDefinition):
        subagents(**options)
