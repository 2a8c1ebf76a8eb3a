"""What a response means for the run. Pure."""

from dataclasses import dataclass

from perdure.models.messages import AssistantMessage, Text, ToolCall


@dataclass(frozen=True)
class Answer:
    """The run has its answer."""

    text: str


@dataclass(frozen=True)
class Round:
    """The model calls tools."""

    calls: list[ToolCall]


@dataclass(frozen=True)
class NoAnswer:
    """The response ends the run without an answer: refused, cut at the length limit, or empty."""

    reason: str
    detail: str


@dataclass(frozen=True)
class Empty:
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
    if not text.strip():
        return Empty()
    return Answer(text)
