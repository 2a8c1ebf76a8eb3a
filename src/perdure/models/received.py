"""What the provider library streams, as our events and our message. Imported only when a model is first used."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from pydantic_ai.messages import (
    FilePart,
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)

from perdure.base.digest import sha256
from perdure.base.text import well_formed
from perdure.models.errors import CutOff
from perdure.models.messages import AssistantMessage, Attachment, Said, StopReason, Text, Thinking, ToolCall, Usage
from perdure.models.protocol import Event, Finished, TextDelta, ThinkingDelta, ToolCallDelta
from perdure.models.unicode import Stitch, clean, parse_arguments

STOP_REASONS: Final[dict[str, StopReason]] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "refusal",
    "tool_call": "tool_calls",
}

DETAILS_LEFT_OUT: Final = {"timestamp", "logprobs"}
"""Provider details that nothing reads back: a time of the provider's own, and bulk."""

Part = TextPart | ThinkingPart | ToolCallPart


class _Open:
    """A block that is being streamed."""

    def __init__(self, index: int, kind: type[Part]) -> None:
        self.index = index
        self.kind = kind
        self.stitch = Stitch()


class Received:
    """Follows one stream: the library's part events in, our deltas out, the whole message at the end."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._blocks: dict[int, _Open] = {}
        self._next = 0
        self._ids_begun: set[str] = set()
        self._ids_finished: set[str] = set()
        self._files: dict[str, bytes] = {}

    def deltas(self, event: ModelResponseStreamEvent) -> Iterator[Event]:
        """Our deltas for one event; none for events that only repeat what is known."""
        if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart | ThinkingPart | ToolCallPart):
            block = _Open(self._next, _kind(event.part))
            self._next += 1
            self._blocks[event.index] = block
            yield from self._begin(block, event.part)
        elif isinstance(event, PartDeltaEvent) and event.index in self._blocks:
            yield from self._more(self._blocks[event.index], event.delta)

    def _begin(self, block: _Open, part: Part) -> Iterator[Event]:
        if isinstance(part, ToolCallPart):
            yield ToolCallDelta(
                block.index,
                id=_unique(part.tool_call_id, self._ids_begun),
                name=well_formed(part.tool_name),
                arguments=block.stitch.add(_raw(part.args)),
            )
        elif part.content:
            yield from _piece(block, block.stitch.add(part.content))

    def _more(self, block: _Open, delta: object) -> Iterator[Event]:
        if isinstance(delta, TextPartDelta | ThinkingPartDelta) and delta.content_delta:
            yield from _piece(block, block.stitch.add(delta.content_delta))
        elif isinstance(delta, ToolCallPartDelta):
            name = well_formed(delta.tool_name_delta) if delta.tool_name_delta else None
            arguments = block.stitch.add(_raw(delta.args_delta))
            if name or arguments:
                yield ToolCallDelta(block.index, name=name, arguments=arguments)

    def finish(self, response: ModelResponse, cost: float | None = None) -> Iterator[Event]:
        """What was still held, then the whole message. `cost` (USD) where the price list does not tell it.

        Raises `CutOff` when the provider gave no end mark.
        """
        if response.finish_reason is None:
            raise CutOff("the answer ended without the provider's end mark", hint="it may be incomplete")
        if response.finish_reason == "error":
            raise CutOff(f"the provider broke off its answer ({_raw_reason(response) or 'no reason given'})")
        for block in self._blocks.values():
            if held := block.stitch.end():
                yield (
                    ToolCallDelta(block.index, arguments=held)
                    if block.kind is ToolCallPart
                    else TextDelta(block.index, held)
                )
        content = [said for part in response.parts if (said := self._block(part)) is not None]
        if refusal := _refusal(response):
            content.append(Text(refusal))
            yield TextDelta(self._next, refusal)
        yield Finished(
            AssistantMessage(
                content=content,
                stop=_stop(response, content),
                model=self._name,
                usage=_usage(response, cost),
                provider=_response_details(response),
            ),
            self._files,
        )

    def _block(self, part: object) -> Said | None:
        if isinstance(part, TextPart):
            details = _part_details(part, always=False)
            return Text(well_formed(part.content), provider=details) if part.content or details else None
        if isinstance(part, ThinkingPart):
            signature = well_formed(part.signature) if part.signature else None
            return Thinking(well_formed(part.content), signature=signature, provider=_part_details(part, always=True))
        if isinstance(part, ToolCallPart):
            return ToolCall(
                id=_unique(part.tool_call_id, self._ids_finished),
                name=well_formed(part.tool_name),
                arguments=parse_arguments(part.args),
                provider=_part_details(part, always=False),
            )
        if isinstance(part, FilePart):
            digest = sha256(part.content.data).hex()
            self._files[digest] = part.content.data
            return Attachment(digest, part.content.media_type, provider=_part_details(part, always=False))
        return None


def _unique(call_id: str, used: set[str]) -> str:
    """Two calls of one response under one id could not be answered apart."""
    stem = well_formed(call_id)
    name, number = stem, 1
    while name in used:
        number += 1
        name = f"{stem}-{number}"
    used.add(name)
    return name


def _kind(part: Part) -> type[Part]:
    """The library may hand out subclasses of its parts."""
    return next(kind for kind in (TextPart, ThinkingPart, ToolCallPart) if isinstance(part, kind))


def _piece(block: _Open, text: str) -> Iterator[Event]:
    if not text:
        return
    if block.kind is ToolCallPart:
        yield ToolCallDelta(block.index, arguments=text)
    else:
        yield ThinkingDelta(block.index, text) if block.kind is ThinkingPart else TextDelta(block.index, text)


def _raw(arguments: str | dict[str, Any] | None) -> str:
    if not arguments:
        return ""
    return arguments if isinstance(arguments, str) else msgspec.json.encode(clean(arguments)).decode()


def _stop(response: ModelResponse, content: list[Said]) -> StopReason:
    """Some servers say `stop` where they mean their calls, and the other way round."""
    stop = STOP_REASONS.get(response.finish_reason or "", "stop")
    calls = any(isinstance(block, ToolCall) for block in content)
    if stop in {"stop", "tool_calls"}:
        return "tool_calls" if calls else "stop"
    return stop


def _usage(response: ModelResponse, cost: float | None) -> Usage | None:
    """None when the provider reported none: unknown is not zero."""
    usage = response.usage
    if usage.unmeasured_requests or not (usage.input_tokens or usage.output_tokens):
        return None
    return Usage(
        input=usage.input_tokens,
        output=usage.output_tokens,
        cache_read=usage.cache_read_tokens,
        cache_write=usage.cache_write_tokens,
        cost=cost,
    )


def _refusal(response: ModelResponse) -> str | None:
    refusal = (response.provider_details or {}).get("refusal")
    return well_formed(refusal) if isinstance(refusal, str) and refusal else None


def _raw_reason(response: ModelResponse) -> str | None:
    reason = (response.provider_details or {}).get("finish_reason")
    return well_formed(str(reason)) if reason else None


def _part_details(part: Part | FilePart, *, always: bool) -> dict[str, Any] | None:
    """What the provider wants back with the block, opaque to us. `always`: its name too, where nothing else is."""
    details = _details(part.provider_details)
    if not (always or part.id or details):
        return None
    return _without_none({"name": part.provider_name, "id": part.id, "details": details}) or None


def _response_details(response: ModelResponse) -> dict[str, Any] | None:
    return (
        _without_none(
            {
                "name": response.provider_name,
                "url": response.provider_url,
                "system": response.canonical_system,
                "model": response.model_name,
                "id": response.provider_response_id,
                "details": _details(response.provider_details),
            }
        )
        or None
    )


def _details(details: dict[str, Any] | None) -> dict[str, Any] | None:
    kept = {key: value for key, value in (details or {}).items() if key not in DETAILS_LEFT_OUT}
    return clean(kept) if kept else None


def _without_none(value: dict[str, Any]) -> dict[str, Any]:
    return {key: clean(item) for key, item in value.items() if item is not None}
