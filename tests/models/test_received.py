"""What a provider with signed reasoning sends, on a real connection."""

from typing import Any

import pytest

from perdure.models.errors import ContextTooLong, CutOff, ModelError, Overloaded, QuotaExhausted, RateLimited
from perdure.models.messages import (
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    Usage,
    decode_messages,
    encode_messages,
)
from perdure.models.provider import ProviderModels
from perdure.testing.fake_anthropic import FakeAnthropic, signed
from perdure.testing.fake_openai import FakeOpenAI
from tests.models.asking import answer, hello

MODEL = "anthropic:claude-opus-5"
THINKING_AND_CALL: dict[str, Any] = {
    "thinking": "let me see",
    "calls": [{"id": "toolu_1", "name": "a", "arguments": {"x": 1}}],
}


def models_at(server: FakeAnthropic) -> ProviderModels:
    return ProviderModels(base_url={"anthropic": server.base_url}, keys={"anthropic": "k"}, environ={})


async def test_signed_reasoning_survives_storing_and_goes_back_to_the_one_that_wrote_it() -> None:
    with FakeAnthropic([THINKING_AND_CALL, {"text": "done"}]) as server:
        async with models_at(server) as models:
            model = models.model(MODEL)
            turn = await answer(model)
            assert isinstance(turn.content[0], Thinking)
            assert turn.content[0].signature == signed("let me see")
            assert turn.content[1] == ToolCall("toolu_1", "a", {"x": 1})
            (stored,) = decode_messages(encode_messages([turn]))
            assert stored == turn
            assert (await answer(model, hello(stored, ToolResultMessage("toolu_1", "a", "ok")))).content == [
                Text("done")
            ]
        back = server.requests[1]["messages"][1]["content"]
        assert back[0] == {"type": "thinking", "thinking": "let me see", "signature": signed("let me see")}
        assert back[1]["input"] == {"x": 1}


async def test_reasoning_of_one_provider_stays_out_of_requests_to_another() -> None:
    with FakeAnthropic([THINKING_AND_CALL]) as server, FakeOpenAI([{"text": "ok"}]) as other:
        async with models_at(server) as models:
            turn = await answer(models.model(MODEL))
        async with ProviderModels(base_url=other.base_url, environ={}) as elsewhere:
            await answer(elsewhere.model("openai:m"), hello(turn, ToolResultMessage("toolu_1", "a", "ok")))
    assert "let me see" not in str(other.requests[0])
    assert other.requests[0]["messages"][1]["tool_calls"][0]["id"] == "toolu_1"


async def test_input_includes_what_was_read_from_and_written_to_the_cache() -> None:
    cached = {"cached_tokens": 80, "cache_write_tokens": 10}
    usage = {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": cached}
    with FakeAnthropic([{"text": "hi", "usage": usage}]) as server:
        async with models_at(server) as models:
            message = await answer(models.model(MODEL), hello(system="be kind"))
            assert message.usage == Usage(input=100, output=7, cache_read=80, cache_write=10)
            assert (models.cost(MODEL, message) or 0) > 0
    assert "cache_control" in str(server.requests[0])


async def test_a_stream_without_the_end_mark_never_looks_complete() -> None:
    with FakeAnthropic([{"text": "half an ans", "no_finish": True}, {"no_finish": True}]) as server:
        async with models_at(server) as models:
            for _ in range(2):
                with pytest.raises(CutOff):
                    await answer(models.model(MODEL))


@pytest.mark.parametrize(
    ("fault", "expected", "retry_after"),
    [
        ("overloaded", Overloaded, 3.0),
        ("rate_limit", RateLimited, 7.0),
        ("quota", QuotaExhausted, None),
        ("context_length", ContextTooLong, None),
        ("too_large", ContextTooLong, None),
        ("server_error", Overloaded, None),
    ],
)
async def test_its_faults_are_told_apart(fault: str, expected: type[ModelError], retry_after: float | None) -> None:
    with FakeAnthropic([{"fault": fault}]) as server:
        async with models_at(server) as models:
            with pytest.raises(ModelError) as caught:
                await answer(models.model(MODEL))
    assert type(caught.value) is expected
    assert caught.value.retry_after == retry_after
    assert len(server.requests) == 1


async def test_an_error_in_the_open_stream_is_the_providers_failure() -> None:
    broken = {"text": "hi", "error_in_stream": {"type": "overloaded_error", "message": "Overloaded"}}
    with FakeAnthropic([broken]) as server:
        async with models_at(server) as models:
            with pytest.raises(Overloaded):
                await answer(models.model(MODEL))
