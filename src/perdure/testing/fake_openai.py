"""A real HTTP server on loopback that speaks OpenAI's streamed chat completions, and can fail in every known way.

    python -m perdure.testing.fake_openai --port 0 --script turns.json

prints its base URL on the first line and serves until it is ended. `fake_turns` says what a script may hold.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perdure.testing.fake_http import FakeServer, Piece, Script, serve_script
from perdure.testing.fake_turns import FAULTS, FakeTurn, JsonObject, complaint, deltas, finish_reason

COUNTED = ("prompt_tokens", "completion_tokens")


class FakeOpenAI(FakeServer):
    """OpenAI's chat completions; see `FakeServer`."""

    def __init__(self, script: Script, *, port: int = 0, key: str | None = None, strict: bool = True) -> None:
        super().__init__(script, port=port, key=key, strict=strict)
        self.usage = dict.fromkeys(COUNTED, 0)

    @property
    def base_url(self) -> str:
        """What a client takes as its base URL."""
        return f"{self.address}/v1"

    def takes(self, path: str) -> bool:
        return path.endswith("/chat/completions")

    def key_in(self, headers: Mapping[str, str]) -> str | None:
        return headers.get("authorization", "").removeprefix("Bearer ")

    def complaint(self, body: Any) -> str | None:
        return complaint(body)

    def fault(self, name: str) -> FakeTurn | None:
        return FAULTS.get(name)

    def bad_request(self, words: str) -> FakeTurn:
        return FakeTurn(status=400, error={"message": words, "type": "invalid_request_error", "code": None})

    def error_body(self, error: JsonObject, status: int) -> JsonObject:
        return {"error": error}

    def pieces(self, body: JsonObject, turn: FakeTurn) -> Iterator[Piece]:
        for number, delta in enumerate(deltas(turn)):  # the first delta holds only the role
            yield self._chunk(body, delta, None, counts=number > 0)

    def ending(self, body: JsonObject, turn: FakeTurn) -> Iterator[Piece]:
        yield self._chunk(body, {}, finish_reason(turn))
        if turn.usage is not None:
            if (body.get("stream_options") or {}).get("include_usage"):
                total = turn.usage.get("prompt_tokens", 0) + turn.usage.get("completion_tokens", 0)
                usage = {"total_tokens": total, **turn.usage}
                yield Piece(json.dumps({**_head(body), "choices": [], "usage": usage}))
            self.count({name: turn.usage.get(name, 0) for name in COUNTED})
        yield Piece("[DONE]")

    def error_in_stream(self, error: JsonObject) -> Piece:
        return Piece(json.dumps({"error": error}))

    def _chunk(self, body: JsonObject, delta: JsonObject, finish: str | None, *, counts: bool = True) -> Piece:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return Piece(json.dumps({**_head(body), "choices": [choice]}), counts)


def _head(body: JsonObject) -> JsonObject:
    return {"id": "chatcmpl-fake", "object": "chat.completion.chunk", "created": 1, "model": body.get("model")}


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve a script from a file until SIGTERM or Ctrl-C."""
    serve_script(FakeOpenAI, "perdure.testing.fake_openai", __doc__, arguments)


if __name__ == "__main__":
    main()
