"""What the fake providers share: a real HTTP server on loopback that tells a script, and can fail in every known way.

Each provider's wire is a subclass that says which requests it takes, what it would refuse, and how a turn is streamed.
"""

import argparse
import json
import select
import signal
import socket
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec

from perdure.testing.fake_turns import Answer, FakeTurn, JsonObject, in_order, parse_script

Script = Answer | Sequence[FakeTurn | JsonObject]


class Piece(NamedTuple):
    """One event of a stream. `counts`: it carries a piece of the answer, which `FakeTurn.cut` counts."""

    data: str
    counts: bool = True
    event: str | None = None


class FakeServer(ABC):
    """The server, in a thread of its own. Use it as a context manager, or `start` and `stop`.

    `requests` keeps every body that came, in order; `bodies` the same as the bytes that came; `headers` and `paths`
    theirs; `gone` counts clients that closed before their answer was complete; `usage` is the provider's own ledger,
    of what its answers reported. `key` None takes any key. A `strict` one refuses what the provider would refuse.
    """

    def __init__(self, script: Script, *, port: int = 0, key: str | None = None, strict: bool = True) -> None:
        self._answer = script if callable(script) else in_order(script)
        self._key = key
        self._strict = strict
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", port), self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self.requests: list[JsonObject] = []
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.gone = 0
        self.usage: dict[str, int] = {}

    @property
    def address(self) -> str:
        """Scheme, host and port."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def base_url(self) -> str:
        """What a client takes as its base URL."""
        return self.address

    def start(self) -> Self:
        """Begin to serve."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """End at once; open answers are cut off."""
        self._server.stopping = True
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def other(self, path: str, body: Any) -> tuple[int, JsonObject | str] | None:
        """The answer to what is no streamed request: a status, and JSON or text. None: there is nothing there."""
        return None

    @abstractmethod
    def takes(self, path: str) -> bool:
        """Whether a request may be posted there."""

    @abstractmethod
    def key_in(self, headers: Mapping[str, str]) -> str | None:
        """The key that a request shows."""

    @abstractmethod
    def complaint(self, body: Any) -> str | None:
        """What a strict provider would refuse the request for."""

    @abstractmethod
    def fault(self, name: str) -> FakeTurn | None:
        """A fault by its name."""

    @abstractmethod
    def bad_request(self, words: str) -> FakeTurn:
        """The answer to a request that is refused."""

    @abstractmethod
    def error_body(self, error: JsonObject, status: int) -> JsonObject:
        """An error as the body of a response."""

    @abstractmethod
    def pieces(self, body: JsonObject, turn: FakeTurn) -> Iterator[Piece]:
        """The events of a turn up to its last delta."""

    @abstractmethod
    def ending(self, body: JsonObject, turn: FakeTurn) -> Iterator[Piece]:
        """The provider's own end mark, usage included."""

    @abstractmethod
    def error_in_stream(self, error: JsonObject) -> Piece:
        """An error in an open stream."""

    def take(self, data: bytes, body: Any, headers: dict[str, str], path: str) -> FakeTurn:
        """Record a request and say how it is answered."""
        with self._lock:
            self.requests.append(body)
            self.bodies.append(data)
            self.headers.append(headers)
            self.paths.append(path)
            if self._key is not None and self.key_in(headers) != self._key:
                return self.fault("auth") or self.bad_request("wrong key")
            if self._strict and (wrong := self.complaint(body)):
                return self.bad_request(wrong)
            turn = self._answer(body)
            if turn.fault is None:
                return turn
            return self.fault(turn.fault) or self.bad_request(f"no fault {turn.fault!r}")

    def count(self, usage: Mapping[str, int]) -> None:
        """Add what an answer reported."""
        with self._lock:
            for name, number in usage.items():
                self.usage[name] = self.usage.get(name, 0) + number

    def lost(self) -> None:
        """Note a client that did not wait for its answer."""
        with self._lock:
            self.gone += 1


class _GoneAway(Exception):
    """The client closed the connection."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], fake: FakeServer) -> None:
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
        """The list of models, and what a provider has beside."""
        if (other := self.server.fake.other(self.path, None)) is not None:
            self._whole(other[0], {}, other[1])
        elif self.path.rstrip("/").endswith("/models"):
            self._whole(200, {}, {"object": "list", "data": [{"id": "fake", "object": "model"}]})
        else:
            self._whole(404, {}, {"message": f"no {self.path}"})

    def do_POST(self) -> None:
        """One answer."""
        data = self.rfile.read(int(self.headers.get("content-length") or 0))
        fake = self.server.fake
        try:
            body: Any = json.loads(data.decode("utf-8")) if data else None
        except ValueError as error:
            self._whole(400, {}, {"message": f"no JSON in UTF-8: {error}"})
            return
        if not fake.takes(self.path):
            status, said = fake.other(self.path, body) or (404, {"message": f"no {self.path}"})
            self._whole(status, {}, said)
            return
        turn = fake.take(data, body, {name.lower(): value for name, value in self.headers.items()}, self.path)
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
        as_it_is = body is None or isinstance(body, str) or "error" in body or status < 400
        wrapped = body if as_it_is else self.server.fake.error_body(body, status)  # type: ignore[arg-type]
        data = wrapped.encode() if isinstance(wrapped, str) else msgspec.json.encode(wrapped)
        self.send_response(status)
        for name, value in {"content-type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, body: JsonObject, turn: FakeTurn) -> None:
        fake = self.server.fake
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for line in turn.raw:
            self._send(Piece(line))
        given = 0
        for piece in fake.pieces(body, turn):
            if piece.counts:
                if turn.cut is not None and given >= turn.cut:
                    break
                given += 1
                self._pause(turn.delay)
            self._send(piece)
        if turn.cut is not None:
            self._cut()
            return
        if turn.hold:
            self._pause(float("inf"))
        if turn.error_in_stream is not None:
            self._send(fake.error_in_stream(turn.error_in_stream))
        elif not turn.no_finish:
            for piece in fake.ending(body, turn):
                self._send(piece)
        self.wfile.write(b"0\r\n\r\n")

    def _send(self, piece: Piece) -> None:
        name = f"event: {piece.event}\n" if piece.event else ""
        data = f"{name}data: {piece.data}\n\n".encode()
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


def serve_script(cls: type[FakeServer], prog: str, description: str | None, arguments: Sequence[str] | None) -> None:
    """Serve a script from a file until SIGTERM or Ctrl-C; the base URL is printed first."""
    parser = argparse.ArgumentParser(prog=f"python -m {prog}", description=description)
    parser.add_argument("--port", type=int, default=0, help="0 takes any free port")
    parser.add_argument("--script", type=Path, required=True, help="a JSON file of turns")
    parser.add_argument("--key", help="the only key that is let in")
    chosen = parser.parse_args(arguments)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    with cls(parse_script(chosen.script.read_bytes()), port=chosen.port, key=chosen.key) as fake:
        sys.stdout.write(f"{fake.base_url}\n")
        sys.stdout.flush()
        ended.wait()
