"""A real HTTP server on loopback that speaks Gemini's streamed `generateContent`, as strict as the real one.

    python -m perdure.testing.fake_google --port 0 --script turns.json

It signs its calls and answers, and refuses a call that comes back unsigned or with a signature of something else.
"""

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from perdure.testing.fake_http import FakeServer, Piece, serve_script
from perdure.testing.fake_turns import FakeTurn, JsonObject, counted, pieces, signature

UNSIGNED: Final = b"skip_thought_signature_validator"
"""What the provider takes in place of a signature for calls that another model made."""

FAILED_CALL: Final = "MALFORMED_FUNCTION_CALL"


def _error(status: str, message: str, *details: JsonObject) -> JsonObject:
    return {"status": status, "message": message, "details": list(details)}


def _retry(seconds: int) -> JsonObject:
    return {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{seconds}s"}


FAULTS: Final[dict[str, FakeTurn]] = {
    "rate_limit": FakeTurn(status=429, error=_error("RESOURCE_EXHAUSTED", "Resource has been exhausted", _retry(7))),
    "overloaded": FakeTurn(status=503, error=_error("UNAVAILABLE", "The model is overloaded")),
    "server_error": FakeTurn(status=500, error=_error("INTERNAL", "An internal error has occurred")),
    "context_length": FakeTurn(
        status=400,
        error=_error(
            "INVALID_ARGUMENT", "The input token count (1100000) exceeds the maximum number of tokens allowed (1048576)"
        ),
    ),
    "bad_request": FakeTurn(status=400, error=_error("INVALID_ARGUMENT", "Invalid value at 'contents'")),
    "auth": FakeTurn(
        status=400,
        error=_error(
            "INVALID_ARGUMENT",
            "API key not valid. Please pass a valid API key.",
            {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"},
        ),
    ),
    "not_found": FakeTurn(
        status=404, error=_error("NOT_FOUND", "models/no-such-model is not found for API version v1beta")
    ),
}
"""Faults by name, as the provider sends them."""


def signed_call(name: str, arguments: JsonObject) -> bytes:
    """The signature that comes with a call."""
    return signature("call", name, arguments)


class FakeGoogle(FakeServer):
    """Gemini's generated contents; see `FakeServer`. `unsigned` counts calls that came back with `UNSIGNED`."""

    unsigned = 0

    def takes(self, path: str) -> bool:
        return ":streamGenerateContent" in path

    def key_in(self, headers: Mapping[str, str]) -> str | None:
        return headers.get("x-goog-api-key")

    def complaint(self, body: Any) -> str | None:
        if not isinstance(body, dict) or not body.get("contents"):
            return "contents is not specified"
        self.unsigned += sum(_bytes(part) == UNSIGNED for content in body["contents"] for part in content["parts"])
        return complaint(body["contents"])

    def fault(self, name: str) -> FakeTurn | None:
        return FAULTS.get(name)

    def bad_request(self, words: str) -> FakeTurn:
        return FakeTurn(status=400, error=_error("INVALID_ARGUMENT", words))

    def error_body(self, error: JsonObject, status: int) -> JsonObject:
        return {"error": {"code": status, **error}}

    def error_in_stream(self, error: JsonObject) -> Piece:
        return Piece(json.dumps({"error": {"code": 503, "status": "UNAVAILABLE", **error}}), False)

    def pieces(self, body: JsonObject, turn: FakeTurn) -> Iterator[Piece]:
        for part in _parts(turn):
            yield self._chunk({"content": {"role": "model", "parts": [part]}, "index": 0})

    def ending(self, body: JsonObject, turn: FakeTurn) -> Iterator[Piece]:
        if turn.refusal:
            blocked = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT", "blockReasonMessage": turn.refusal}}
            yield Piece(json.dumps({**blocked, **self._rest(turn)}), False)
            return
        broken = any(isinstance(call.arguments, str) for call in turn.calls)
        end: JsonObject = {"finishReason": turn.finish or (FAILED_CALL if broken else "STOP"), "index": 0}
        if not turn.calls and turn.thinking and turn.text:
            signed = base64.b64encode(signature("text", turn.text)).decode()
            end["content"] = {"role": "model", "parts": [{"text": "", "thoughtSignature": signed}]}
        yield self._chunk(end, turn)

    def _chunk(self, candidate: JsonObject, turn: FakeTurn | None = None) -> Piece:
        return Piece(json.dumps({"candidates": [candidate], **self._rest(turn)}), turn is None)

    def _rest(self, turn: FakeTurn | None) -> JsonObject:
        rest: JsonObject = {"modelVersion": "gemini-fake", "responseId": f"response_{len(self.requests)}"}
        usage = None if turn is None else counted(turn)
        if usage is not None:
            rest["usageMetadata"] = {
                "promptTokenCount": usage.input,
                "candidatesTokenCount": usage.output,
                "totalTokenCount": usage.input + usage.output,
                **({"cachedContentTokenCount": usage.cache_read} if usage.cache_read else {}),
            }
            self.count(rest["usageMetadata"])
        return rest


def _parts(turn: FakeTurn) -> Iterator[JsonObject]:
    for piece in pieces(turn.thinking, turn.chunk):
        yield {"text": piece, "thought": True}
    for piece in pieces(turn.text, turn.chunk):
        yield {"text": piece}
    for image in turn.images:
        yield {"inlineData": {"mimeType": image.media_type, "data": image.data}}
    signs = True
    for call in turn.calls:
        if isinstance(call.arguments, str):
            continue  # a call that cannot be read never leaves the provider; the finish reason tells of it
        made = {"name": call.name, "args": call.arguments, **({"id": call.id} if call.id else {})}
        part: JsonObject = {"functionCall": made}
        if signs:  # only the first of a turn is signed
            part["thoughtSignature"] = base64.b64encode(signed_call(call.name, call.arguments)).decode()
        signs = False
        yield part


def complaint(contents: list[JsonObject]) -> str | None:
    """What the provider would refuse the contents for, or None."""
    if contents[0].get("role") != "user" or contents[-1].get("role") != "user":
        return "the first and the last content are a user's"
    waiting: list[JsonObject] = []
    for place, content in enumerate(contents):
        if not content.get("parts"):
            return f"contents.{place}: must include at least one parts field"
        results = [part["functionResponse"] for part in content["parts"] if "functionResponse" in part]
        if [one["name"] for one in results] != [one["name"] for one in waiting]:
            return f"contents.{place}: the number of function response parts is not that of the call parts before"
        if any(one.get("id") != call["id"] for one, call in zip(results, waiting, strict=True) if "id" in call):
            return f"contents.{place}: a function response answers another call"
        waiting = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
        if wrong := next(filter(None, map(_part_complaint, content["parts"])), None):
            return f"contents.{place}: {wrong}"
        first = next((part for part in content["parts"] if "functionCall" in part), None)
        if first is not None and not first.get("thoughtSignature"):
            return f"contents.{place}: Function call is missing a thought_signature"
    return f"no response for {waiting}" if waiting else None


def _part_complaint(part: JsonObject) -> str | None:
    signed = _bytes(part)
    if "text" in part and not part["text"] and signed is None:
        return "empty text"
    if signed is None or signed == UNSIGNED:
        return None
    call = part.get("functionCall")
    if call is not None:
        return None if signed == signed_call(call["name"], call.get("args") or {}) else "Corrupted thought signature"
    return None if signed == signature("text", part.get("text", "")) else "Corrupted thought signature"


def _bytes(part: JsonObject) -> bytes | None:
    """A part's signature; clients write base64 with either alphabet."""
    raw = part.get("thoughtSignature")
    return None if raw is None else base64.b64decode(raw.replace("-", "+").replace("_", "/") + "==")


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve a script from a file until SIGTERM or Ctrl-C."""
    serve_script(FakeGoogle, "perdure.testing.fake_google", __doc__, arguments)


if __name__ == "__main__":
    main()
