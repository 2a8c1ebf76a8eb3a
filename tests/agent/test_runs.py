"""The boundaries of a conversation: what is placed when, and what becomes of it when a run fails or is stopped."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from perdure import ConversationId, Extension, ResetEntry, Settings, UserMessage, entry
from perdure.models.errors import BadRequest
from perdure.storage.memory import MemoryStorage
from perdure.testing.scripted_model import ScriptedModel, call, fail, say
from tests.agent.kit import Gate, agent, ask, said, texts, until


@entry("test.note")
@dataclass(frozen=True)
class Note:
    text: str

    def to_model(self) -> list[UserMessage]:
        return [UserMessage(self.text)]


def gated() -> tuple[Extension, Gate]:
    gate = Gate()
    extension = Extension("gated")

    @extension.tool
    async def work(ctx: Any) -> str:
        """Work."""
        await gate.stop()
        return "worked"

    return extension, gate


async def test_while_nothing_is_open_an_input_and_a_write_are_placed_at_once() -> None:
    async with agent(["one"]) as (_, root):
        write = await root.write(Note("noted"))
        assert await write.status() == "done"
        submission = await root.submit("a")
        assert await submission.status() == "placed"
        await submission.wait()
        assert await said(root) == ["noted", "a"]


async def test_after_a_round_all_writes_come_first_then_steers_and_follow_ups_stay() -> None:
    extension, gate = gated()
    model = ScriptedModel([call("work"), "steered", "followed"])
    async with agent(model, extension) as (_, root):
        first = await root.submit("a")
        await gate.reached.wait()
        follow = await root.submit("f")
        for text in ("s1", "s2"):
            await root.submit(text, when_busy="steer")
        writes = [await root.write(Note(text)) for text in ("w1", "w2")]
        assert [await w.status() for w in writes] == ["queued", "queued"]
        gate.go.set()
        await first.wait()
        await follow.wait()
        assert texts(model.requests) == [["a"], ["a", "w1", "w2", "s1", "s2"], ["a", "w1", "w2", "s1", "s2", "f"]]


async def test_in_steer_mode_one_a_single_steer_joins_at_each_boundary() -> None:
    extension, gate = gated()
    model = ScriptedModel([call("work"), call("work"), "end", "next"])
    async with agent(model, extension, settings=Settings(steer_mode="one")) as (_, root):
        first = await root.submit("a")
        await gate.reached.wait()
        steers = [await root.submit(f"s{n}", when_busy="steer") for n in (1, 2, 3)]
        gate.go.set()
        assert (await first.wait()).text == "end"
        assert (await steers[2].wait()).text == "next"
        assert [len(request) for request in texts(model.requests)] == [1, 2, 3, 4]


@pytest.mark.parametrize(("mode", "requests"), [("one", [["f1"], ["f1", "f2"]]), ("all", [["f1", "f2"]])])
async def test_follow_ups_start_the_next_run_one_by_one_or_all_together(mode: Any, requests: list[list[str]]) -> None:
    go = asyncio.Event()
    model = ScriptedModel([say("one").held_by(go), "two", "three"])
    async with agent(model, settings=Settings(follow_up_mode=mode)) as (_, root):
        await root.submit("a")
        follows = [await root.submit(text) for text in ("f1", "f2")]
        go.set()
        for follow in follows:
            await follow.wait()
        assert texts(model.requests)[1:] == [["a", *request] for request in requests]


async def test_a_steer_that_comes_during_the_final_answer_starts_the_next_run_before_follow_ups() -> None:
    go = asyncio.Event()
    model = ScriptedModel([say("one").held_by(go), "two", "three"])
    async with agent(model, settings=Settings(follow_up_mode="all")) as (_, root):
        first = await root.submit("a")
        follow = await root.submit("f")
        steer = await root.submit("s", when_busy="steer")
        go.set()
        assert (await first.wait()).text == "one"
        assert (await steer.wait()).text == (await follow.wait()).text == "two"
        assert await said(root) == ["a", "s", "f"]


async def test_a_write_whose_head_lies_before_the_range_is_stale() -> None:
    async with agent(["one"]) as (_, root):
        first = await (await root.submit("a")).wait()
        await root.write(Note("new beginning"), head=True)
        stale = await root.write(Note("old"), head=first.entry_id)
        assert (await stale.settled()).reason == "stale"
        assert await said(root) == ["new beginning"]


async def test_a_new_beginning_during_a_round_keeps_the_prompt_and_the_tools() -> None:
    extension, gate = gated()
    model = ScriptedModel([call("work"), "one"])
    async with agent(model, extension, instructions="Be brief.") as (_, root):
        first = await root.submit("a")
        await gate.reached.wait()
        await root.write(Note("new beginning"), head=True)
        gate.go.set()
        await first.settled()
        for request in model.requests:
            assert request.system == "Be brief."
            assert [offer.name for offer in request.tools] == ["work"]


@pytest.mark.parametrize("how", ["follow_up", "steer", "reject"])
async def test_a_failed_run_leaves_the_inbox_and_its_items_go_first_with_the_next_submission(how: Any) -> None:
    go = asyncio.Event()
    model = ScriptedModel([fail(BadRequest("no")).held_by(go), "two"])
    async with agent(model) as (_, root):
        first = await root.submit("a")
        follow = await root.submit("f")
        steer = await root.submit("s", when_busy="steer")
        go.set()
        assert (await first.settled()).reason == "failed"
        assert [await s.status() for s in (follow, steer)] == ["queued", "queued"]
        last = await root.submit("b", when_busy=how)
        for submission in (follow, steer, last):
            assert (await submission.wait()).text == "two"
        assert await said(root) == ["a", "s", "f", "b"]


async def test_a_write_after_a_failed_run_waits_behind_what_is_queued() -> None:
    go = asyncio.Event()
    async with agent([fail(BadRequest("no")).held_by(go), "two"]) as (_, root):
        first = await root.submit("a")
        await root.submit("f")
        go.set()
        await first.settled()
        write = await root.write(Note("w"))
        assert await write.status() == "queued"
        await ask(root, "b")
        assert await write.status() == "done"


async def test_abort_withdraws_queued_inputs_in_the_commit_that_marks_the_work() -> None:
    extension, gate = gated()
    async with agent([call("work")], extension) as (harness, root):
        first = await root.submit("a")
        await gate.reached.wait()
        follow, steer = await root.submit("f"), await root.submit("s", when_busy="steer")
        write = await root.write(Note("w"))
        commits: list[set[str]] = []
        harness.session.listeners.append(
            lambda p: commits.append(
                {f"{s.id} {s.reason}" for s in p.submissions}
                | {"marked" for change in p.tasks if change.after.abort_requested}
            )
        )
        await root.abort()
        withdrawing = next(commit for commit in commits if f"{follow.id} withdrawn" in commit)
        assert {f"{steer.id} withdrawn", "marked"} < withdrawing
        assert (await first.settled()).reason == "aborted"
        assert await write.status() == "queued"
        assert await said(root) == ["a"]


async def test_abort_can_leave_the_inbox_alone() -> None:
    extension, gate = gated()
    async with agent([call("work"), "two"], extension) as (_, root):
        await root.submit("a")
        await gate.reached.wait()
        steer = await root.submit("s", when_busy="steer")
        await root.abort(keep_queued=True)
        assert await steer.status() == "queued"
        assert await ask(root, "b") == "two"
        assert await said(root) == ["a", "s", "b"]


async def test_abort_while_idle_withdraws_what_a_failed_run_left() -> None:
    go = asyncio.Event()
    async with agent([fail(BadRequest("no")).held_by(go), "two"]) as (harness, root):
        first = await root.submit("a")
        follow = await root.submit("f")
        go.set()
        await first.settled()
        await root.abort()
        assert (await follow.settled()).reason == "withdrawn"
        before = harness.session.seq
        await root.abort()
        assert harness.session.seq == before
        assert await ask(root, "b") == "two"


async def test_abort_while_the_answer_streams_keeps_what_came_out_of_the_models_sight() -> None:
    go = asyncio.Event()
    model = ScriptedModel([say("one").held_by(go), "two"])
    async with agent(model) as (_, root):
        first = await root.submit("a")
        await until(lambda: model.requests)
        await asyncio.gather(root.abort(), root.abort())
        assert (await first.settled()).reason == "aborted"
        assert await ask(root, "b") == "two"
        assert texts(model.requests)[1] == ["a", "b"]


async def test_an_aborted_run_stays_aborted_after_a_restart() -> None:
    storage = MemoryStorage()
    extension, gate = gated()
    async with agent([call("work")], extension, storage=storage) as (harness, root):
        submission = await root.submit("a")
        await gate.reached.wait()
        await harness.actions.abort(root.id, background=False, keep_queued=False)
    async with agent(["two"], extension, storage=storage) as (_, root):
        await root.wait_idle()
        again = await root.submit("b")
        assert (await again.wait()).text == "two"
        records = [await s.settled() for s in (type(again)(root._harness, root.id, submission.id),)]
        assert records[0].reason == "aborted"


async def test_a_conversation_that_is_not_there_takes_nothing() -> None:
    async with agent([]) as (harness, root):
        strange = type(root)(harness, ConversationId(999_999))
        for act in (strange.submit("a"), strange.abort(), strange.configure(model="a:b"), strange.entries()):
            with pytest.raises(Exception, match="conversation") as caught:
                await act
            assert getattr(caught.value, "code", "") == "not_found"


async def test_a_reset_with_a_note_begins_anew() -> None:
    model = ScriptedModel(["one", "two"])
    async with agent(model) as (_, root):
        await ask(root, "a")
        await root.write(ResetEntry(UserMessage("what matters")), head=True)
        await ask(root, "b")
        assert texts(model.requests)[1] == ["what matters", "b"]
