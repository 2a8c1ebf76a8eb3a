"""A small server that speaks Anthropic's stream of messages: what OpenAI's has no words for."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

USAGE = {
    "input_tokens": 10,
    "cache_read_input_tokens": 80,
    "cache_creation_input_tokens": 10,
    "output_tokens": 1,
}


def thinking_and_call() -> list[dict[str, Any]]:
    """The events of a turn that thinks, signs what it thought, and calls a tool."""
    return [
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "thinking", "thinking": "", "signature": ""},
        },
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "let me see"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "c2lnbmVk"}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "tool_use", "id": "toolu_1", "name": "a", "input": {}},
        },
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"x": '}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "1}"}},
        {"type": "content_block_stop", "index": 1},
        *ending("tool_use"),
    ]


def text(words: str) -> list[dict[str, Any]]:
    """The events of a text, without an end."""
    return [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": words}},
        {"type": "content_block_stop", "index": 0},
    ]


def ending(reason: str) -> list[dict[str, Any]]:
    """The provider's own end mark."""
    return [
        {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": None},
            "usage": {"output_tokens": 7},
        },
        {"type": "message_stop"},
    ]


class AnthropicServer:
    """Answers each request with the next list of events, or with the next (status, error)."""

    def __init__(self, *answers: list[dict[str, Any]] | tuple[int, dict[str, Any]]) -> None:
        self.requests: list[dict[str, Any]] = []
        left = iter(answers)
        requests = self.requests

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:
                """Quiet."""

            def do_POST(self) -> None:
                requests.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                answer = next(left)
                if isinstance(answer, tuple):
                    status, kind, data = (
                        answer[0],
                        "application/json",
                        json.dumps({"type": "error", "error": answer[1]}),
                    )
                else:
                    status, kind, data = 200, "text/event-stream", _stream(answer)
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(data.encode())))
                self.end_headers()
                self.wfile.write(data.encode())

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self.base_url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "AnthropicServer":
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _stream(events: list[dict[str, Any]]) -> str:
    message: dict[str, Any] = {
        "id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "claude-opus-5",
        "stop_reason": None, "stop_sequence": None, "usage": USAGE,
    }  # fmt: skip
    begun = {"type": "message_start", "message": message}
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in [begun, *events])
