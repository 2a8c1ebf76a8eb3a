"""What Gemini's wire sends and takes, on a real connection."""

import pytest

from perdure.models.errors import AuthFailed, ContextTooLong, ModelError, Overloaded, RateLimited, UnknownModel
from perdure.models.messages import Thinking, ToolCall, ToolResultMessage
from perdure.models.provider import ProviderModels
from perdure.testing.fake_google import FakeGoogle
from tests.models.asking import answer, hello

MODEL = "google:gemini-3-pro-preview"


def models_at(server: FakeGoogle) -> ProviderModels:
    return ProviderModels(base_url={"google": server.base_url}, keys={"google": "k"}, environ={})


@pytest.mark.parametrize(
    ("fault", "expected", "retry_after"),
    [
        ("rate_limit", RateLimited, 7.0),
        ("overloaded", Overloaded, None),
        ("server_error", Overloaded, None),
        ("context_length", ContextTooLong, None),
        ("auth", AuthFailed, None),
        ("not_found", UnknownModel, None),
    ],
)
async def test_its_faults_are_told_apart(fault: str, expected: type[ModelError], retry_after: float | None) -> None:
    with FakeGoogle([{"fault": fault}]) as server:
        async with models_at(server) as models:
            with pytest.raises(ModelError) as caught:
                await answer(models.model(MODEL))
    assert type(caught.value) is expected
    assert caught.value.retry_after == retry_after
    assert len(server.requests) == 1


async def test_only_the_first_of_parallel_calls_is_signed_and_all_go_back() -> None:
    turn = {"thinking": "both", "calls": [{"name": "a", "arguments": {"x": 1}}, {"name": "b"}]}
    with FakeGoogle([turn, {"text": "done"}]) as server:
        async with models_at(server) as models:
            model = models.model(MODEL)
            said = await answer(model, hello(thinking="low"))
            thought, first, second = said.content
            assert isinstance(thought, Thinking)
            assert isinstance(first, ToolCall)
            assert isinstance(second, ToolCall)
            assert "thought_signature" in str(first.provider)
            assert second.provider is None
            results = [ToolResultMessage(one.id, one.name, "ok") for one in (first, second)]
            await answer(model, hello(said, *results))
    assert server.unsigned == 0
    assert server.requests[0]["generationConfig"]["thinkingConfig"]
    assert len(server.requests[1]["contents"][2]["parts"]) == 2
