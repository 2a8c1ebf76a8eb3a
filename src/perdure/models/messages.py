"""Our message types: what transcripts store, and what a model is asked with. They outlive any provider library.

Each message is a tagged struct (`role`); content blocks are tagged by `type`. Everything is strict JSON; text is
well-formed Unicode. Images and files are referred to by the digest of a stored blob.
"""

from typing import Any, Literal

import msgspec

JsonObject = dict[str, Any]


class _Message(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag_field="role"):
    @property
    def role(self) -> str:
        """As it is stored: system, user, assistant or tool_result."""
        return str(self.__struct_config__.tag)

    @property
    def text(self) -> str:
        """All its plain text, in order; of a system message the texts of the sections that it changes."""
        return text_of(self)  # type: ignore[arg-type]  # every message is one of `Message`


class _Block(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag_field="type"):
    pass


class Text(_Block, frozen=True, tag="text"):
    """Plain text."""

    text: str
    provider: JsonObject | None = None
    """Opaque details of the provider that wrote it, sent back unchanged."""


class Thinking(_Block, frozen=True, tag="thinking"):
    """A model's reasoning, with the signature that its provider wants back."""

    text: str
    signature: str | None = None
    provider: JsonObject | None = None


class ToolCall(_Block, frozen=True, tag="tool_call"):
    """The model wants a tool to run. `arguments` is a JSON object, or the raw text where the model wrote none; hooks
    and tools only ever see objects."""

    id: str
    """The provider's id of the call; it may repeat over the turns of a conversation."""
    name: str
    arguments: Any
    provider: JsonObject | None = None

    def replace(self, *, arguments: JsonObject) -> "ToolCall":
        """The call with other arguments: what a hook returns."""
        return ToolCall(self.id, self.name, arguments, self.provider)


class Attachment(_Block, frozen=True, tag="attachment"):
    """An image or file, by the digest of a stored blob."""

    digest: str
    media_type: str
    name: str | None = None
    provider: JsonObject | None = None
    """Opaque details of the provider that made it, sent back unchanged."""


Content = Text | Attachment
"""What a person or a tool may say."""

Said = Text | Thinking | ToolCall | Attachment
"""What a model may say: an attachment is an image that it made."""


class ToolOffer(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A tool as a model is told of it. `parameters` is a JSON Schema whose root is an object."""

    name: str
    description: str
    parameters: JsonObject


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Tokens of one model attempt and what they cost in USD; `cost` None: unknown, which is not zero.

    `input` includes the cached ones; `cache_read` and `cache_write` tell how many of them were.
    """

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost: float | None = None


StopReason = Literal["stop", "tool_calls", "length", "refusal", "aborted", "error"]


class UserMessage(_Message, frozen=True, tag="user"):
    """From a person or a program."""

    content: str | list[Content]


class AssistantMessage(_Message, frozen=True, tag="assistant"):
    """One response of a model, whole or cut off."""

    content: list[Said]
    stop: StopReason = "stop"
    model: str | None = None
    """The provider:model that wrote it."""
    usage: Usage | None = None
    provider: JsonObject | None = None
    """Opaque details of the response as a whole (ids, raw finish reason)."""
    error: str | None = None
    """Why it was cut off, for people."""


class ToolResultMessage(_Message, frozen=True, tag="tool_result"):
    """The result of one tool call."""

    call_id: str
    name: str
    content: str | list[Content]
    is_error: bool = False


class SystemMessage(_Message, frozen=True, tag="system"):
    """A change of the system prompt or of the offered tools, at the place where it took effect.

    `sections` maps a section's name to its new text, None where it was removed; `order` is the whole order of the
    sections from here on, None where it stays. `tools` is the whole offer from here on, None where it stays.
    """

    sections: dict[str, str | None] = {}
    order: list[str] | None = None
    tools: list[ToolOffer] | None = None


Message = UserMessage | AssistantMessage | ToolResultMessage | SystemMessage

_messages_decoder = msgspec.json.Decoder(list[Message])
_encoder = msgspec.json.Encoder()


def encode_messages(messages: list[Message]) -> bytes:
    """Messages as the JSON array that an entry stores."""
    return _encoder.encode(messages)


def decode_messages(data: bytes) -> list[Message]:
    """The messages of a stored entry."""
    return _messages_decoder.decode(data)


def text_of(message: Message) -> str:
    """All plain text of a message, in order."""
    if isinstance(message, SystemMessage):
        return "\n\n".join(text for text in message.sections.values() if text)
    if isinstance(message.content, str):
        return message.content
    return "".join(block.text for block in message.content if isinstance(block, Text))
