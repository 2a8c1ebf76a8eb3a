"""Files in a request: which of them a model takes, and the words that stand in place of the others. Pure."""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from perdure.models.messages import AssistantMessage, Attachment, Content, Message, SystemMessage, Text

COMMON_IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""The image types that every provider with eyes takes."""

Takes = Callable[[str], bool]
"""Whether a model takes files of a media type."""


def is_text(media_type: str) -> bool:
    """Whether a file goes into a request as text, which every model takes."""
    return media_type.startswith("text/") or media_type in {"application/json", "application/xml"}


def file_text(data: bytes, attachment: Attachment) -> str:
    """A text file as the words of a message, whatever its bytes; never empty."""
    text = data.decode("utf-8", "replace")
    if attachment.name:
        return f"[{attachment.name}]\n{text}"
    return text if text.strip() else "[an empty file]"


def left_out(attachment: Attachment) -> str:
    """What a model reads in place of a file that it does not take. The same file always gives the same words."""
    return f"[{_told(attachment)} was attached here; this model does not take such files, so it was left out]"


def made_here(attachment: Attachment) -> str:
    """What a model reads in place of an image that an earlier answer made and that it cannot be sent back."""
    return f"[{_told(attachment)} was made here; this model is not shown it]"


def without_files(messages: Iterable[Message], takes: Takes) -> list[Message]:
    """The messages with a note in place of each file that a model does not take, for models of one's own."""
    return [_noted(message, takes) for message in messages]


def _noted(message: Message, takes: Takes) -> Message:
    if isinstance(message, SystemMessage) or isinstance(message.content, str):
        return message
    if not any(isinstance(block, Attachment) and not takes(block.media_type) for block in message.content):
        return message
    if isinstance(message, AssistantMessage):
        return msgspec.structs.replace(
            message,
            content=[
                Text(made_here(block)) if isinstance(block, Attachment) and not takes(block.media_type) else block
                for block in message.content
            ],
        )
    content: list[Content] = [
        Text(left_out(block)) if isinstance(block, Attachment) and not takes(block.media_type) else block
        for block in message.content
    ]
    return msgspec.structs.replace(message, content=content)


def _told(attachment: Attachment) -> str:
    what = "an image" if attachment.media_type.startswith("image/") else "a file"
    name = f" named {attachment.name}" if attachment.name else ""
    return f"{what}{name} ({attachment.media_type})"
