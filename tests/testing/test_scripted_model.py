"""The scripted model: what it says, what it refuses, what it remembers."""

import asyncio
from typing import Any

import pytest

from perdure.models.errors import BadRequest, ContextTooLong, CutOff, ModelError, RateLimited, UnknownModel
from perdure.models.messages import (
    AssistantMessage,
    Attachment,
    Message,
    SystemMessage,
    Text,
    Thinking,
    ToolCall,
    ToolOffer,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from perdure.models.protocol import Event, Finished, Model, ModelRequest, Models, TextDelta, ToolCallDelta
from perdure.testing.clock import FakeClock, settle
from perdure.testing.scripted_model import OutOfTurns, ScriptedModel, call, cut, fail, say, think, wait


def request(*more: Message, **fields: Any) -> ModelRequest:
    return ModelRequest([UserMessage("hello"), *more], **fields)


async def events(model: Model, asked: ModelRequest | None = None) -> list[Event]:
    return [event async for event in model.stream(asked or request())]


async def answer(model: Model, asked: ModelRequest | None = None) -> AssistantMessage:
    last = (await events(model, asked))[-1]
    assert isinstance(last, Finished)
    return last.message


def turn(*ids: str) -> AssistantMessage:
    return AssistantMessage([ToolCall(call_id, "a", {}) for call_id in ids], stop="tool_calls")


def result(call_id: str) -> ToolResultMessage:
    return ToolResultMessage(call_id, "a", "ok")


async def test_it_is_a_model_and_resolves_names() -> None:
    script = ScriptedModel(["one", "two"])
    models: Models = script
    assert (await answer(models.model("any:name"))).model == "any:name"
    assert (await answer(script)).model == "scripted:model"
    with pytest.raises(UnknownModel, match="a:x"):
        ScriptedModel([], names=["a:x"]).model("a:y")


async def test_it_streams_chunks_and_ends_in_the_whole_message() -> None:
    script = ScriptedModel([[think("hm"), say("hello")]], chunk=3)
    seen = await events(script)
    assert [event for event in seen if isinstance(event, TextDelta)] == [TextDelta(1, "hel"), TextDelta(1, "lo")]
    last = seen[-1]
    assert isinstance(last, Finished)
    assert last.message.content == [Thinking("hm"), Text("hello")]
    assert last.message.usage == Usage(input=100, output=10)


async def test_several_calls_are_parallel_and_ids_follow_from_the_place() -> None:
    script = ScriptedModel([[call("a", {"x": 1}), call("b", '{"x":')], call("c"), "done"])
    first = await answer(script)
    assert first.stop == "tool_calls"
    assert first.content == [ToolCall("call_0_0", "a", {"x": 1}), ToolCall("call_0_1", "b", '{"x":')]
    history: list[Message] = [first, ToolResultMessage("call_0_0", "a", "1"), ToolResultMessage("call_0_1", "b", "2")]
    assert (await answer(script, request(*history))).content == [ToolCall("call_1_0", "c", {})]


async def test_raw_arguments_stream_as_they_stand() -> None:
    seen = await events(ScriptedModel([call("b", '{"x":')], chunk=2))
    assert "".join(event.arguments for event in seen if isinstance(event, ToolCallDelta)) == '{"x":'


async def test_a_cut_stream_yields_so_many_deltas_and_raises() -> None:
    script = ScriptedModel([cut(2, "hello world")], chunk=3)
    seen: list[Event] = []

    async def ask() -> None:
        async for event in script.stream(request()):
            seen.append(event)

    with pytest.raises(CutOff):
        await ask()
    assert seen == [TextDelta(0, "hel"), TextDelta(0, "lo ")]
    assert script.usage == Usage()


async def test_waiting_happens_on_the_injected_clock() -> None:
    clock = FakeClock()
    script = ScriptedModel([wait(60.0, "late")], clock=clock)
    asking = asyncio.create_task(answer(script))
    await settle()
    assert not asking.done()
    await clock.advance(60.0)
    assert (await asking).content == [Text("late")]


async def test_a_held_turn_can_be_cancelled() -> None:
    asking = asyncio.create_task(answer(ScriptedModel([say("never").held_by(asyncio.Event())])))
    await settle()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_running_out_of_turns_is_said_clearly() -> None:
    script = ScriptedModel(["only"])
    await answer(script)
    with pytest.raises(OutOfTurns, match="holds 1 turns, and turn 2"):
        await answer(script)
    with pytest.raises(OutOfTurns):
        await answer(ScriptedModel.by_progress([]))


async def test_the_ledger_counts_what_finished_answers_reported() -> None:
    script = ScriptedModel(["a", fail(RateLimited("no")), cut(1, "bc"), say("d", usage=Usage(7, 3))])
    for _ in range(4):
        try:
            await answer(script)
        except ModelError:
            continue
    assert script.usage == Usage(input=107, output=13)
    assert len(script.requests) == 4


async def test_a_function_sees_the_request() -> None:
    script = ScriptedModel(lambda asked: f"{len(asked.messages)} messages")
    assert (await answer(script)).content == [Text("1 messages")]


async def test_by_progress_a_second_process_goes_on_where_the_first_was() -> None:
    turns = [call("a"), call("b"), say("done")]
    first = await answer(ScriptedModel.by_progress(turns))
    history: list[Message] = [first, ToolResultMessage("call_0_0", "a", "1")]
    again = ScriptedModel.by_progress(turns)
    for _ in range(2):  # a request sent again gets the same turn
        assert (await answer(again, request(*history))).content == [ToolCall("call_1_0", "b", {})]


async def test_by_progress_a_failing_turn_delays_the_next_one_once_per_conversation() -> None:
    script = ScriptedModel.by_progress([fail(RateLimited("no")), "done"])
    for session in ("s1", "s2"):
        with pytest.raises(RateLimited):
            await answer(script, request(session_id=session))
        assert (await answer(script, request(session_id=session))).content == [Text("done")]


REFUSED: dict[str, ModelRequest] = {
    "nothing": ModelRequest([]),
    "begins with the model": ModelRequest([AssistantMessage([Text("hi")]), UserMessage("hi")]),
    "ends with the model": request(AssistantMessage([Text("hi")])),
    "a call without a result": request(turn("1"), UserMessage("and?")),
    "a call without a result at the end": request(turn("1")),
    "one of two results is missing": request(turn("1", "2"), result("1")),
    "results out of order": request(turn("1", "2"), result("2"), result("1")),
    "an orphan": request(result("1")),
    "a second result": request(turn("1"), result("1"), result("1")),
    "a late result": request(turn("1"), UserMessage("x"), result("1")),
    "an id used twice in a turn": request(turn("1", "1"), result("1"), result("1")),
    "an id used twice in the request": request(turn("1"), result("1"), turn("1"), result("1")),
    "an empty turn": request(AssistantMessage([]), UserMessage("x")),
    "a turn that was cut off": request(AssistantMessage([Text("h")], stop="aborted"), UserMessage("x")),
    "half a character": request(UserMessage("\ud83d")),
    "half a character in the prompt": request(system="\ud83d"),
    "half a character in arguments": request(
        AssistantMessage([ToolCall("1", "a", {"x": "\ud83d"})], stop="tool_calls"), result("1")
    ),
    "no number": request(AssistantMessage([ToolCall("1", "a", {"x": float("nan")})]), result("1")),
    "a system message": request(SystemMessage({"a": "b"})),
    "two tools of one name": request(tools=[ToolOffer("a", "", {}), ToolOffer("a", "", {})]),
    "an attachment that cannot be read": request(UserMessage([Attachment("d", "image/png")])),
}


@pytest.mark.parametrize("asked", REFUSED.values(), ids=REFUSED)
async def test_it_refuses_what_a_strict_provider_refuses(asked: ModelRequest) -> None:
    script = ScriptedModel(["fine"])
    with pytest.raises(BadRequest):
        await answer(script, asked)
    assert script.requests == [asked]
    assert (await answer(script)).content == [Text("fine")]  # a refused request uses no turn up


async def test_it_takes_a_proper_tool_round() -> None:
    script = ScriptedModel(["fine"], system_updates=True)
    asked = request(
        turn("1", "2"), result("1"), result("2"), SystemMessage({"a": "b"}), UserMessage("x"), turn("3"), result("3")
    )
    assert (await answer(script, asked)).content == [Text("fine")]


async def test_what_does_not_fit_is_too_long() -> None:
    script = ScriptedModel(["fine", "fine"], context_window=100)
    with pytest.raises(ContextTooLong):
        await answer(script, request(UserMessage("x" * 400)))
    assert (await answer(script, request(UserMessage("x" * 300)))).content == [Text("fine")]
