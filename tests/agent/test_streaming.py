"""An answer while it streams: committed state, kept after a crash, never shown to the model half."""

from typing import Any

from perdure import AssistantMessage, Text, Thinking, ToolCall
from perdure.agent.documents import LiveDoc
from perdure.agent.streaming import Partial, cut_message, sound
from perdure.base.delta import apply
from perdure.models.messages import decode_messages
from perdure.models.protocol import Event, TextDelta, ThinkingDelta, ToolCallDelta
from perdure.storage.memory import MemoryStorage
from perdure.testing.clock import FakeClock, settle
from perdure.testing.scripted_model import ScriptedModel, call, say, think
from tests.agent.kit import agent


def test_operations_applied_one_after_another_give_the_blocks() -> None:
    events: list[Event] = [
        ThinkingDelta(0, "hm"),
        TextDelta(1, "a"),
        TextDelta(1, "\ud83d"),
        TextDelta(1, "\ude00b"),
        ToolCallDelta(2, id="1", name="read"),
        ToolCallDelta(2, arguments='{"x'),
        TextDelta(3, ""),
        ToolCallDelta(2, arguments='":1}'),
    ]
    for every in range(1, 9):
        partial, value = Partial("scripted:model"), {"partial": None}
        for number, event in enumerate(events):
            partial.add(event)
            if number % every == 0 and partial.changed:
                value = apply(value, partial.take_operations())
        if partial.changed:
            value = apply(value, partial.take_operations())
        assert value["partial"] == {
            "model": "scripted:model",
            "blocks": [
                {"type": "thinking", "text": "hm"},
                {"type": "text", "text": "a😀b"},
                {"type": "tool_call", "id": "1", "name": "read", "arguments": '{"x":1}'},
                {"type": "text", "text": ""},
            ],
        }


def test_a_cut_answer_keeps_text_and_thinking_and_leaves_calls_out() -> None:
    blocks = [{"type": kind, "text": "x", "id": "1", "name": "n"} for kind in ("text", "thinking", "tool_call")]
    made = cut_message(blocks, "a:b", "aborted", "why")
    assert (made.content, made.stop, made.error) == ([Text("x"), Thinking("x")], "aborted", "why")


def test_a_sound_answer_has_ids_of_their_own_and_is_left_as_it_is_where_nothing_is_wrong() -> None:
    calls: list[Any] = [ToolCall(id, "t", {}) for id in ("a", "a", "", "", "call_2", "a_1")]
    made = sound(AssistantMessage([Text("x"), *calls]))
    ids = [block.id for block in made.content if isinstance(block, ToolCall)]
    assert len(set(ids)) == 6
    assert sound(made) == made


async def test_what_streams_is_seen_live_and_after_a_close_stays_as_an_aborted_entry() -> None:
    clock, storage = FakeClock(), MemoryStorage()
    slow = say("one two three four").after(0.2, between=0.2)
    model = ScriptedModel([slow, "whole"], clock=clock)
    async with agent(model, storage=storage, clock=clock) as (harness, root):
        await root.submit("a")
        await settle()
        await clock.advance(0.5)
        live = await harness.session.value_of(LiveDoc, root.id)
        assert live["partial"]["blocks"] == [{"type": "text", "text": "one two three fo"}]
    async with agent(model, storage=storage, clock=clock) as (harness, root):
        await harness.resume()
        await root.wait_idle()
        stored = [decode_messages(e.messages)[0] for e in await root.entries() if e.kind == "perdure.assistant"]
        assert [getattr(message, "stop", None) for message in stored] == ["aborted", "stop"]
        assert getattr(stored[0], "content", None) == [Text("one two three fo")]
        assert model.requests[0].messages == model.requests[1].messages
        assert model.requests[0].system == model.requests[1].system
        assert (await harness.usage())["requests"] == 2


async def test_an_abort_while_it_streams_keeps_what_was_committed() -> None:
    clock = FakeClock()
    model = ScriptedModel([[think("hm"), "one two three four", call("x")]], clock=clock)
    model._turns = [model._take(None).after(0.2, between=0.2)]  # type: ignore[arg-type]
    model._next = 0
    async with agent(model, clock=clock) as (_, root):
        submission = await root.submit("a")
        await settle()
        await clock.advance(1.0)
        await root.abort()
        assert (await submission.settled()).reason == "aborted"
        (kept,) = [decode_messages(e.messages)[0] for e in await root.entries() if e.kind == "perdure.assistant"]
        assert isinstance(kept, AssistantMessage)
        assert kept.content[0] == Thinking("hm")
        assert (await root.live())["partial"] is None
