"""The whole table of faults, provoked on a real connection."""

import socket
import time
from collections.abc import Callable

import pytest

from perdure.models.errors import (
    AuthFailed,
    BadRequest,
    ContextTooLong,
    CutOff,
    ModelError,
    NetworkFailed,
    Overloaded,
    QuotaExhausted,
    RateLimited,
    RequestRefused,
    UnknownModel,
)
from perdure.models.protocol import Event, TextDelta
from perdure.models.provider import ProviderModels
from perdure.testing.fake_turns import JsonObject
from tests.models.asking import answer, hello
from tests.models.conftest import Serve

Make = Callable[[str], ProviderModels]

TABLE: list[tuple[JsonObject, type[ModelError], float | None]] = [
    ({"fault": "rate_limit"}, RateLimited, 7.0),
    ({"fault": "rate_limit_days"}, RateLimited, 16 * 86_400.0),
    ({"fault": "quota"}, QuotaExhausted, None),
    ({"fault": "payment"}, QuotaExhausted, None),
    ({"status": 400, "error": {"message": "Your credit balance is too low to access the API"}}, QuotaExhausted, None),
    ({"fault": "server_error"}, Overloaded, None),
    ({"fault": "unavailable"}, Overloaded, 3.0),
    ({"fault": "html"}, Overloaded, None),
    ({"status": 529, "error": {"message": "Overloaded"}}, Overloaded, None),
    ({"fault": "context_length"}, ContextTooLong, None),
    ({"status": 400, "error": {"message": "prompt is too long: 210000 tokens > 200000 maximum"}}, ContextTooLong, None),
    ({"status": 413, "error": {"message": "Request Entity Too Large"}}, ContextTooLong, None),
    ({"status": 400, "error": {"message": "too big", "type": "exceed_context_size_error"}}, ContextTooLong, None),
    (
        {"status": 429, "error": {"message": "Request too large for m on tokens per min: Limit 30000"}},
        ContextTooLong,
        None,
    ),
    ({"fault": "bad_request"}, BadRequest, None),
    ({"fault": "policy"}, RequestRefused, None),
    ({"fault": "auth"}, AuthFailed, None),
    ({"status": 403, "error": {"message": "no access to this model"}}, AuthFailed, None),
    ({"fault": "not_found"}, UnknownModel, None),
    ({"text": "hello world", "cut": 1}, CutOff, None),
    ({"text": "hello world", "cut": 0}, CutOff, None),
    ({"text": "hello world", "no_finish": True}, CutOff, None),
    ({"text": "", "no_finish": True}, CutOff, None),
    ({"text": "hi", "error_in_stream": {"message": "overloaded", "type": "server_error"}}, Overloaded, None),
    ({"text": "hi", "error_in_stream": {"message": "who knows"}}, Overloaded, None),
    (
        {"error_in_stream": {"message": "slow down", "code": "rate_limit_exceeded"}},
        RateLimited,
        None,
    ),
    ({"raw": ["{not json"], "text": "hi"}, CutOff, None),
]


@pytest.mark.parametrize(("turn", "expected", "retry_after"), TABLE, ids=[str(row[0])[:60] for row in TABLE])
async def test_each_fault_is_told_apart(
    serve: Serve, models: Make, turn: JsonObject, expected: type[ModelError], retry_after: float | None
) -> None:
    server = serve([turn, {"text": "a second request would get this"}])
    with pytest.raises(ModelError) as caught:
        await answer(models(server.base_url).model("openai:m"))
    assert type(caught.value) is expected
    assert caught.value.retry_after == retry_after
    assert len(server.requests) == 1


async def test_deltas_before_a_cut_are_all_that_came(serve: Serve, models: Make) -> None:
    server = serve([{"text": "hello world", "chunk": 6, "cut": 1}])
    seen: list[Event] = []

    async def ask() -> None:
        async for event in models(server.base_url).model("openai:m").stream(hello()):
            seen.append(event)

    with pytest.raises(CutOff):
        await ask()
    assert seen == [TextDelta(0, "hello ")]


async def test_a_closed_port_is_a_network_failure(models: Make) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    with pytest.raises(NetworkFailed):
        await answer(models(f"http://127.0.0.1:{port}/v1").model("openai:m"))


async def test_silence_longer_than_the_timeout_is_a_network_failure(serve: Serve, models: Make) -> None:
    server = serve([{"text": "late", "wait": 5.0}])
    begun = time.monotonic()
    with pytest.raises(NetworkFailed):
        await answer(models(server.base_url).model("openai:m"), hello(options={"timeout": 0.1}))
    assert time.monotonic() - begun < 2.0
    assert len(server.requests) == 1


async def test_a_missing_key_is_named_before_anything_is_sent() -> None:
    async with ProviderModels(environ={}) as found:
        with pytest.raises(AuthFailed, match="OPENAI_API_KEY"):
            await answer(found.model("openai:gpt-5"))


async def test_a_wrong_key_names_the_variable(serve: Serve, models: Make) -> None:
    server = serve([{"fault": "auth"}])
    with pytest.raises(AuthFailed, match="OPENAI_API_KEY"):
        await answer(models(server.base_url).model("openai:m"))


async def test_a_page_of_words_is_bounded(serve: Serve, models: Make) -> None:
    server = serve([{"status": 400, "error": {"message": "x" * 50_000}}])
    with pytest.raises(BadRequest) as caught:
        await answer(models(server.base_url).model("openai:m"))
    assert len(str(caught.value)) < 1_200
