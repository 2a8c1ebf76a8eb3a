"""Room for the next request: summaries in the background, at the limit, and when a provider finds it too long."""

import asyncio
from typing import Any

import pytest

from perdure import Settings, Usage
from perdure.agent.summary import OPENING
from perdure.models.errors import BadRequest, ContextTooLong
from perdure.models.messages import UserMessage, text_of
from perdure.models.protocol import ModelRequest
from perdure.storage.memory import MemoryStorage
from perdure.testing.clock import settle
from perdure.testing.scripted_model import Turn, fail, say
from tests.agent.compacting import LONG, Counting, compactions, is_summary, small, summaries, talk
from tests.agent.kit import agent, ask

# by itself


async def test_near_the_limit_a_summary_is_made_while_the_conversation_goes_on() -> None:
    hold = asyncio.Event()
    model = Counting(summary=lambda request: say("NOTES").held_by(hold))
    async with agent(model, settings=small()) as (_, root):
        await talk(root, 13)
        assert len(model.summarized()) == 1
        assert [(s["cause"], s["status"]) for s in await compactions(root)] == [("background", "running")]
        assert not any(summaries(request) for request in model.asked())
        await root.wait_idle()  # it is not part of that
        hold.set()
        await settle()
        await talk(root, 1)
        assert summaries(model.requests[-1]) == 1
        assert [(s["cause"], s["status"]) for s in await compactions(root)] == [("background", "placed")]


async def test_at_the_limit_the_next_request_waits_for_the_summary() -> None:
    model = Counting(summary=lambda request: "NOTES")
    async with agent(model, settings=small(background_tokens=0)) as (_, root):
        await talk(root, 60)
        assert len(model.summarized()) >= 2
        assert all(bool(summaries(request) <= 1) for request in model.requests)
        assert max(request_size(request) for request in model.asked()) <= 1_600
        assert {slot["cause"] for slot in await compactions(root)} == {"blocking"}


def request_size(request: ModelRequest) -> int:
    return sum(len(text_of(m)) for m in request.messages) // 4


async def test_a_request_that_has_to_wait_takes_the_summary_that_is_on_its_way() -> None:
    hold = asyncio.Event()
    model = Counting(summary=lambda request: say("NOTES").held_by(hold))
    async with agent(model, settings=small()) as (_, root):
        await talk(root, 13)
        submission = await root.submit(LONG * 12)
        await settle()
        assert await submission.status() == "placed"
        assert len(model.summarized()) == 1
        asked = len(model.asked())
        hold.set()
        assert (await submission.wait()).text == "fine"
        assert len(model.summarized()) == 1
        assert len(model.asked()) == asked + 1
        assert summaries(model.requests[-1]) == 1


async def test_an_abort_of_a_waiting_run_stops_its_own_summary_but_not_one_in_the_background() -> None:
    model = Counting(summary=lambda request: say("NOTES").held_by(asyncio.Event()))
    async with agent(model, settings=small()) as (_, root):
        await talk(root, 13)
        submission = await root.submit(LONG * 12)
        await settle()
        await root.abort()
        assert (await submission.settled()).reason == "aborted"
        assert [slot["status"] for slot in await compactions(root)] == ["running"]
        await root.abort(background=True)
        assert [slot["status"] for slot in await compactions(root)] == ["aborted"]
        other = await root.submit(LONG * 12)
        await settle()
        assert [(s["cause"], s["status"]) for s in await compactions(root)] == [("blocking", "running")]
        await root.abort()
        assert [slot["status"] for slot in await compactions(root)] == ["aborted"]
        assert (await other.settled()).reason == "aborted"


async def test_a_provider_that_finds_the_request_too_long_gets_a_shorter_one_once() -> None:
    def answer(request: ModelRequest) -> Any:
        return fail(ContextTooLong("9 tokens too many")) if len(request.messages) > 10 else "fine"

    model = Counting(answer, context_window=None)
    async with agent(model) as (_, root):
        await talk(root, 8)
        assert all(bool(summaries(request) <= 1) for request in model.requests)
        assert len(model.summarized()) >= 1


async def test_if_that_does_not_help_the_run_fails_with_the_words_of_the_provider() -> None:
    refuse: list[int] = []

    def answer(request: ModelRequest) -> Any:
        return fail(ContextTooLong("9 tokens too many")) if refuse else "fine"

    model = Counting(answer, context_window=None)
    async with agent(model) as (_, root):
        await talk(root, 4)
        refuse.append(1)
        asked = len(model.asked())
        settled = await (await root.submit("more")).settled()
        assert (settled.reason, settled.detail) == ("failed", "context_too_long: 9 tokens too many")
        assert len(model.asked()) == asked + 2
        assert len(model.summarized()) == 1
        refuse.clear()
        assert await ask(root, "now?") == "fine"


@pytest.mark.parametrize("automatic", [True, False])
async def test_one_message_larger_than_the_window_fails_with_the_words_of_the_provider(automatic: bool) -> None:
    model = Counting()
    async with agent(model, settings=small(automatic=automatic)) as (_, root):
        settled = await (await root.submit("word " * 3_000)).settled()
        assert settled.reason == "failed"
        assert "the context window holds 2000" in str(settled.detail)
        assert len(model.asked()) == 1
        assert not model.summarized()
        await root.reset()
        assert await ask(root, "smaller") == "fine"


async def test_after_a_huge_message_the_conversation_can_go_on_without_a_reset() -> None:
    model = Counting()
    async with agent(model, settings=small()) as (_, root):
        await talk(root, 2)
        assert (await (await root.submit("word " * 3_000)).settled()).reason == "failed"
        assert await ask(root, "smaller") == "fine"
        assert "<record>" in str(model.summarized()[-1].messages)  # it fits no request as it stands


async def test_what_is_too_long_for_one_request_is_summarized_part_by_part() -> None:
    def summary(request: ModelRequest) -> Any:
        return f"PART {len(model.summarized())}"

    model = Counting(summary=summary, context_window=None)
    async with agent(model) as (_, root):
        await talk(root, 60)
        model._context_window = 1_000
        assert (await (await root.compact())).status == "placed"
        parts = [text_of(request.messages[0]) for request in model.summarized()]
        assert len(parts) > 2
        assert all("<earlier-summary>\nPART" in part for part in parts[1:])
        joined = "".join(parts)
        assert all(f"Person: {number} word" in joined for number in range(20))
        assert (await root.messages())[0] == UserMessage(f"{OPENING}PART {len(parts)}")


async def test_a_background_summary_that_fails_is_not_tried_at_every_turn() -> None:
    model = Counting(summary=lambda request: fail(BadRequest("no")))
    async with agent(model, settings=small()) as (_, root):
        await talk(root, 15)
        assert 1 <= len(model.summarized()) <= 4
        await settle()
        assert {slot["status"] for slot in await compactions(root)} == {"failed"}


async def test_settings_count_from_the_next_request_on() -> None:
    model = Counting()
    settings = small(automatic=False)
    async with agent(model, settings=settings) as (harness, root):
        await talk(root, 13)
        assert not model.summarized()
        harness.settings.compaction.automatic = True
        await talk(root, 1)
        await settle()
        assert len(model.summarized()) == 1


async def test_a_model_whose_window_nobody_knows_is_left_alone() -> None:
    model = Counting(context_window=None)
    async with agent(model, settings=small()) as (_, root):
        await talk(root, 40)
        assert not model.summarized()


# forks and restarts


async def test_a_fork_before_or_behind_a_summary_reads_what_was_read_there() -> None:
    model = Counting()
    async with agent(model) as (_, root):
        await talk(root, 6)
        before = await root.messages()
        at = (await root.entries(newest_first=True, limit=1))[0].id
        done = await (await root.compact())
        assert done.entry_id is not None
        await talk(root, 1)
        early, late = await root.fork(at), await root.fork(done.entry_id)
        assert await early.messages() == before
        assert (await late.messages())[0] == UserMessage(OPENING + "NOTES")
        for fork, count in ((early, 0), (late, 1)):
            assert await ask(fork, "go on") == "fine"
            assert summaries(model.requests[-1]) == count


async def test_a_background_summary_is_made_by_the_next_process_and_placed_once() -> None:
    storage, hold = MemoryStorage(), asyncio.Event()
    model = Counting(summary=lambda request: say("NOTES").held_by(hold))
    async with agent(model, storage=storage, settings=small()) as (_, root):
        await talk(root, 13)
    hold.set()
    model = Counting()
    async with agent(model, storage=storage, settings=small()) as (harness, root):
        await harness.resume()
        await settle()
        assert len(model.summarized()) == 1
        await talk(root, 1, first=13)
        assert summaries(model.requests[-1]) == 1
        kinds = [entry.kind for entry in await root.entries(limit=1000)]
        assert kinds.count("perdure.summary") == 1


async def test_a_summary_of_its_own_kind_of_usage_is_booked_where_it_was_made() -> None:
    model = Counting(summary=lambda request: Turn(say("NOTES").content, usage=Usage(input=7, output=3)))
    async with agent(model, settings=Settings()) as (harness, root):
        await talk(root, 4)
        await (await root.compact())
        assert (await root.usage())["input"] == model.usage.input
        assert await harness.usage() == await root.usage()
        assert any(is_summary(request) for request in model.requests)
