"""A server to ask, and the provider library imported once: it takes seconds, and no test should pay for it."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack

import pytest
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIChatModel

import perdure.models.adapter
from perdure.models.provider import ProviderModels
from perdure.testing.fake_openai import FakeOpenAI
from perdure.testing.fake_turns import Answer, FakeTurn, JsonObject

IMPORTED = (perdure.models.adapter, AnthropicModel, GoogleModel, OpenAIChatModel)

Serve = Callable[[Sequence[FakeTurn | JsonObject] | Answer], FakeOpenAI]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts servers that end with the test."""
    with ExitStack() as stack:
        yield lambda script: stack.enter_context(FakeOpenAI(script))


@pytest.fixture
async def models() -> AsyncIterator[Callable[[str], ProviderModels]]:
    """Makes `ProviderModels` for a base URL, closed with the test."""
    made: list[ProviderModels] = []

    def make(base_url: str) -> ProviderModels:
        made.append(ProviderModels(base_url=base_url, environ={}))
        return made[-1]

    yield make
    for one in made:
        await one.close()
