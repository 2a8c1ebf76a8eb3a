"""The `subagents` tool in a parent session, and what the parent is told."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure import Harness, Registry, ToolResultMessage, UserMessage
from perdure.models.protocol import ModelRequest
from perdure.subagents.tool import deliver_notices, subagents_tool
from perdure.testing.scripted_model import ScriptedModel, call, say
from tests.subagents.place import Place

pytestmark = pytest.mark.slow
Make = Callable[..., Place]


def parent(here: Place, path: Path, turn: Callable[[ModelRequest], Any]) -> Any:
    return Harness.open(path, registry=Registry([subagents_tool(here.root)]), models=ScriptedModel(turn))


def results(request: ModelRequest) -> list[str]:
    return [str(one.content) for one in request.messages if isinstance(one, ToolResultMessage)]


async def told(harness: Harness, count: int) -> list[str]:
    """The notices in the parent's transcript, once there are so many."""
    root = await harness.root()
    async with asyncio.timeout(30):
        while True:
            texts = [str(one.content) for one in await root.messages() if isinstance(one, UserMessage)]
            found = [text for text in texts if text.startswith("[subagents:")]
            if len(found) >= count:
                return found
            await asyncio.sleep(0.02)


def delegating(**given: Any) -> Callable[[ModelRequest], Any]:
    def turn(request: ModelRequest) -> Any:
        last = request.messages[-1]
        if str(last.text).startswith("[subagents:"):
            return say("I have heard.")
        return say(f"Started: {results(request)[-1]}") if results(request) else call("subagents", given)

    return turn


async def test_r332_an_idle_parent_is_told_once_when_the_work_has_ended(place: Make, tmp_path: Path) -> None:
    here = place({"worker": [{"say": "The test is fixed."}]})
    turn = delegating(agent="worker", task="Fix it", options={"cwd": str(here.work)})
    async with parent(here, tmp_path / "parent.db", turn) as harness, deliver_notices(harness, here.root):
        root = await harness.root(model="scripted:model")
        answer = await (await root.submit("Have it fixed")).wait()
        assert '"applied": true' in answer.text
        (notice,) = await told(harness, 1)
        assert "done" in notice.splitlines()[0]
        assert "worker@1: ok" in notice
        assert "The test is fixed." in notice
        await root.wait_idle()
        assert (await root.messages())[-1].text == "I have heard."
    async with parent(here, tmp_path / "parent.db", turn) as harness, deliver_notices(harness, here.root):
        await asyncio.sleep(0.5)
        assert len(await told(harness, 1)) == 1, "presented once, also after a restart"


async def test_r211_a_parent_that_was_away_is_told_when_it_is_back(place: Make, tmp_path: Path) -> None:
    here = place({"worker": [{"say": "Done meanwhile.", "hold": 0.7}]}, k={"idleExitMs": 200})
    turn = delegating(agent="worker", task="Do it", options={"cwd": str(here.work)})
    async with parent(here, tmp_path / "parent.db", turn) as harness:
        root = await harness.root(model="scripted:model")
        await (await root.submit("Go")).wait()
    await here.gone()
    async with parent(here, tmp_path / "parent.db", turn) as harness, deliver_notices(harness, here.root):
        (notice,) = await told(harness, 1)
        assert "Done meanwhile." in notice


async def test_r182_a_question_reaches_the_parent_with_its_address_and_the_answer_goes_back(
    place: Make, tmp_path: Path
) -> None:
    here = place({"worker": [{"call": "ask", "args": {"question": "Which color?"}}, {"say": "It is blue."}]})

    def turn(request: ModelRequest) -> Any:
        last = str(request.messages[-1].text)
        if "asks: Which color?" in last:
            to = last.split("send answer to ")[1].strip(" .")
            return call("subagents", {"action": "send", "kind": "answer", "to": to, "message": "blue"})
        if not results(request):
            return call("subagents", {"agent": "worker", "task": "Paint", "options": {"cwd": str(here.work)}})
        return say("fine")

    async with parent(here, tmp_path / "parent.db", turn) as harness, deliver_notices(harness, here.root):
        root = await harness.root(model="scripted:model")
        await (await root.submit("Paint it")).wait()
        notices = await told(harness, 2)
    assert "question" in notices[0]
    assert "It is blue." in notices[1]


async def test_r336_a_run_from_elsewhere_tells_this_parent_nothing(place: Make, tmp_path: Path) -> None:
    here = place({"a": [{"say": "done"}]})
    async with parent(here, tmp_path / "parent.db", lambda request: say("x")) as harness:
        async with deliver_notices(harness, here.root):
            await harness.root(model="scripted:model")
            await here.single("job")
            await here.sealed("job")
            await asyncio.sleep(0.3)
            root = await harness.root()
            assert [one for one in await root.messages() if isinstance(one, UserMessage)] == []


async def test_r053_an_unknown_agent_is_an_error_for_the_model_with_those_there_are(
    place: Make, tmp_path: Path
) -> None:
    here = place({})
    turn = delegating(agent="nobody", task="x")
    async with parent(here, tmp_path / "parent.db", turn) as harness:
        root = await harness.root(model="scripted:model")
        text = (await (await root.submit("Go")).wait()).text
    assert "unknown agent 'nobody'; there are: delegate" in text
    assert not here.root.store.exists(), "nothing was submitted"
