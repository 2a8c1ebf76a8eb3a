"""What goes out and comes in, on a real connection."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest

from perdure.models.errors import BadRequest
from perdure.models.messages import (
    AssistantMessage,
    Attachment,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolOffer,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from perdure.models.protocol import ModelRequest, TextDelta, ThinkingDelta, ToolCallDelta
from perdure.models.provider import ProviderModels
from perdure.testing.fake_openai import FakeOpenAI
from tests.models.asking import answer, events, finished, hello
from tests.models.conftest import Serve

Make = Callable[[str], ProviderModels]


async def test_text_and_thinking_stream_and_end_in_one_message(serve: Serve, models: Make) -> None:
    server = serve([{"thinking": "let me see", "text": "hello there", "chunk": 6}])
    seen = await events(models(server.base_url).model("openai:m"), hello(system="be kind"))
    assert seen[:-1] == [
        ThinkingDelta(0, "let me"),
        ThinkingDelta(0, " see"),
        TextDelta(1, "hello "),
        TextDelta(1, "there"),
    ]
    message = finished(seen)
    assert [type(block) for block in message.content] == [Thinking, Text]
    assert message.stop == "stop"
    assert message.model == "openai:m"
    assert message.usage == Usage(input=100, output=10)
    assert server.requests[0]["messages"] == [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "hello"},
    ]


async def test_a_whole_tool_round_goes_back_as_it_came(serve: Serve, models: Make) -> None:
    server = serve(
        [{"thinking": "hm", "calls": [{"name": "a", "arguments": {"x": 1}}, {"name": "b"}]}, {"text": "done"}]
    )
    model = models(server.base_url).model("openai:m")
    offer = ToolOffer("a", "does a", {"type": "object", "properties": {"x": {"type": "integer"}}})
    seen = await events(model, hello(tools=[offer]))
    assert ToolCallDelta(1, id="call_0", name="a") in seen
    turn = finished(seen)
    assert turn.stop == "tool_calls"
    results = [ToolResultMessage("call_0", "a", "one"), ToolResultMessage("call_1", "b", "broke", is_error=True)]
    assert (await answer(model, hello(turn, *results, UserMessage("and?"), tools=[offer]))).content == [Text("done")]
    sent = server.requests[1]["messages"]
    assert sent[1]["reasoning_content"] == "hm"
    assert sent[1]["tool_calls"][0]["function"] == {"name": "a", "arguments": '{"x":1}'}
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "tool", "user"]
    assert "broke" in sent[3]["content"]
    assert server.requests[1]["tools"][0]["function"]["name"] == "a"
    assert server.requests[1]["messages"][:1] == server.requests[0]["messages"]


@pytest.mark.parametrize("raw", ['{"x":', "[1, 2]", "null", '"text"', "{'x': 1}", '{"x": NaN}', '{"x": 1e999}'])
async def test_arguments_that_are_no_object_stay_raw_and_go_back_valid(serve: Serve, models: Make, raw: str) -> None:
    server = serve([{"calls": [{"name": "a", "arguments": raw}]}, {"text": "ok"}])
    model = models(server.base_url).model("openai:m")
    turn = await answer(model)
    assert turn.content == [ToolCall("call_0", "a", raw)]
    await answer(model, hello(turn, ToolResultMessage("call_0", "a", "no JSON", is_error=True)))
    assert len(server.requests) == 2


async def test_equal_ids_are_told_apart_within_a_turn_and_within_a_request(serve: Serve, models: Make) -> None:
    twins = [{"name": "a", "id": "same"}, {"name": "b", "id": "same"}]
    server = serve([{"calls": twins}, {"calls": [{"name": "c", "id": "same"}]}, {"text": "ok"}])
    model = models(server.base_url).model("openai:m")
    first = await answer(model)
    ids = [block.id for block in first.content if isinstance(block, ToolCall)]
    assert len(set(ids)) == 2
    history: list[Message] = [first, *(ToolResultMessage(call_id, "t", call_id) for call_id in ids)]
    second = await answer(model, hello(*history))
    await answer(model, hello(*history, second, ToolResultMessage("same", "c", "third")))
    assert len(server.requests) == 3  # a strict server took them all
    assert server.requests[2]["messages"][: len(server.requests[1]["messages"])] == server.requests[1]["messages"]


async def test_a_result_without_a_call_is_refused_before_anything_is_sent(serve: Serve, models: Make) -> None:
    server = serve([])
    with pytest.raises(BadRequest):
        await answer(models(server.base_url).model("openai:m"), hello(ToolResultMessage("ghost", "a", "?")))
    assert server.requests == []


async def test_half_characters_are_joined_or_replaced(serve: Serve, models: Make) -> None:
    chunk = '{"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":%s}]}'
    halves = [chunk % '{"content":"a\\ud83d"}', chunk % '{"content":"\\ude00b\\ud83d"}']
    server = serve([{"raw": halves, "calls": [{"name": "t", "arguments": '{"x": "\\ud83d"}'}]}, {"text": "ok"}])
    model = models(server.base_url).model("openai:m")
    seen = await events(model)
    message = finished(seen)
    assert message.content == [Text("a😀b\ufffd"), ToolCall("call_0", "t", {"x": "\ufffd"})]
    assert "".join(event.text for event in seen if isinstance(event, TextDelta)) == "a😀b\ufffd"
    await answer(model, hello(message, ToolResultMessage("call_0", "t", "ok")))


async def test_a_refusal_and_a_length_stop_are_told(serve: Serve, models: Make) -> None:
    server = serve([{"refusal": "I will not"}, {"text": "cut sho", "finish": "length"}])
    model = models(server.base_url).model("openai:m")
    refused, short = await answer(model), await answer(model)
    assert (refused.stop, refused.content) == ("refusal", [Text("I will not")])
    assert (short.stop, short.content) == ("length", [Text("cut sho")])


async def test_usage_counts_cached_tokens_inside_the_input(serve: Serve, models: Make) -> None:
    usage = {"prompt_tokens": 1000, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 900}}
    server = serve([{"text": "a", "usage": usage}, {"text": "b", "usage": None}])
    model = models(server.base_url).model("openai:m")
    assert (await answer(model)).usage == Usage(input=1000, output=5, cache_read=900)
    assert (await answer(model)).usage is None


async def test_images_come_from_stored_bytes(serve: Serve, models: Make) -> None:
    server = serve([{"text": "a picture"}])
    request = ModelRequest(
        [UserMessage([Text("what is it?"), Attachment("d1", "image/png"), Attachment("d2", "text/plain")])],
        load_blob=_blobs({"d1": b"\x89PNG", "d2": b"note \xff"}),
    )
    await answer(models(server.base_url).model("openai:m"), request)
    parts = server.requests[0]["messages"][0]["content"]
    assert parts[0] == {"type": "text", "text": "what is it?"}
    assert parts[1]["image_url"]["url"].startswith("data:image/png;base64,")
    assert parts[2]["text"] == "note \ufffd"


def _blobs(stored: dict[str, bytes]) -> Callable[[str], Awaitable[bytes]]:
    async def load(digest: str) -> bytes:
        return stored[digest]

    return load


async def test_a_file_the_model_does_not_take_is_told_in_words(serve: Serve, models: Make) -> None:
    server = serve([{"text": "?"}])
    film, drawing = Attachment("d", "video/mp4", "cat.mp4"), Attachment("e", "image/svg+xml")
    request = ModelRequest([UserMessage([Text("see"), film, drawing])], load_blob=_blobs({}))  # neither is even read
    await answer(models(server.base_url).model("openai:m"), request)
    told = [part["text"] for part in server.requests[0]["messages"][0]["content"]]
    assert "a file named cat.mp4 (video/mp4)" in told[1]
    assert "an image (image/svg+xml)" in told[2]


async def test_options_and_thinking_reach_the_wire(serve: Serve, models: Make) -> None:
    server = serve([{"text": "ok"}, {"text": "ok"}])
    found = models(server.base_url)
    options = {"max_tokens": 7, "extra_body": {"top_k": 3}}
    await answer(found.model("openai:gpt-5"), hello(options=options, thinking="low"))
    await answer(found.model("openai:gpt-4o"), hello(options={"temperature": 0.5}))
    body, other = server.requests
    assert (body["max_completion_tokens"], body["reasoning_effort"], body["top_k"]) == (7, "low", 3)
    assert other["temperature"] == 0.5


async def test_a_name_that_a_model_made_up_goes_back_in_allowed_characters(serve: Serve, models: Make) -> None:
    server = serve([{"calls": [{"name": "a b/ü", "id": "x:1"}]}, {"text": "ok"}])
    model = models(server.base_url).model("openai:m")
    turn = await answer(model)
    await answer(model, hello(turn, ToolResultMessage("x:1", "a b/ü", "no such tool", is_error=True)))
    call = server.requests[1]["messages"][1]["tool_calls"][0]
    assert (call["id"], call["function"]["name"]) == ("x_1", "a_b__")


async def test_closing_the_iterator_ends_the_request_at_once(serve: Serve, models: Make) -> None:
    server = serve([{"text": "on and on", "hold": True}])
    stream = models(server.base_url).model("openai:m").stream(hello())
    assert await anext(stream) == TextDelta(0, "on and o")
    assert isinstance(stream, AsyncGenerator)
    await stream.aclose()
    await _gone(server)


async def test_cancelling_ends_the_request_at_once(serve: Serve, models: Make) -> None:
    server = serve([{"text": "on and on", "hold": True}])
    asking = asyncio.create_task(answer(models(server.base_url).model("openai:m")))
    await _until(lambda: bool(server.requests))
    await asyncio.sleep(0.05)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await _gone(server)


async def test_cancelling_before_the_first_byte_ends_the_request(serve: Serve, models: Make) -> None:
    server = serve([{"text": "late", "wait": 60.0}])
    asking = asyncio.create_task(answer(models(server.base_url).model("openai:m")))
    await _until(lambda: bool(server.requests))
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await _gone(server)


async def _gone(server: FakeOpenAI) -> None:
    await _until(lambda: server.gone == 1)


async def _until(true: Callable[[], bool]) -> None:
    """Poll what another thread does; two seconds are a failure."""
    end = time.monotonic() + 2.0
    while not true():
        assert time.monotonic() < end, "it did not happen"
        await asyncio.sleep(0.005)


async def test_requests_go_on_after_one_was_cut(serve: Serve, models: Make) -> None:
    server = serve([{"text": "x", "hold": True}, {"text": "fine"}])
    model = models(server.base_url).model("openai:m")
    async for _ in model.stream(hello()):
        break
    assert (await answer(model)).content == [Text("fine")]


def test_one_object_serves_one_event_loop_after_another(serve: Serve) -> None:
    server = serve([{"text": "one"}, {"text": "two"}])
    found = ProviderModels(base_url=server.base_url, environ={})

    async def once() -> AssistantMessage:
        try:
            return await answer(found.model("openai:m"))
        finally:
            await found.close()

    assert asyncio.run(once()).content == [Text("one")]
    assert asyncio.run(once()).content == [Text("two")]
