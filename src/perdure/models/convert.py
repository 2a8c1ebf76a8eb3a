"""Our request as the provider library wants it. Imported only when a model is first used."""

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final

from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelResponse,
    ModelResponsePart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.messages import ModelRequest as WireRequest
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition

from perdure.models.errors import BadRequest
from perdure.models.messages import (
    AssistantMessage,
    Content,
    Message,
    SystemMessage,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from perdure.models.protocol import ModelRequest

LoadBlob = Callable[[str], Awaitable[bytes]]

INVALID_ARGUMENTS: Final = "INVALID_JSON"
"""The key under which arguments that were no JSON object go back to the model that wrote them."""

NAME_LENGTH: Final = 64
"""Characters that the strictest provider takes in a tool's name or a call's id."""

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")


class WireIds:
    """Ids of calls as they go out: of characters every provider takes, and unique within the request.

    A name given to a call depends only on what stands before it, so the front of a conversation stays byte-identical.
    """

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._open: dict[str, list[str]] = {}

    def call(self, call_id: str) -> str:
        """The id of a call; the results that follow find it."""
        stem = _NOT_IN_NAMES.sub("_", call_id)[:NAME_LENGTH] or "call"
        name, number = stem, 1
        while name in self._used:
            number += 1
            suffix = f"-{number}"
            name = stem[: NAME_LENGTH - len(suffix)] + suffix
        self._used.add(name)
        self._open.setdefault(call_id, []).append(name)
        return name

    def result(self, call_id: str) -> str:
        """The id of the call that this result answers: the oldest of that id that is still open."""
        waiting = self._open.get(call_id)
        if not waiting:
            raise BadRequest(f"a result for {call_id!r}, which no call in the request asked for")
        return waiting.pop(0)


async def to_wire(request: ModelRequest, system: str) -> list[ModelMessage]:
    """The messages of a request. `system` is the provider's name in the library: reasoning of others stays out."""
    offered = {tool.name for tool in request.tools}
    ids = WireIds()
    wire: list[ModelMessage] = []
    for message in request.messages:
        if isinstance(message, AssistantMessage):
            wire.append(_response(message, system, ids, offered))
            continue
        part = await _request_part(message, request.load_blob, ids, offered)
        last = wire[-1] if wire else None
        if isinstance(last, WireRequest):
            last.parts = [*last.parts, part]
        else:
            wire.append(WireRequest(parts=[part]))
    first = wire[0] if wire else None
    if request.system and isinstance(first, WireRequest):
        first.instructions = request.system
    return wire


def to_parameters(request: ModelRequest) -> ModelRequestParameters:
    """The offered tools."""
    return ModelRequestParameters(
        function_tools=[
            ToolDefinition(name=tool.name, description=tool.description, parameters_json_schema=tool.parameters)
            for tool in request.tools
        ],
        allow_text_output=True,
    )


async def _request_part(
    message: Message, load_blob: LoadBlob | None, ids: WireIds, offered: set[str]
) -> UserPromptPart | ToolReturnPart | SystemPromptPart:
    match message:
        case UserMessage():
            return UserPromptPart(await _content(message.content, load_blob))
        case ToolResultMessage():
            content = await _content(message.content, load_blob)
            return ToolReturnPart(
                tool_name=_tool_name(message.name, offered),
                content=content,
                tool_call_id=ids.result(message.call_id),
                outcome="failed" if message.is_error else "success",
            )
        case SystemMessage():
            return SystemPromptPart(describe_change(message))
        case AssistantMessage():
            raise BadRequest("an assistant message where a request was expected")


async def _content(content: str | list[Content], load_blob: LoadBlob | None) -> str | Sequence[UserContent]:
    if isinstance(content, str):
        return content
    blocks: list[UserContent] = []
    for block in content:
        if isinstance(block, Text):
            blocks.append(block.text)
            continue
        if load_blob is None:
            raise BadRequest(f"attachment {block.digest[:12]} cannot be read", hint="the request has no load_blob")
        blocks.append(_file(await load_blob(block.digest), block.media_type))
    return blocks


def _file(data: bytes, media_type: str) -> UserContent:
    """Text files go as text, whatever their bytes; all else as it is."""
    if media_type.startswith("text/") or media_type in {"application/json", "application/xml"}:
        return data.decode("utf-8", "replace")
    return BinaryContent(data=data, media_type=media_type)


def describe_change(change: SystemMessage) -> str:
    """A change of the system prompt as a message in the middle of a conversation says it."""
    parts = []
    for section, text in change.sections.items():
        parts.append(f"[{section} no longer applies]" if text is None else f"[{section}]\n{text}")
    if change.tools is not None:
        names = ", ".join(tool.name for tool in change.tools) or "none"
        parts.append(f"[tools offered from here on: {names}]")
    return "\n\n".join(parts)


def _response(message: AssistantMessage, system: str, ids: WireIds, offered: set[str]) -> ModelResponse:
    provider = message.provider or {}
    return ModelResponse(
        parts=list(_response_parts(message, system, ids, offered)),
        model_name=_text(provider, "model"),
        provider_name=_text(provider, "name"),
        provider_url=_text(provider, "url"),
        canonical_system=_text(provider, "system"),
        provider_response_id=_text(provider, "id"),
        provider_details=_details(provider),
    )


def _response_parts(
    message: AssistantMessage, system: str, ids: WireIds, offered: set[str]
) -> Iterator[ModelResponsePart]:
    for block in message.content:
        provider = block.provider or {}
        details: dict[str, Any] = {
            "id": _text(provider, "id"),
            "provider_name": _text(provider, "name"),
            "provider_details": _details(provider),
        }
        match block:
            case Text():
                yield TextPart(block.text, **details)
            case Thinking() if _text(provider, "name") == system:
                yield ThinkingPart(block.text, signature=block.signature, **details)
            case Thinking():
                continue  # another provider cannot check it, and as plain text it would be imitated
            case ToolCall():
                yield ToolCallPart(
                    tool_name=_tool_name(block.name, offered),
                    args=_arguments(block.arguments),
                    tool_call_id=ids.call(block.id),
                    **details,
                )


def _arguments(arguments: dict[str, Any] | str) -> dict[str, Any]:
    return arguments if isinstance(arguments, dict) else {INVALID_ARGUMENTS: arguments}


def _tool_name(name: str, offered: set[str]) -> str:
    """A name that a model made up may hold what its provider refuses to read back."""
    if name in offered:
        return name
    return _NOT_IN_NAMES.sub("_", name)[:NAME_LENGTH] or "unnamed"


def _text(provider: dict[str, Any], key: str) -> str | None:
    value = provider.get(key)
    return value if isinstance(value, str) else None


def _details(provider: dict[str, Any]) -> dict[str, Any] | None:
    value = provider.get("details")
    return value if isinstance(value, dict) else None
