"""A real HTTP server on loopback that speaks OpenAI's streamed chat completions, and can fail in every known way.

    python -m perdure.testing.fake_openai --port 0 --script turns.json

prints its base URL on the first line and serves until it is ended. `fake_turns` says what a script may hold.
"""

import argparse
import json
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec

from perdure.testing.fake_turns import (
    FAULTS,
    Answer,
    FakeTurn,
    JsonObject,
    complaint,
    deltas,
    finish_reason,
    in_order,
    parse_script,
)

Script = Answer | Sequence[FakeTurn | JsonObject]


class _GoneAway(Exception):
    """The client closed the connection."""


class FakeOpenAI:
    """The server, in a thread of its own. Use it as a context manager, or `start` and `stop`.

    `requests` keeps every body that came, in order; `headers` theirs; `gone` counts clients that closed before their
    answer was complete; `usage` is the provider's own ledger, of what its answers reported. `key` None takes any key.
    """

    def __init__(self, script: Script, *, port: int = 0, key: str | None = None, strict: bool = True) -> None:
        self._answer = script if callable(script) else in_order(script)
        self._key = key
        self._strict = strict
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", port), self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self.requests: list[JsonObject] = []
        self.headers: list[dict[str, str]] = []
        self.gone = 0
        self.usage = {"prompt_tokens": 0, "completion_tokens": 0}

    @property
    def base_url(self) -> str:
        """What a client takes as its base URL."""
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def start(self) -> "FakeOpenAI":
        """Begin to serve."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """End at once; open answers are cut off."""
        self._server.stopping = True
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> "FakeOpenAI":
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def take(self, body: Any, headers: dict[str, str]) -> FakeTurn:
        """Record a request and say how it is answered."""
        with self._lock:
            self.requests.append(body)
            self.headers.append(headers)
            if self._key is not None and headers.get("authorization") != f"Bearer {self._key}":
                return FAULTS["auth"]
            if self._strict and (wrong := complaint(body)):
                return FakeTurn(status=400, error={"message": wrong, "type": "invalid_request_error", "code": None})
            turn = self._answer(body)
            if turn.fault is None:
                return turn
            return FAULTS.get(turn.fault) or FakeTurn(status=400, error={"message": f"no fault {turn.fault!r}"})

    def count(self, usage: JsonObject) -> None:
        """Add what an answer reported."""
        with self._lock:
            for name in self.usage:
                self.usage[name] += usage.get(name, 0)

    def lost(self) -> None:
        """Note a client that did not wait for its answer."""
        with self._lock:
            self.gone += 1


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], fake: FakeOpenAI) -> None:
        self.fake = fake
        self.stopping = False
        super().__init__(address, _Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet: tests read `requests`."""

    def do_GET(self) -> None:
        """The list of models, and nothing else."""
        if self.path.rstrip("/").endswith("/models"):
            self._whole(200, {}, {"object": "list", "data": [{"id": "fake", "object": "model"}]})
        else:
            self._whole(404, {}, {"error": {"message": f"no {self.path}"}})

    def do_POST(self) -> None:
        """One completion."""
        data = self.rfile.read(int(self.headers.get("content-length") or 0))
        if not self.path.endswith("/chat/completions"):
            self._whole(404, {}, {"error": {"message": f"no {self.path}"}})
            return
        try:
            body = json.loads(data.decode("utf-8"))
        except ValueError as error:
            self._whole(400, {}, {"error": {"message": f"no JSON in UTF-8: {error}"}})
            return
        fake = self.server.fake
        turn = fake.take(body, {name.lower(): value for name, value in self.headers.items()})
        try:
            self._pause(turn.wait)
            if turn.status is not None:
                self._whole(turn.status, turn.headers, turn.error)
            else:
                self._stream(body, turn)
        except (_GoneAway, ConnectionError):
            fake.lost()
            self.close_connection = True

    def _whole(self, status: int, headers: Mapping[str, str], body: JsonObject | str | None) -> None:
        wrapped = body if isinstance(body, str) or body is None or "error" in body or status < 400 else {"error": body}
        data = wrapped.encode() if isinstance(wrapped, str) else msgspec.json.encode(wrapped)
        self.send_response(status)
        for name, value in {"content-type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, body: JsonObject, turn: FakeTurn) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for line in turn.raw:
            self._data(line)
        for number, delta in enumerate(deltas(turn)):
            if turn.cut is not None and number > turn.cut:  # the first delta holds only the role
                break
            if number:
                self._pause(turn.delay)
            self._chunk(body, delta, None)
        if turn.cut is not None:
            self._cut()
            return
        if turn.hold:
            self._pause(float("inf"))
        if turn.error_in_stream is not None:
            self._data(json.dumps({"error": turn.error_in_stream}))
        elif not turn.no_finish:
            self._end(body, turn)
        self.wfile.write(b"0\r\n\r\n")

    def _end(self, body: JsonObject, turn: FakeTurn) -> None:
        self._chunk(body, {}, finish_reason(turn))
        if turn.usage is not None:
            if (body.get("stream_options") or {}).get("include_usage"):
                total = turn.usage.get("prompt_tokens", 0) + turn.usage.get("completion_tokens", 0)
                self._data(
                    json.dumps({**self._head(body), "choices": [], "usage": {"total_tokens": total, **turn.usage}})
                )
            self.server.fake.count(turn.usage)
        self._data("[DONE]")

    def _head(self, body: JsonObject) -> JsonObject:
        return {"id": "chatcmpl-fake", "object": "chat.completion.chunk", "created": 1, "model": body.get("model")}

    def _chunk(self, body: JsonObject, delta: JsonObject, finish: str | None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        self._data(json.dumps({**self._head(body), "choices": [choice]}))

    def _data(self, line: str) -> None:
        data = f"data: {line}\n\n".encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _cut(self) -> None:
        """Break the connection, as a dying proxy does: no last chunk, no farewell."""
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _pause(self, seconds: float) -> None:
        """Wait, but notice at once when the client leaves."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self.server.stopping:
                raise ConnectionAbortedError
            readable, _, _ = select.select([self.connection], [], [], min(left, 0.05))
            if readable and not self.connection.recv(1, socket.MSG_PEEK):
                raise _GoneAway


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve a script from a file until SIGTERM or Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m perdure.testing.fake_openai", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes any free port")
    parser.add_argument("--script", type=Path, required=True, help="a JSON file of turns")
    parser.add_argument("--key", help="the only key that is let in")
    chosen = parser.parse_args(arguments)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    with FakeOpenAI(parse_script(chosen.script.read_bytes()), port=chosen.port, key=chosen.key) as fake:
        sys.stdout.write(f"{fake.base_url}\n")
        sys.stdout.flush()
        ended.wait()


if __name__ == "__main__":
    main()
