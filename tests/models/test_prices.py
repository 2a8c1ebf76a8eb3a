"""Costs and windows from the bundled list."""

from perdure.models import prices
from perdure.models.messages import AssistantMessage, Usage
from perdure.models.provider import ProviderModels


def test_cached_tokens_cost_less_than_fresh_ones() -> None:
    fresh = prices.cost("openai", "gpt-4o", Usage(input=1000, output=10))
    cached = prices.cost("openai", "gpt-4o", Usage(input=1000, output=10, cache_read=900))
    assert fresh is not None
    assert cached is not None
    assert 0 < cached < fresh


def test_an_unknown_model_has_no_price_and_no_window_rather_than_zero() -> None:
    assert prices.cost("openai", "no-such-model", Usage(input=1, output=1)) is None
    assert prices.context_window("openai", "no-such-model") is None


def test_a_response_without_usage_has_no_cost() -> None:
    models = ProviderModels(environ={})
    assert models.cost("openai:gpt-4o", AssistantMessage([])) is None
    assert models.cost("nobody:x", AssistantMessage([], usage=Usage(input=1))) is None
    assert models.cost("openai:x", AssistantMessage([], usage=Usage(input=1, cost=0.25))) == 0.25
    assert models.cost("local:smollm2", AssistantMessage([], usage=Usage(input=1))) == 0.0


def test_windows_come_from_the_list() -> None:
    models = ProviderModels(environ={})
    assert models.model("openai:gpt-4o").context_window == 128_000
