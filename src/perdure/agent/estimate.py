"""How many tokens a context takes: what the provider counted, and an estimate of what came after."""

from collections.abc import Iterable
from typing import Final

import msgspec

from perdure.agent.context import Context
from perdure.models.messages import (
    AssistantMessage,
    Attachment,
    Message,
    Said,
    SystemMessage,
    Text,
    Thinking,
    ToolCall,
    ToolOffer,
)

TEXT_BYTES_PER_TOKEN: Final = 4
"""Prose and code in UTF-8: about four letters of Latin script, and somewhat more than one of Chinese or Korean."""

JSON_BYTES_PER_TOKEN: Final = 3
"""JSON is dense in punctuation."""

IMAGE_TOKENS: Final = 1_600
"""What the costliest common provider counts for one picture at its size limit."""

FILE_TOKENS: Final = 3_000
"""A document of a page or two; a reference does not tell its size."""

MESSAGE_TOKENS: Final = 4
"""The marks around a message, or around a block of it."""


def estimate_text(text: str) -> int:
    """Tokens of a text, rounded up; 0 for none. Counts bytes, so that scripts with few letters a word count fairly."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return -(-size // TEXT_BYTES_PER_TOKEN)


def estimate_message(message: Message) -> int:
    """Tokens of one message."""
    if isinstance(message, SystemMessage):
        texts = sum(estimate_text(text) for text in message.sections.values() if text)
        return MESSAGE_TOKENS + texts + estimate_tools(message.tools or ())
    if isinstance(message.content, str):
        return MESSAGE_TOKENS + estimate_text(message.content)
    return MESSAGE_TOKENS + sum(_estimate_block(block) for block in message.content)


def estimate_messages(messages: Iterable[Message]) -> int:
    """Tokens of messages as they stand: of repeated system messages each counts."""
    return sum(map(estimate_message, messages))


def estimate_tools(tools: Iterable[ToolOffer]) -> int:
    """Tokens of the tools on offer."""
    return sum(
        MESSAGE_TOKENS + estimate_text(tool.name) + estimate_text(tool.description) + _estimate_json(tool.parameters)
        for tool in tools
    )


def tokens_in_use(context: Context) -> int:
    """Tokens that the next request takes before its answer.

    The usage that the provider reported with the newest answer, plus an estimate of everything behind it. An answer
    given before a summary, a reset or an edit does not count, since it was measured over another context; without one
    everything is estimated, the prompt and the tools included.
    """
    if context.measured is not None:
        answer = context.messages[context.measured]
        if isinstance(answer, AssistantMessage) and answer.usage is not None:
            after = context.messages[context.measured + 1 :]
            return answer.usage.input + answer.usage.output + estimate_messages(after)
    prompt = sum(map(estimate_text, context.prompt.sections.values())) + estimate_tools(context.prompt.tools)
    return prompt + estimate_messages(message for message in context.messages if not isinstance(message, SystemMessage))


def _estimate_block(block: Said) -> int:
    match block:
        case Text() | Thinking():
            return estimate_text(block.text)
        case ToolCall():
            return MESSAGE_TOKENS + estimate_text(block.name) + _estimate_json(block.arguments)
        case Attachment():
            return IMAGE_TOKENS if block.media_type.startswith("image/") else FILE_TOKENS


def _estimate_json(value: dict[str, object] | str) -> int:
    text = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else msgspec.json.encode(value)
    return -(-len(text) // JSON_BYTES_PER_TOKEN)
