"""What the fake providers answer: turns as JSON, so that a script can come from a file of another process."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

JsonObject = dict[str, Any]


def _usual_usage() -> JsonObject:
    return {"prompt_tokens": 100, "completion_tokens": 10}


class FakeCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool call. `arguments` as text goes out as it stands, valid or not."""

    name: str
    arguments: JsonObject | str = {}
    id: str | None = None


class FakeImage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An image that the model made, its bytes in base64."""

    data: str
    media_type: str = "image/png"


class FakeTurn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One answer of the server, or one fault. Times in seconds. A wire leaves out what it has no words for.

    `redacted` is reasoning that the provider hides; what it signs, it signs by itself. `usage` is in OpenAI's words,
    `{"prompt_tokens": …, "completion_tokens": …, "prompt_tokens_details": {"cached_tokens": …,
    "cache_write_tokens": …}}`, and the other wires translate it; None: none is reported.
    `fault` names one of `FAULTS`; `status`, `headers` and `error` spell one out. `cut` breaks the connection after so
    many deltas; `no_finish` ends the stream in good order but without a finish reason; `hold` keeps it open after the
    last delta until the client goes away; `error_in_stream` sends an error object in the open stream.
    """

    text: str = ""
    thinking: str = ""
    redacted: str = ""
    refusal: str = ""
    images: tuple[FakeImage, ...] = ()
    calls: tuple[FakeCall, ...] = ()
    finish: str | None = None
    usage: JsonObject | None = msgspec.field(default_factory=_usual_usage)
    chunk: int = 8
    """Characters per delta."""
    wait: float = 0.0
    delay: float = 0.0
    """Between deltas."""
    raw: tuple[str, ...] = ()
    """Data lines sent as they stand before anything else, such as half of an escaped character."""
    fault: str | None = None
    status: int | None = None
    headers: dict[str, str] = {}
    error: JsonObject | str | None = None
    cut: int | None = None
    no_finish: bool = False
    hold: bool = False
    error_in_stream: JsonObject | None = None

    @property
    def fails(self) -> bool:
        """Whether the client gets no whole answer, so that it may ask again."""
        broken = self.cut is not None or self.no_finish or self.hold or self.error_in_stream is not None
        return broken or self.fault is not None or self.status is not None


def _error(message: str, kind: str, code: str | None = None) -> JsonObject:
    return {"message": message, "type": kind, "code": code, "param": None}


FAULTS: Final[dict[str, FakeTurn]] = {
    "rate_limit": FakeTurn(
        status=429,
        headers={"retry-after": "7"},
        error=_error("Rate limit reached for requests", "requests", "rate_limit_exceeded"),
    ),
    "rate_limit_days": FakeTurn(
        status=429,
        headers={"retry-after": str(16 * 86_400)},
        error=_error("Usage limit reached", "usage_limit", "rate_limit_exceeded"),
    ),
    "quota": FakeTurn(
        status=429,
        error=_error("You exceeded your current quota, check your billing", "insufficient_quota", "insufficient_quota"),
    ),
    "payment": FakeTurn(status=402, error=_error("Insufficient credits", "payment")),
    "server_error": FakeTurn(status=500, error=_error("The server had an error", "server_error")),
    "unavailable": FakeTurn(
        status=503, headers={"retry-after": "3"}, error=_error("The engine is overloaded", "overloaded")
    ),
    "context_length": FakeTurn(
        status=400,
        error=_error(
            "This model's maximum context length is 8192 tokens", "invalid_request_error", "context_length_exceeded"
        ),
    ),
    "bad_request": FakeTurn(status=400, error=_error("Invalid value", "invalid_request_error")),
    "policy": FakeTurn(
        status=400, error=_error("Rejected by our content_policy", "invalid_request_error", "content_policy_violation")
    ),
    "auth": FakeTurn(
        status=401, error=_error("Incorrect API key provided", "invalid_request_error", "invalid_api_key")
    ),
    "not_found": FakeTurn(
        status=404, error=_error("The model does not exist", "invalid_request_error", "model_not_found")
    ),
    "html": FakeTurn(status=502, headers={"content-type": "text/html"}, error="<html><h1>Bad gateway</h1></html>"),
}
"""Faults by name, as providers send them."""

Answer = Callable[[JsonObject], FakeTurn]


def parse_script(data: bytes) -> Answer:
    """The script of a JSON file: a list of turns, told in order, or `{"turns": [...], "by": "order" | "progress"}`."""
    script = msgspec.json.decode(data, type=_Script | list[FakeTurn])
    if isinstance(script, list):
        return in_order(script)
    return by_progress(script.turns) if script.by == "progress" else in_order(script.turns)


class _Script(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    turns: list[FakeTurn]
    by: str = "order"


def in_order(turns: Sequence[FakeTurn | JsonObject]) -> Answer:
    """Each request gets the next turn, whatever it holds."""
    left = iter([_turn(turn) for turn in turns])

    def answer(body: JsonObject) -> FakeTurn:
        return next(left, _OUT_OF_TURNS)

    return answer


def by_progress(turns: Sequence[FakeTurn | JsonObject]) -> Answer:
    """Turn n answers a request that holds n messages of the model; each failing turn delays the one behind it once."""
    due: list[list[FakeTurn]] = [[]]
    for turn in map(_turn, turns):
        due[-1].append(turn)
        if not turn.fails:
            due.append([])
    taken: dict[int, int] = {}

    def answer(body: JsonObject) -> FakeTurn:
        said = body.get("messages") or body.get("contents") or []
        place = sum(message.get("role") in {"assistant", "model"} for message in said)
        here: list[FakeTurn] = due[place] if place < len(due) else []
        number = taken.get(place, 0)
        taken[place] = number + 1
        if number < len(here):
            return here[number]
        return here[-1] if here and not here[-1].fails else _OUT_OF_TURNS

    return answer


_OUT_OF_TURNS: Final = FakeTurn(status=400, error=_error("the script has no turn left", "out_of_turns"))


def _turn(turn: FakeTurn | JsonObject) -> FakeTurn:
    if isinstance(turn, FakeTurn):
        return turn
    return msgspec.convert(turn, type=FakeTurn)


def deltas(turn: FakeTurn) -> Iterator[JsonObject]:
    """The `delta` objects of a turn, in the order a provider sends them."""
    yield {"role": "assistant", "content": ""}
    for piece in pieces(turn.thinking, turn.chunk):
        yield {"reasoning_content": piece}
    for piece in pieces(turn.refusal, turn.chunk):
        yield {"refusal": piece}
    for piece in pieces(turn.text, turn.chunk):
        yield {"content": piece}
    for index, call in enumerate(turn.calls):
        head = {"index": index, "id": call.id or f"call_{index}", "type": "function"}
        yield {"tool_calls": [{**head, "function": {"name": call.name, "arguments": ""}}]}
        raw = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
        for piece in pieces(raw, turn.chunk):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


class Counted(NamedTuple):
    """A turn's usage in numbers. `input` includes what was read from the cache and written to it."""

    input: int
    output: int
    cache_read: int
    cache_write: int


def counted(turn: FakeTurn) -> Counted | None:
    """What the turn reports, or None where it reports nothing."""
    if turn.usage is None:
        return None
    details = turn.usage.get("prompt_tokens_details") or {}
    return Counted(
        turn.usage.get("prompt_tokens", 0),
        turn.usage.get("completion_tokens", 0),
        details.get("cached_tokens", 0),
        details.get("cache_write_tokens", 0),
    )


def signature(kind: str, *of: object) -> bytes:
    """The signature of what a model thought or called: the same for the same words in every process, as the
    provider's own servers agree on theirs."""
    return hashlib.sha256(json.dumps([kind, *of], sort_keys=True).encode()).digest()


def finish_reason(turn: FakeTurn) -> str:
    """What the last chunk says."""
    return turn.finish or ("tool_calls" if turn.calls else "stop")


def pieces(text: str, size: int) -> list[str]:
    """The text in pieces of so many characters."""
    return [text[start : start + size] for start in range(0, len(text), size)]


def complaint(body: Any) -> str | None:
    """What a strict provider would refuse the request for, or None."""
    if not isinstance(body, dict) or not isinstance(body.get("messages"), list) or not body["messages"]:
        return "no messages"
    try:
        json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except (UnicodeEncodeError, ValueError):
        return "the body holds what is no JSON in UTF-8"
    if not body.get("stream") or not body.get("model"):
        return "only streamed requests that name a model are answered"
    said = [message for message in body["messages"] if message.get("role") not in {"system", "developer"}]
    if not said or said[0].get("role") != "user":
        return "the first message is not a user's"
    return _pairing(body["messages"])


def _pairing(messages: list[JsonObject]) -> str | None:
    used: set[str] = set()
    waiting: list[str] = []
    for place, message in enumerate(messages):
        if message.get("role") == "tool":
            if not waiting or message.get("tool_call_id") != waiting.pop(0):
                return f"message {place}: result of {message.get('tool_call_id')!r} in the wrong place"
            continue
        if waiting:
            return f"message {place} stands before the results of {waiting}"
        for call in message.get("tool_calls") or []:
            if call["id"] in used:
                return f"message {place}: call id {call['id']!r} was used before"
            if not _is_object(call["function"]["arguments"]):
                return f"message {place}: the arguments of {call['id']!r} are no JSON object"
            used.add(call["id"])
            waiting.append(call["id"])
    return f"no result for {waiting}" if waiting else None


def _is_object(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments), dict)
    except ValueError:
        return False
