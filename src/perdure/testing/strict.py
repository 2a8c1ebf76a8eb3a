"""The rules that strict providers hold a request to, checked on our own messages."""

import json
from collections.abc import Sequence
from typing import Final

import msgspec

from perdure.models.errors import BadRequest, ContextTooLong
from perdure.models.messages import (
    AssistantMessage,
    Attachment,
    Message,
    SystemMessage,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from perdure.models.protocol import ModelRequest

CHARACTERS_PER_TOKEN: Final = 4
"""How requests are measured against a context window: the usual rule of thumb, rounded up."""


async def check_request(request: ModelRequest, context_window: int | None, system_updates: bool) -> None:
    """Raise what a strict provider would answer: `BadRequest`, or `ContextTooLong`."""
    check_encoding(request)
    if not system_updates and any(isinstance(message, SystemMessage) for message in request.messages):
        raise BadRequest("a system message in the middle, which this model does not take")
    check_pairing(request.messages)
    names = [tool.name for tool in request.tools]
    if len(names) != len(set(names)):
        raise BadRequest(f"two tools of one name among {', '.join(names)}")
    await check_attachments(request)
    needed = estimate_tokens(request)
    if context_window is not None and needed > context_window:
        raise ContextTooLong(f"{needed} tokens, and the context window holds {context_window}")


def check_encoding(request: ModelRequest) -> None:
    """Raise `BadRequest` unless the request can be written as strict JSON in UTF-8."""
    body = [request.system, msgspec.to_builtins(request.messages), msgspec.to_builtins(request.tools)]
    try:
        json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except (UnicodeEncodeError, ValueError, TypeError) as error:
        raise BadRequest(f"the request is no JSON in UTF-8: {error!r}") from None


async def check_attachments(request: ModelRequest) -> None:
    """Raise `BadRequest` unless every attachment's bytes can be read."""
    for message in request.messages:
        if isinstance(message, UserMessage | ToolResultMessage) and not isinstance(message.content, str):
            for block in message.content:
                if isinstance(block, Attachment):
                    if request.load_blob is None:
                        raise BadRequest(f"attachment {block.digest} cannot be read")
                    await request.load_blob(block.digest)


def estimate_tokens(request: ModelRequest) -> int:
    """Tokens of a request, by its characters."""
    characters = len(request.system) + sum(len(msgspec.json.encode(tool)) for tool in request.tools)
    for message in request.messages:
        if not isinstance(message, SystemMessage) and isinstance(message.content, str):
            characters += len(message.content)
        else:
            characters += len(msgspec.json.encode(message).decode())
    return -(-characters // CHARACTERS_PER_TOKEN)


def check_pairing(messages: Sequence[Message]) -> None:
    """Raise `BadRequest` unless the messages begin with a user's, and every call has one result right behind it.

    Right behind: the results of a turn follow it at once, in the order of its calls, before anything else is said. An
    id of a call is used once in a request. A turn says something, and is not one that was cut off.
    """
    _check_beginning(messages)
    used: set[str] = set()
    open_calls: list[str] = []
    for place, message in enumerate(messages):
        if isinstance(message, ToolResultMessage):
            _check_result(message, open_calls, used, place)
            open_calls.pop(0)
            continue
        if open_calls:
            raise BadRequest(f"message {place} stands before the results of {', '.join(open_calls)}")
        if isinstance(message, AssistantMessage):
            open_calls = _check_turn(message, used, place)
    if open_calls:
        raise BadRequest(f"no result for {', '.join(open_calls)}")
    if messages and isinstance(messages[-1], AssistantMessage):
        raise BadRequest("the last message is the model's own")


def _check_beginning(messages: Sequence[Message]) -> None:
    first = next((message for message in messages if not isinstance(message, SystemMessage)), None)
    if not isinstance(first, UserMessage):
        raise BadRequest("the first message is not a user's" if first else "the request holds no message")


def _check_result(message: ToolResultMessage, open_calls: list[str], used: set[str], place: int) -> None:
    if message.call_id in open_calls[:1]:
        return
    if message.call_id in open_calls:
        raise BadRequest(f"message {place}: the result of {message.call_id} stands before that of {open_calls[0]}")
    if message.call_id in used:
        raise BadRequest(f"message {place}: a second or late result for {message.call_id}")
    raise BadRequest(f"message {place}: a result for {message.call_id}, which no call asked for")


def _check_turn(message: AssistantMessage, used: set[str], place: int) -> list[str]:
    if not message.content:
        raise BadRequest(f"message {place}: an empty assistant message")
    if message.stop in {"aborted", "error"}:
        raise BadRequest(f"message {place}: an answer that was cut off ({message.stop})")
    calls = [block.id for block in message.content if isinstance(block, ToolCall)]
    for call_id in calls:
        if call_id in used:
            raise BadRequest(f"message {place}: call id {call_id} was used before in this request")
        used.add(call_id)
    return calls
