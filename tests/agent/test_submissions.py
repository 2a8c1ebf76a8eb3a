"""What is admitted, once, and where it waits."""

import asyncio
from typing import Any

import pytest

from perdure import Busy, Extension, InvalidValue, RequestConflict, Text, Unanswered
from perdure.storage.memory import MemoryStorage
from perdure.testing.scripted_model import ScriptedModel, call, say
from tests.agent.kit import Gate, agent, ask, said, until


def gated() -> tuple[Extension, Gate]:
    gate = Gate()
    extension = Extension("gated")

    @extension.tool
    async def work(ctx: Any) -> str:
        """Work."""
        await gate.stop()
        return "worked"

    return extension, gate


async def test_the_same_request_id_and_content_is_the_same_submission() -> None:
    async with agent(["one"]) as (_, root):
        first = await root.submit("a", request_id="job")
        while_undecided = await root.submit("a", request_id="job", when_busy="steer")
        answer = await first.wait()
        settled = await root.submit("a", request_id="job", when_busy="reject")
        assert first.id == while_undecided.id == settled.id
        assert (await settled.wait()) == answer
        assert await said(root) == ["a"]


async def test_another_content_under_a_used_request_id_is_a_conflict_and_stores_nothing() -> None:
    async with agent(["one", "two"]) as (harness, root):
        await ask(root, "the secret", request_id="job")
        before = harness.session.seq
        with pytest.raises(RequestConflict) as caught:
            await root.submit("other", request_id="job")
        assert "secret" not in str(caught.value)
        assert harness.session.seq == before
        assert await ask(root, "other", request_id="job-2") == "two"


async def test_the_order_of_json_keys_does_not_make_another_request() -> None:
    async with agent(["one"]) as (_, root):
        first = await root.submit([{"type": "text", "text": "a"}], request_id="job")
        again = await root.submit([{"text": "a", "type": "text"}], request_id="job")
        typed = await root.submit([Text("a")], request_id="job")
        assert first.id == again.id == typed.id


async def test_twenty_submits_at_once_are_one() -> None:
    model = ScriptedModel(["one"])
    async with agent(model) as (_, root):
        submissions = await asyncio.gather(*(root.submit("a", request_id="job") for _ in range(20)))
        answers = await asyncio.gather(*(submission.wait() for submission in submissions))
        assert len({submission.id for submission in submissions}) == 1
        assert {answer.text for answer in answers} == {"one"}
        assert len(model.requests) == 1


async def test_a_request_id_holds_after_a_restart() -> None:
    storage = MemoryStorage()
    async with agent(["one"], storage=storage) as (_, root):
        first = await root.submit("a", request_id="job")
        answer = await first.wait()
    async with agent([], storage=storage) as (_, root):
        again = await root.submit("a", request_id="job")
        assert (again.id, await again.wait()) == (first.id, answer)
        with pytest.raises(RequestConflict):
            await root.submit("b", request_id="job")


async def test_a_fork_has_request_ids_of_its_own() -> None:
    async with agent(["one", "two"]) as (_, root):
        first = await (await root.submit("a", request_id="job")).wait()
        fork = await root.fork(first.entry_id)
        assert await ask(fork, "b", request_id="job") == "two"


@pytest.mark.parametrize("bad", ["", "x" * 201, "a\nb", "\x00", "\ud800", 5])
async def test_a_request_id_that_is_no_short_printable_text_is_refused(bad: Any) -> None:
    async with agent([]) as (_, root):
        with pytest.raises(InvalidValue):
            await root.submit("a", request_id=bad)


@pytest.mark.parametrize("id", ["../../x", "..%2f..%2fx", "/etc/x", "a/b", "C:\\x", "．．", "x" * 200])
async def test_a_request_id_is_a_text_and_never_a_path(id: str) -> None:
    async with agent(["one"]) as (_, root):
        assert await ask(root, request_id=id) == "one"


@pytest.mark.parametrize("bad", ["", [], 5, None, {"text": "a"}, [{"type": "thinking", "text": "a"}], ["a"], "\ud800"])
async def test_an_input_that_is_no_text_and_no_list_of_blocks_is_refused(bad: Any) -> None:
    async with agent([]) as (harness, root):
        with pytest.raises(InvalidValue):
            await root.submit(bad)
        assert await said(root) == []
        assert harness.wake().active is False


async def test_an_unknown_way_of_waiting_is_refused() -> None:
    async with agent([]) as (_, root):
        with pytest.raises(InvalidValue, match="when_busy"):
            await root.submit("a", when_busy="later")  # type: ignore[arg-type]


async def test_reject_while_busy_stores_nothing_and_leaves_the_request_id_free() -> None:
    extension, gate = gated()
    async with agent([call("work"), "one", "two"], extension) as (harness, root):
        first = await root.submit("a")
        await gate.reached.wait()
        before = harness.session.seq
        with pytest.raises(Busy):
            await root.submit("b", request_id="job", when_busy="reject")
        assert harness.session.seq == before
        gate.go.set()
        await first.wait()
        assert await ask(root, "other", request_id="job", when_busy="reject") == "two"


async def test_a_follow_up_waits_for_the_end_of_the_run_and_a_steer_for_the_end_of_the_round() -> None:
    extension, gate = gated()
    model = ScriptedModel([call("work"), "steered", "followed"])
    async with agent(model, extension) as (_, root):
        first = await root.submit("a")
        await gate.reached.wait()
        follow = await root.submit("follow")
        steer = await root.submit("steer", when_busy="steer")
        assert [await s.status() for s in (first, follow, steer)] == ["placed", "queued", "queued"]
        gate.go.set()
        assert (await first.wait()).text == (await steer.wait()).text == "steered"
        assert (await follow.wait()).text == "followed"
        assert await said(root) == ["a", "steer", "follow"]


async def test_waiting_raises_for_an_unanswered_input_and_settled_does_not() -> None:
    async with agent([]) as (_, root):
        submission = await root.submit("a")
        settled = await submission.settled()
        assert (settled.status, settled.reason, settled.answer) == ("unanswered", "failed", None)
        with pytest.raises(Unanswered) as caught:
            await submission.wait()
        assert caught.value.reason == "failed"
        assert await submission.status() == "unanswered"


async def test_cancelling_a_wait_changes_nothing() -> None:
    go = asyncio.Event()
    async with agent([say("one").held_by(go)]) as (_, root):
        submission = await root.submit("a")
        waits = [asyncio.create_task(wait()) for wait in (submission.wait, submission.settled)]
        await asyncio.sleep(0)
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
        go.set()
        assert (await submission.wait()).text == "one"


async def test_aborting_a_queued_submission_withdraws_it_alone() -> None:
    extension, gate = gated()
    async with agent([call("work"), "one", "two"], extension) as (_, root):
        first = await root.submit("a")
        await gate.reached.wait()
        unwanted, wanted = await root.submit("b"), await root.submit("c")
        assert await unwanted.abort()
        assert not await unwanted.abort()
        gate.go.set()
        assert (await first.wait()).text == "one"
        assert (await wanted.wait()).text == "two"
        assert (await unwanted.settled()).reason == "withdrawn"


async def test_aborting_a_placed_submission_aborts_its_run_and_a_settled_one_is_left_alone() -> None:
    extension, gate = gated()
    async with agent([call("work"), "two"], extension) as (_, root):
        first = await root.submit("a")
        await gate.reached.wait()
        assert await first.abort()
        assert (await first.settled()).reason == "aborted"
        await root.wait_idle()
        second = await root.submit("b")
        await second.wait()
        assert not await second.abort()
        assert await second.status() == "done"


async def test_a_waiter_learns_that_the_session_was_closed() -> None:
    go = asyncio.Event()
    waits = []
    async with agent([say("one").held_by(go)]) as (_, root):
        submission = await root.submit("a")
        waits = [asyncio.create_task(submission.wait()), asyncio.create_task(root.wait_idle())]
        await until(lambda: all(wait.get_stack() for wait in waits))
    outcomes = await asyncio.wait_for(asyncio.gather(*waits, return_exceptions=True), 2)
    assert [type(outcome).__name__ for outcome in outcomes] == ["SessionClosed", "SessionClosed"]
