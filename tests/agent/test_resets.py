"""New contexts: nothing is deleted, and nothing older is read."""

from typing import Any

import pytest

from perdure import Extension, Handoff, InvalidValue, RequestConflict, Settled, ToolResult
from perdure.models.protocol import ModelRequest
from perdure.testing.scripted_model import call
from tests.agent.compacting import Counting
from tests.agent.kit import Gate, agent, ask, said, texts


async def test_a_reset_begins_with_its_note_or_with_nothing_and_deletes_nothing() -> None:
    async with agent(Counting(), instructions="Be kind.") as (_, root):
        await ask(root, "one")
        assert (await (await root.reset("From here.")).settled()).status == "done"
        assert await said(root) == ["From here."]
        await ask(root, "two")
        await root.reset()
        assert await root.messages() == []
        assert await ask(root, "three") == "fine"
        assert [entry.kind for entry in await root.entries()].count("perdure.user") == 3


async def test_the_prompt_and_the_tools_are_told_anew() -> None:
    extension = Extension("tools")

    @extension.tool
    async def look(ctx: Any) -> str:
        """Look."""
        return "seen"

    model = Counting(system_updates=True)
    async with agent(model, extension, instructions="Be kind.") as (_, root):
        await ask(root, "one")
        await root.reset("From here.")
        await ask(root, "two")
        assert [(r.system, [t.name for t in r.tools]) for r in model.requests] == [("Be kind.", ["look"])] * 2
        assert texts(model.requests) == [["one"], ["From here.", "two"]]


async def test_bad_notes_are_refused_and_a_request_id_counts_once() -> None:
    async with agent(Counting()) as (_, root):
        for bad in list[Any](["", "  ", 5, b"x"]):
            with pytest.raises(InvalidValue):
                await root.reset(bad)
        first = await root.reset("note", request_id="r")
        assert (await root.reset("note", request_id="r")).id == first.id
        with pytest.raises(RequestConflict):
            await root.reset("other", request_id="r")


def working(gate: Gate) -> Extension:
    extension = Extension("tools")

    @extension.tool
    async def slow(ctx: Any) -> str:
        """Take time."""
        await gate.stop()
        return "done"

    return extension


def calls_first(request: ModelRequest) -> Any:
    return call("slow") if texts([request]) == [["go"]] and len(request.messages) == 1 else "fine"


async def test_between_two_rounds_it_ends_the_run_and_what_waits_goes_on_in_the_new_context() -> None:
    gate, model = Gate(), Counting(calls_first)
    async with agent(model, working(gate)) as (_, root):
        first = await root.submit("go")
        await gate.reached.wait()
        steer = await root.submit("faster", when_busy="steer")
        reset = await root.reset("From here.")
        follow_up = await root.submit("and then?")
        gate.go.set()
        settled = await first.settled()
        assert (settled.status, settled.reason, settled.answer) == ("unanswered", "reset", None)
        assert (await reset.settled()).status == "done"
        assert [(await each.wait()).text for each in (steer, follow_up)] == ["fine", "fine"]
        assert texts(model.requests)[1] == ["From here.", "faster", "and then?"]


async def test_at_the_final_answer_it_waits_for_that() -> None:
    gate = Gate()
    model = Counting(lambda request: calls_first(request) if len(request.messages) < 2 else "fine")
    async with agent(model, working(gate)) as (_, root):
        first = await root.submit("go")
        await gate.reached.wait()
        gate.go.set()
        assert (await first.wait()).text == "fine"
        await root.reset("From here.")
        assert await said(root) == ["From here."]


async def test_one_result_of_a_round_hands_off_and_several_notes_are_put_together() -> None:
    extension = Extension("tools")

    @extension.tool
    async def hand(ctx: Any, note: str) -> ToolResult:
        """Hand off."""
        return ToolResult("Handing off.", control=Handoff(note))

    @extension.tool
    async def look(ctx: Any) -> str:
        """Look."""
        return "seen"

    def answer(request: ModelRequest) -> Any:
        if texts([request]) == [["go"]]:
            return [call("hand", {"note": "One."}), call("look"), call("hand", {"note": "Two."})]
        return "fine"

    model = Counting(answer)
    async with agent(model, extension) as (_, root):
        settled = await (await root.submit("go")).settled()
        assert settled == Settled("unanswered", reason="reset", detail=settled.detail)
        await root.wait_idle()
        assert await said(root) == ["One.\n\nTwo."]
        assert len(model.requests) == 1
        assert await ask(root, "go on") == "fine"
