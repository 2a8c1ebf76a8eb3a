"""What a response means for the run. Pure."""

import msgspec

from perdure.models.messages import AssistantMessage, Attachment, Text, ToolCall


class Answer(msgspec.Struct, frozen=True):
    """The run has its answer."""

    text: str


class Round(msgspec.Struct, frozen=True):
    """The model calls tools."""

    calls: list[ToolCall]


class NoAnswer(msgspec.Struct, frozen=True):
    """The response ends the run without an answer: refused, cut at the length limit, or empty."""

    reason: str
    detail: str


class Empty(msgspec.Struct, frozen=True):
    """Nothing but thinking, or nothing at all: worth one more attempt."""


def classify(message: AssistantMessage) -> Answer | Round | NoAnswer | Empty:
    """Tool calls first; then why the model stopped; then whether it said anything."""
    calls = [block for block in message.content if isinstance(block, ToolCall)]
    text = "".join(block.text for block in message.content if isinstance(block, Text))
    if message.stop == "length":
        return NoAnswer("length", "the model reached its output limit; what it wrote is in the transcript")
    if message.stop == "refusal":
        return NoAnswer("refused", text or "the model declined to answer")
    if calls:
        return Round(calls)
    if not text.strip() and not any(isinstance(block, Attachment) for block in message.content):
        return Empty()
    return Answer(text)
