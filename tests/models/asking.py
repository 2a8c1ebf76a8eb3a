"""Short ways to ask a model in tests."""

from typing import Any

from perdure.models.messages import AssistantMessage, Message, UserMessage
from perdure.models.protocol import Event, Finished, Model, ModelRequest


def hello(*more: Message, **fields: Any) -> ModelRequest:
    """A request that begins with a person's hello."""
    return ModelRequest([UserMessage("hello"), *more], **fields)


async def events(model: Model, request: ModelRequest | None = None) -> list[Event]:
    """All events of one request."""
    return [event async for event in model.stream(request or hello())]


def finished(seen: list[Event]) -> AssistantMessage:
    """The whole message at the end of a stream."""
    last = seen[-1]
    assert isinstance(last, Finished)
    return last.message


async def answer(model: Model, request: ModelRequest | None = None) -> AssistantMessage:
    """The whole message of one request."""
    return finished(await events(model, request))
