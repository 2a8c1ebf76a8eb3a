"""Summaries of older messages that somebody asks for, and what can go wrong with one."""

import asyncio
from typing import Any

import pytest

from perdure import Compacted, CompactionPlan, Decline, Extension, InvalidValue, Summary
from perdure.agent.summary import OPENING
from perdure.models.errors import AuthFailed, Overloaded
from perdure.models.messages import UserMessage, text_of
from perdure.models.protocol import ModelRequest
from perdure.testing.clock import FakeClock, settle
from perdure.testing.scripted_model import call, fail, say
from tests.agent.compacting import LONG, Counting, compactions, small, summaries, talk
from tests.agent.kit import Gate, agent, ask, reports, until

# asked for


async def test_a_summary_asked_for_stands_for_the_older_messages_and_newer_ones_stay() -> None:
    model = Counting()
    async with agent(model) as (_, root):
        await talk(root, 6)
        before = await root.messages()
        done = await (await root.compact("Keep the numbers"))
        after = await root.messages()
        assert done == Compacted("placed", done.entry_id)
        assert after[0] == UserMessage(OPENING + "NOTES")
        assert after[1:] == before[-len(after) + 1 :]
        assert 1 < len(after) < len(before)
        assert "Keep the numbers" in text_of(model.requests[-1].messages[-1])
        stored = [entry.id for entry in await root.entries(limit=500)]
        assert len(stored) > len(before)
        assert done.entry_id in stored
        await ask(root, "and now?")
        assert [summaries(request) for request in model.requests[-1:]] == [1]


async def test_the_request_for_a_summary_begins_as_the_last_request_did_so_that_it_is_cached() -> None:
    extension = Extension("tools")

    @extension.tool
    async def look(ctx: Any) -> str:
        """Look."""
        return "seen"

    model = Counting()
    async with agent(model, extension, instructions="Be kind.") as (_, root):
        await talk(root, 4)
        last = model.requests[-1]
        await (await root.compact())
        request = model.requests[-1]
        assert (request.system, request.tools, request.session_id) == (last.system, last.tools, last.session_id)
        assert request.messages[:-1] == last.messages[: len(request.messages) - 1]


async def test_an_earlier_summary_is_part_of_what_the_next_one_is_made_of_and_gives_way_to_it() -> None:
    model = Counting(summary=lambda request: f"NOTES {summaries(request)}")
    async with agent(model) as (_, root):
        for round in range(3):
            await talk(root, 4)
            assert (await (await root.compact())).status == "placed"
            assert summaries(model.requests[-1]) == min(round, 1)
        assert sum(OPENING in text_of(m) for m in await root.messages()) == 1
        assert (await root.messages())[0] == UserMessage(OPENING + "NOTES 1")


async def test_one_asked_for_while_the_agent_works_is_placed_behind_the_round_and_never_inside() -> None:
    gate, extension = Gate(), Extension("tools")

    @extension.tool
    async def slow(ctx: Any) -> str:
        """Take time."""
        await gate.stop()
        return "done"

    def answer(request: ModelRequest) -> Any:
        return call("slow") if "slow" in text_of(request.messages[-1]) else "fine"

    model = Counting(answer)
    async with agent(model, extension) as (_, root):
        await talk(root, 6)
        submission = await root.submit("slow now")
        await gate.reached.wait()
        compaction = await root.compact()
        await until(lambda: len(model.summarized()) == 1)
        await settle()
        assert not summaries(await _now(root))
        assert len((await root.live())["tools"]) == 1
        gate.go.set()
        assert (await compaction.wait()).status == "placed"
        assert (await submission.wait()).text == "fine"
        last = model.requests[-1]
        assert summaries(last) == 1
        assert [type(m).__name__ for m in last.messages[-3:]] == [
            "UserMessage",
            "AssistantMessage",
            "ToolResultMessage",
        ]


async def _now(root: Any) -> Any:
    return ModelRequest(await root.messages())


async def test_an_open_round_is_kept_whole() -> None:
    gate, extension = Gate(), Extension("tools")

    @extension.tool
    async def slow(ctx: Any) -> str:
        """Take time."""
        await gate.stop()
        return LONG * 8

    model = Counting(lambda request: "fine" if len(request.messages) > 1 else [call("slow"), call("slow")])
    async with agent(model, extension, settings=small(keep_tokens=1)) as (_, root):
        submission = await root.submit("go")
        await gate.reached.wait()
        compaction = await root.compact()
        await until(lambda: len(model.summarized()) == 1)
        assert [text_of(m) for m in model.summarized()[0].messages[:-1]] == ["go"]
        gate.go.set()
        assert (await submission.wait()).text == "fine"
        assert (await compaction).status == "placed"


async def test_asking_twice_joins_and_other_wishes_get_a_summary_of_their_own_afterwards() -> None:
    hold = asyncio.Event()
    model = Counting(summary=lambda request: say("NOTES").held_by(hold))
    async with agent(model) as (_, root):
        await talk(root, 6)
        first, second = await root.compact(), await root.compact()
        third = await root.compact("keep names")
        assert first.task_id == second.task_id != third.task_id
        await settle()
        assert len(model.summarized()) == 1
        hold.set()
        assert [(await each).status for each in (first, second)] == ["placed", "placed"]
        assert (await third).status == "placed"
        assert len(model.summarized()) == 2
        assert sum(OPENING in text_of(m) for m in await root.messages()) == 1


async def test_nothing_older_is_a_clear_outcome_and_bad_wishes_are_refused() -> None:
    async with agent(Counting()) as (_, root):
        assert (await (await root.compact())).status == "nothing"
        await talk(root, 1)
        for bad in list[Any](["", " ", 5, "x" * 20_000]):
            with pytest.raises(InvalidValue):
                await root.compact(bad)


async def test_a_conversation_without_a_model_cannot_be_summarized() -> None:
    async with agent(Counting(), model=None) as (_, root):
        done = await (await root.compact())
        assert (done.status, "no model" in str(done.reason)) == ("failed", True)


async def test_an_abort_stops_a_summary_and_nothing_is_placed() -> None:
    model = Counting(summary=lambda request: say("NOTES").held_by(asyncio.Event()))
    async with agent(model) as (_, root):
        await talk(root, 4)
        compaction = await root.compact()
        await until(lambda: len(model.summarized()) == 1)
        assert [slot["status"] for slot in await compactions(root)] == ["running"]
        await root.abort()
        assert (await compaction).status == "aborted"
        assert [slot["status"] for slot in await compactions(root)] == ["aborted"]
        again = await root.compact()
        await until(lambda: len(model.summarized()) == 2)
        assert await again.abort()
        assert not await again.abort()
        assert await ask(root, "go on") == "fine"
        assert not summaries(model.requests[-1])


async def test_a_summary_that_comes_after_a_reset_is_stale() -> None:
    hold = asyncio.Event()
    model = Counting(summary=lambda request: say("NOTES").held_by(hold))
    async with agent(model) as (_, root):
        await talk(root, 4)
        compaction = await root.compact()
        await until(lambda: len(model.summarized()) == 1)
        await root.reset("Begin here.")
        hold.set()
        assert (await compaction).status == "stale"
        assert [text_of(m) for m in await root.messages()] == ["Begin here."]
        assert [slot["status"] for slot in await compactions(root)] == ["stale"]


# failures


async def test_failures_are_tried_again_after_durable_pauses_and_booked() -> None:
    clock, left = FakeClock(), [Overloaded("busy"), Overloaded("busy")]
    model = Counting(summary=lambda request: fail(left.pop()) if left else "NOTES", clock=clock)
    async with agent(model, clock=clock) as (_, root):
        await talk(root, 4)
        requests = (await root.usage())["requests"]
        compaction = await root.compact()
        await settle()
        (slot,) = await compactions(root)
        assert (slot["status"], slot["attempt"], slot["error"]) == ("waiting", 1, "overloaded: busy")
        await clock.advance(2)
        await clock.advance(4)
        assert (await compaction).status == "placed"
        usage = await root.usage()
        assert (usage["requests"], usage["unpriced"]) == (requests + 3, usage["requests"])
        assert usage["input"] == model.usage.input


async def test_a_failure_that_stays_ends_the_compaction_and_leaves_the_conversation_as_it_was() -> None:
    model = Counting(summary=lambda request: fail(AuthFailed("who are you?")))
    async with agent(model) as (_, root):
        await talk(root, 4)
        before = await root.messages()
        done = await (await root.compact())
        assert (done.status, done.reason) == ("failed", "who are you?")
        assert await root.messages() == before
        assert [slot["status"] for slot in await compactions(root)] == ["failed"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("", "the model gave no summary"),
        (say("word " * 1000), "the summary is no smaller than what it would replace"),
        (say("begun", stop="length"), "the model's summary was cut at its output limit"),
        (call("look"), "the model gave no summary"),
        (say("no", stop="refusal"), "the model declined to summarize"),
    ],
)
async def test_an_answer_that_is_no_summary_is_never_placed(answer: Any, reason: str) -> None:
    model = Counting(summary=lambda request: answer, context_window=None)
    async with agent(model) as (_, root):
        await talk(root, 4)
        before = await root.messages()
        done = await (await root.compact())
        assert (done.status, done.reason) == ("failed", reason)
        assert await root.messages() == before
        assert len(model.summarized()) == (1 if "declined" in reason else 3)


async def test_a_model_that_calls_tools_instead_is_shown_a_record_without_any() -> None:
    model = Counting(summary=lambda request: "NOTES" if "<record>" in str(request.messages) else call("look"))
    async with agent(model) as (_, root):
        await talk(root, 4)
        assert (await (await root.compact())).status == "placed"
        assert model.requests[-1].tools == []
        assert len(model.requests[-1].messages) == 1
        assert "Person: 0 word" in text_of(model.requests[-1].messages[0])


# hooks


async def test_a_hook_may_decline_or_write_the_summary_and_the_first_that_decides_counts() -> None:
    first, second, plans = Extension("first"), Extension("second"), list[CompactionPlan]()
    answers: list[Any] = []

    @first.before_compact
    async def decide(ctx: Any, plan: CompactionPlan) -> Any:
        plans.append(plan)
        plan.messages.clear()
        return answers.pop() if answers else None

    @second.before_compact
    async def own(ctx: Any, plan: CompactionPlan) -> Any:
        plans.append(plan)
        return None

    model = Counting()
    async with agent(model, first, second, settings=small()) as (harness, root):
        await talk(root, 4)
        answers.append(Decline("not now"))
        assert await (await root.compact("x")) == Compacted("declined", None, "not now")
        assert [(plan.cause, plan.instructions) for plan in plans] == [("manual", "x")]
        answers.append("nonsense")
        assert (await (await root.compact())).status == "placed"
        assert reports(harness) == ["hook first.decide"]
        assert len(plans) == 3
        assert plans[2].messages
        assert plans[2].older_tokens > 0
        await talk(root, 4)
        answers.append(Summary("of my own"))
        asked = len(model.requests)
        assert (await (await root.compact())).status == "placed"
        assert (await root.messages())[0] == UserMessage(OPENING + "of my own")
        assert len(model.requests) == asked
        assert len(plans) == 4
