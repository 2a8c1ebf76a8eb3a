"""A real HTTP server on loopback that speaks Anthropic's streamed messages, as strict as the real one.

    python -m perdure.testing.fake_anthropic --port 0 --script turns.json

It signs what a model thought, and refuses reasoning that comes back with another signature or other words.
"""

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from perdure.testing.fake_http import FakeServer, Piece, Script, serve_script
from perdure.testing.fake_turns import FakeTurn, JsonObject, counted, pieces, signature

IDS: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
IMAGE_TYPES: Final = {"image/png", "image/jpeg", "image/gif", "image/webp"}
BREAKPOINTS: Final = 4
"""Cache breakpoints that one request may set."""


def _error(kind: str, message: str) -> JsonObject:
    return {"type": kind, "message": message}


FAULTS: Final[dict[str, FakeTurn]] = {
    "rate_limit": FakeTurn(status=429, headers={"retry-after": "7"}, error=_error("rate_limit_error", "slow down")),
    "overloaded": FakeTurn(status=529, headers={"retry-after": "3"}, error=_error("overloaded_error", "Overloaded")),
    "server_error": FakeTurn(status=500, error=_error("api_error", "Internal server error")),
    "quota": FakeTurn(
        status=400,
        error=_error("invalid_request_error", "Your credit balance is too low to access the Anthropic API"),
    ),
    "context_length": FakeTurn(
        status=400, error=_error("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum")
    ),
    "too_large": FakeTurn(status=413, error=_error("request_too_large", "Request exceeds the maximum size")),
    "bad_request": FakeTurn(status=400, error=_error("invalid_request_error", "max_tokens: Field required")),
    "auth": FakeTurn(status=401, error=_error("authentication_error", "invalid x-api-key")),
    "not_found": FakeTurn(status=404, error=_error("not_found_error", "model: no-such-model")),
}
"""Faults by name, as the provider sends them."""


def signed(thinking: str) -> str:
    """The signature that comes with this reasoning, in base64."""
    return base64.b64encode(signature("thinking", thinking)).decode()


def hidden(redacted: str) -> str:
    """Redacted reasoning as it goes over the wire: opaque, and checked when it comes back."""
    return base64.b64encode(signature("redacted", redacted) + redacted.encode()).decode()


BATCHES: Final = "/v1/messages/batches"


class FakeAnthropic(FakeServer):
    """Anthropic's messages; see `FakeServer`. Its batches are done when they have been asked for `batch_polls` times;
    `cancelled` keeps the ids of those that nobody wanted any more."""

    def __init__(
        self, script: Script, *, port: int = 0, key: str | None = None, strict: bool = True, batch_polls: int = 1
    ) -> None:
        super().__init__(script, port=port, key=key, strict=strict)
        self.batches: dict[str, FakeBatch] = {}
        self.batch_polls = batch_polls
        self.cancelled: list[str] = []

    def other(self, path: str, body: Any) -> tuple[int, JsonObject | str] | None:
        path = path.partition("?")[0]
        if path == BATCHES and body is not None:
            return self._batch(body["requests"])
        id, _, verb = path.removeprefix(BATCHES).strip("/").partition("/")
        batch = self.batches.get(id) if path.startswith(BATCHES) else None
        if batch is None:
            return None
        if verb == "results":
            return 200, batch.results()
        if verb == "cancel":
            self.cancelled.append(id)
            batch.ended = True
        elif batch.asked >= self.batch_polls:
            batch.ended = True
        batch.asked += 1
        return 200, batch.told(self.address)

    def _batch(self, requests: list[JsonObject]) -> tuple[int, JsonObject | str]:
        batch = FakeBatch(f"msgbatch_{len(self.batches)}")
        for request in requests:
            turn = self.take(b"", {**request["params"], "stream": True}, {}, BATCHES)
            batch.answers[request["custom_id"]] = _whole(request["params"], turn)
        self.batches[batch.id] = batch
        return 200, batch.told(self.address)

    def takes(self, path: str) -> bool:
        return path.partition("?")[0].endswith("/v1/messages")

    def key_in(self, headers: Mapping[str, str]) -> str | None:
        return headers.get("x-api-key")

    def complaint(self, body: Any) -> str | None:
        return complaint(body)

    def fault(self, name: str) -> FakeTurn | None:
        return FAULTS.get(name)

    def bad_request(self, words: str) -> FakeTurn:
        return FakeTurn(status=400, error=_error("invalid_request_error", words))

    def error_body(self, error: JsonObject, status: int) -> JsonObject:
        return {"type": "error", "error": error}

    def error_in_stream(self, error: JsonObject) -> Piece:
        return _event("error", {"error": error}, counts=False)

    def pieces(self, body: JsonObject, turn: FakeTurn) -> Iterator[Piece]:
        message: JsonObject = {
            "id": f"msg_{len(self.requests)}", "type": "message", "role": "assistant", "content": [],
            "model": body.get("model"), "stop_reason": None, "stop_sequence": None, "usage": _usage_in(turn),
        }  # fmt: skip
        yield _event("message_start", {"message": message}, counts=False)
        for index, (block, deltas) in enumerate(_blocks(turn)):
            yield _event("content_block_start", {"index": index, "content_block": block}, counts=False)
            for delta in deltas:
                yield _event("content_block_delta", {"index": index, "delta": delta})
            yield _event("content_block_stop", {"index": index}, counts=False)

    def ending(self, body: JsonObject, turn: FakeTurn) -> Iterator[Piece]:
        stop = turn.finish or ("refusal" if turn.refusal else "tool_use" if turn.calls else "end_turn")
        usage = counted(turn)
        end = {"delta": {"stop_reason": stop, "stop_sequence": None}, "usage": {"output_tokens": 0}}
        if usage is not None:
            end["usage"] = {"output_tokens": usage.output}
            self.count({**_usage_in(turn), "output_tokens": usage.output})
        yield _event("message_delta", end, counts=False)
        yield _event("message_stop", {}, counts=False)


class FakeBatch:
    """A batch at the provider's."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.answers: dict[str, JsonObject] = {}
        self.asked = 0
        self.ended = False

    def told(self, address: str) -> JsonObject:
        """How it stands."""
        counts = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
        counts["succeeded" if self.ended else "processing"] = len(self.answers)
        return {
            "id": self.id, "type": "message_batch", "request_counts": counts,
            "processing_status": "ended" if self.ended else "in_progress",
            "created_at": "2026-01-01T00:00:00Z", "expires_at": "2026-01-02T00:00:00Z",
            "ended_at": None, "archived_at": None, "cancel_initiated_at": None,
            "results_url": f"{address}{BATCHES}/{self.id}/results" if self.ended else None,
        }  # fmt: skip

    def results(self) -> str:
        """Its answers, as lines of JSON."""
        return "".join(json.dumps({"custom_id": id, "result": said}) + "\n" for id, said in self.answers.items())


def _whole(body: JsonObject, turn: FakeTurn) -> JsonObject:
    """A turn as the result of a batched request. `finish` "expired" is one that was never run."""
    if turn.finish == "expired":
        return {"type": "expired"}
    if turn.status is not None:
        return {"type": "errored", "error": {"type": "error", "error": turn.error}}
    content: list[JsonObject] = []
    for block, deltas in _blocks(turn):
        for delta in deltas:
            name = next(name for name in ("thinking", "signature", "text", "partial_json") if name in delta)
            block[name] = block.get(name, "") + delta[name]
        if block["type"] == "tool_use":
            block["input"] = json.loads(block.pop("partial_json", "{}"))
        content.append(block)
    usage = counted(turn)
    stop = turn.finish or ("tool_use" if turn.calls else "end_turn")
    message = {
        "id": "msg_batched", "type": "message", "role": "assistant", "model": body["model"], "content": content,
        "stop_reason": stop, "stop_sequence": None,
        "usage": {**_usage_in(turn), "output_tokens": usage.output if usage else 0},
    }  # fmt: skip
    return {"type": "succeeded", "message": message}


def _event(kind: str, data: JsonObject, *, counts: bool = True) -> Piece:
    return Piece(json.dumps({"type": kind, **data}), counts, kind)


def _usage_in(turn: FakeTurn) -> dict[str, int]:
    usage = counted(turn)
    if usage is None:
        return {"input_tokens": 0, "output_tokens": 0}
    return {
        "input_tokens": usage.input - usage.cache_read - usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation_input_tokens": usage.cache_write,
        "output_tokens": 1,
    }


def _blocks(turn: FakeTurn) -> Iterator[tuple[JsonObject, list[JsonObject]]]:
    """The blocks of a turn, each with its deltas."""
    if turn.redacted:
        yield {"type": "redacted_thinking", "data": hidden(turn.redacted)}, []
    if turn.thinking:
        told: list[JsonObject] = [
            {"type": "thinking_delta", "thinking": piece} for piece in pieces(turn.thinking, turn.chunk)
        ]
        told.append({"type": "signature_delta", "signature": signed(turn.thinking)})
        yield {"type": "thinking", "thinking": "", "signature": ""}, told
    if text := turn.refusal or turn.text:
        yield (
            {"type": "text", "text": ""},
            [{"type": "text_delta", "text": piece} for piece in pieces(text, turn.chunk)],
        )
    for number, call in enumerate(turn.calls):
        raw = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
        block = {"type": "tool_use", "id": call.id or f"toolu_{number}", "name": call.name, "input": {}}
        yield block, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces(raw, turn.chunk)]


def complaint(body: Any) -> str | None:
    """What the provider would refuse the request for, or None."""
    if not isinstance(body, dict) or not isinstance(body.get("messages"), list) or not body["messages"]:
        return "messages: at least one message is required"
    if not isinstance(body.get("max_tokens"), int) or not body.get("model") or not body.get("stream"):
        return "only streamed requests that name a model and max_tokens are answered"
    messages = [message if isinstance(message["content"], list) else _listed(message) for message in body["messages"]]
    if messages[0]["role"] != "user" or messages[-1]["role"] == "assistant":
        return "the first message is a user's, and the last is not the assistant's"
    names = [tool.get("name", "") for tool in body.get("tools", [])]
    if len(names) != len(set(names)) or not all(map(IDS.fullmatch, names)):
        return f"tools: names must be unique, of allowed characters: {names}"
    if json.dumps(body).count('"cache_control"') > BREAKPOINTS:
        return f"A maximum of {BREAKPOINTS} blocks with cache_control may be provided"
    wrong = next(filter(None, map(_block_complaint, _all_blocks(body, messages))), None)
    return wrong or _pairing(messages) or _system_places(messages) or _open_round(body, messages)


def _listed(message: JsonObject) -> JsonObject:
    return {**message, "content": [{"type": "text", "text": message["content"]}]}


def _all_blocks(body: JsonObject, messages: list[JsonObject]) -> Iterator[JsonObject]:
    system = body.get("system") or []
    yield from [{"type": "text", "text": system}] if isinstance(system, str) else system
    for message in messages:
        for block in message["content"]:
            yield block
            if block["type"] == "tool_result" and isinstance(block.get("content"), list):
                yield from block["content"]


def _block_complaint(block: JsonObject) -> str | None:
    match block["type"]:
        case "text" if not block["text"].strip():
            return "text content blocks must contain non-whitespace text"
        case "thinking" if block.get("signature") != signed(block["thinking"]):
            return "Invalid `signature` in `thinking` block"
        case "redacted_thinking":
            raw = base64.b64decode(block["data"])
            if raw[:32] != signature("redacted", raw[32:].decode("utf-8", "replace")):
                return "Invalid `data` in `redacted_thinking` block"
        case "image" if block["source"]["media_type"] not in IMAGE_TYPES:
            return f"image media type {block['source']['media_type']} is not supported"
        case "tool_use" if not IDS.fullmatch(block["id"]) or not isinstance(block["input"], dict):
            return f"tool_use {block['id']!r}: the id or the input is not allowed"
    return None


def _pairing(messages: list[JsonObject]) -> str | None:
    used: set[str] = set()
    waiting: list[str] = []
    for place, message in enumerate(messages):
        results = [block["tool_use_id"] for block in message["content"] if block["type"] == "tool_result"]
        if sorted(results) != sorted(waiting):
            return f"messages.{place}: results of {results}, where {waiting} wait for theirs"
        if any(block["type"] != "tool_result" for block in message["content"][: len(results)]):
            return f"messages.{place}: results stand first"
        waiting = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
        if len({*waiting, *used}) != len(waiting) + len(used):
            return f"messages.{place}: `tool_use` ids must be unique"
        used.update(waiting)
    return f"no result for {waiting}" if waiting else None


def _system_places(messages: list[JsonObject]) -> str | None:
    for before, message in pairwise(messages):
        if message["role"] == "system" and before["role"] != "user":
            return "a system message follows a user's"
    return None


def _open_round(body: JsonObject, messages: list[JsonObject]) -> str | None:
    """With a thinking budget, the turn whose calls are being answered begins with what was thought."""
    if (body.get("thinking") or {}).get("type") != "enabled":
        return None
    none: list[JsonObject] = []
    last = next((message["content"] for message in reversed(messages) if message["role"] == "assistant"), none)
    calls = any(block["type"] == "tool_use" for block in last)
    if calls and last[0]["type"] not in {"thinking", "redacted_thinking"}:
        return f"Expected `thinking` or `redacted_thinking`, but found `{last[0]['type']}`"
    return None


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve a script from a file until SIGTERM or Ctrl-C."""
    serve_script(FakeAnthropic, "perdure.testing.fake_anthropic", __doc__, arguments)


if __name__ == "__main__":
    main()
