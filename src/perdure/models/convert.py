"""Our request as the provider library wants it. Imported only when a model is first used."""

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from pydantic_ai.messages import (
    BinaryContent,
    FilePart,
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

from perdure.base.digest import sha256
from perdure.models.errors import BadRequest
from perdure.models.files import Takes, file_text, is_text, left_out, made_here
from perdure.models.messages import (
    AssistantMessage,
    Attachment,
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

    def __init__(self, length: int | None = None) -> None:
        self._length = length
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
        if self._length is not None:  # a provider that wants ids of one length: what stands for the name, then
            name = sha256(name.encode()).hex()[: self._length]
        self._open.setdefault(call_id, []).append(name)
        return name

    def result(self, call_id: str) -> str:
        """The id of the call that this result answers: the oldest of that id that is still open."""
        waiting = self._open.get(call_id)
        if not waiting:
            raise BadRequest(f"a result for {call_id!r}, which no call in the request asked for")
        return waiting.pop(0)


class Target(NamedTuple):
    """What a request has to fit: the provider's name in the library, and what the model takes."""

    system: str
    """Reasoning of other systems stays out."""
    takes: Takes
    id_length: int | None = None
    """The one length that the provider allows for the ids of calls."""
    images_back: bool = False
    """Takes the images that a model made as the model's own words."""


async def to_wire(request: ModelRequest, target: Target) -> list[ModelMessage]:
    """The messages of a request. What stands in front is the same for every longer request."""
    offered = {tool.name for tool in request.tools}
    ids = WireIds(target.id_length)
    load = _Loader(request.load_blob)
    wire: list[ModelMessage] = []
    for message in request.messages:
        if isinstance(message, AssistantMessage):
            wire.append(await _response(message, target, load, ids, offered))
            continue
        part = await _request_part(message, target, load, ids, offered)
        last = wire[-1] if wire else None
        if isinstance(last, WireRequest):
            last.parts = [*last.parts, part]
        else:
            wire.append(WireRequest(parts=[part]))
    first = wire[0] if wire else None
    if request.system and isinstance(first, WireRequest):
        first.instructions = request.system
    return wire


def begins_unthought(request: ModelRequest, system: str) -> bool:
    """Whether the turn whose calls are being answered does not begin with reasoning of this system: another provider
    made it, or it was made without thinking. A provider with a budget for thinking refuses to think on from there."""
    last = next((message for message in reversed(request.messages) if isinstance(message, AssistantMessage)), None)
    if last is None or not any(isinstance(block, ToolCall) for block in last.content):
        return False
    first = last.content[0]
    own = isinstance(first, Thinking) and _text(first.provider or {}, "name") == system
    return not (own and isinstance(first, Thinking) and first.signature)


def to_parameters(request: ModelRequest) -> ModelRequestParameters:
    """The offered tools."""
    return ModelRequestParameters(
        function_tools=[
            ToolDefinition(name=tool.name, description=tool.description, parameters_json_schema=tool.parameters)
            for tool in request.tools
        ],
        allow_text_output=True,
    )


class _Loader:
    """Reads the bytes of attachments, each once for a request."""

    def __init__(self, load_blob: LoadBlob | None) -> None:
        self._load_blob = load_blob
        self._loaded: dict[str, bytes] = {}

    async def __call__(self, digest: str) -> bytes:
        if digest not in self._loaded:
            if self._load_blob is None:
                raise BadRequest(f"attachment {digest[:12]} cannot be read", hint="the request has no load_blob")
            self._loaded[digest] = await self._load_blob(digest)
        return self._loaded[digest]


async def _request_part(
    message: Message, target: Target, load: _Loader, ids: WireIds, offered: set[str]
) -> UserPromptPart | ToolReturnPart | SystemPromptPart:
    match message:
        case UserMessage():
            return UserPromptPart(await _content(message.content, target, load))
        case ToolResultMessage():
            content = await _content(message.content, target, load)
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


async def _content(content: str | list[Content], target: Target, load: _Loader) -> str | Sequence[UserContent]:
    if isinstance(content, str):
        return content
    return [block.text if isinstance(block, Text) else await _file(block, target, load) for block in content]


async def _file(attachment: Attachment, target: Target, load: _Loader) -> UserContent:
    """Text files go as text; what the model does not take, as a note; all else as it is."""
    if is_text(attachment.media_type):
        return file_text(await load(attachment.digest), attachment)
    if not target.takes(attachment.media_type):
        return left_out(attachment)
    return BinaryContent(data=await load(attachment.digest), media_type=attachment.media_type)


def describe_change(change: SystemMessage) -> str:
    """A change of the system prompt as a message in the middle of a conversation says it."""
    parts = []
    for section, text in change.sections.items():
        parts.append(f"[{section} no longer applies]" if text is None else f"[{section}]\n{text}")
    if change.tools is not None:
        names = ", ".join(tool.name for tool in change.tools) or "none"
        parts.append(f"[tools offered from here on: {names}]")
    return "\n\n".join(parts)


async def _response(
    message: AssistantMessage, target: Target, load: _Loader, ids: WireIds, offered: set[str]
) -> ModelResponse:
    provider = message.provider or {}
    files = {
        block.digest: BinaryContent(data=await load(block.digest), media_type=block.media_type)
        for block in message.content
        if isinstance(block, Attachment) and target.images_back
    }
    return ModelResponse(
        parts=list(_response_parts(message, target.system, files, ids, offered)),
        model_name=_text(provider, "model"),
        provider_name=_text(provider, "name"),
        provider_url=_text(provider, "url"),
        canonical_system=_text(provider, "system"),
        provider_response_id=_text(provider, "id"),
        provider_details=_details(provider),
    )


def _response_parts(
    message: AssistantMessage, system: str, files: dict[str, BinaryContent], ids: WireIds, offered: set[str]
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
            case Attachment() if block.digest in files:
                yield FilePart(content=files[block.digest], **details)
            case Attachment():
                yield TextPart(made_here(block))


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
