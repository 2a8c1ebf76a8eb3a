"""The owner's control socket: how another process of the same user acts on a session that this one has open.

One request a connection: a line of JSON in, a line of JSON out. The socket lies in the user's runtime directory under
a hash of the store's real path, mode 0600, and the peer's user id is checked.
"""

import asyncio
import contextlib
import json
import os
import socket
import struct
from pathlib import Path
from typing import Any, Final

from perdure.base.digest import sha256
from perdure.base.errors import Error, InvalidValue
from perdure.base.ids import ConversationId, TaskId
from perdure.harness.compacting import begin
from perdure.harness.harness import Harness

LINE_BYTES: Final = 64 * 1024
"""A request or answer at most."""
ANSWER_SECONDS: Final = 30.0
SOCKET_PATH_BYTES: Final = 108
"""The room for a socket's path, its end mark included (sockaddr_un in unix(7))."""


class ControlError(Error):
    """The owner refused a request, or could not be reached."""

    code = "control_error"


def control_path(store: str) -> Path:
    """Where the control socket of a store lies: in the user's runtime directory, or below /tmp."""
    name = sha256(os.path.realpath(store).encode()).hex()[:32]
    below_tmp = Path("/tmp") / f"perdure-{os.getuid()}" / f"{name}.sock"
    base = os.environ.get("XDG_RUNTIME_DIR")
    if not base:
        return below_tmp
    path = Path(base) / "perdure" / f"{name}.sock"
    return path if len(os.fsencode(path)) < SOCKET_PATH_BYTES else below_tmp


class ControlServer:
    """Serves a harness on its control socket: `async with ControlServer(harness)`."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self.path = control_path(harness.session.storage.location)
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> "ControlServer":
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self.path.parent.stat().st_uid != os.getuid():
            raise ControlError(f"{self.path.parent} belongs to somebody else", hint="set XDG_RUNTIME_DIR")
        self.path.unlink(missing_ok=True)  # the lock is ours, so a socket there is a dead owner's
        before = os.umask(0o177)
        try:
            self._server = await asyncio.start_unix_server(self._serve, str(self.path), limit=LINE_BYTES)
        finally:
            os.umask(before)
        lock = getattr(self._harness.session.storage, "lock", None)
        if lock is not None:
            lock.publish(control=str(self.path))
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._server is not None:
            self._server.close()
        self.path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if _peer_uid(writer) != os.getuid():
                return
            try:
                request = json.loads(await reader.readline())
                answer = await self._act(request)
            except Error as error:
                answer = {"error": error.what, "code": error.code, "hint": error.hint}
            except (ValueError, KeyError, TypeError) as error:
                answer = {"error": f"not a request: {error}", "code": "bad_request", "hint": ""}
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the other side went away: whatever was stored stays
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _act(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "abort":
            conversation = ConversationId(int(request["conversation"]))
            await self._harness.actions.abort(
                conversation, background=bool(request.get("background")), keep_queued=bool(request.get("keep_queued"))
            )
            return {"ok": True, "pid": os.getpid()}
        if request["do"] == "compact":
            conversation = ConversationId(int(request["conversation"]))
            task = await begin(self._harness.actions, conversation, request.get("instructions"))
            await self._harness.resume()
            return {"ok": True, "pid": os.getpid(), "task": task}
        if request["do"] == "signal":
            task, name = TaskId(int(request["task"])), str(request["name"])
            result = await self._harness.signal_json(task, name, str(request["key"]), request["data"])
            return {"ok": True, "pid": os.getpid(), "result": result}
        if request["do"] == "answer":
            result = await self._harness.answer(
                str(request["question"]), request["answer"], note=str(request["note"]), by=str(request["by"])
            )
            return {"ok": True, "pid": os.getpid(), "result": result}
        raise InvalidValue(f"no such request: {request['do']!r}")


async def ask_owner(address: str, request: dict[str, Any]) -> dict[str, Any]:
    """Send one request to an owner. Raises `ControlError`."""
    line = json.dumps(request).encode() + b"\n"
    if len(line) > LINE_BYTES:
        raise ControlError(f"a request of {len(line):,} bytes; the owner takes {LINE_BYTES:,}", hint="send a reference")
    try:
        reader, writer = await asyncio.open_unix_connection(address, limit=LINE_BYTES)
    except OSError as error:
        raise ControlError(f"the session's owner does not answer at {address}: {error}") from error
    try:
        writer.write(line)
        await writer.drain()
        line = await asyncio.wait_for(reader.readline(), ANSWER_SECONDS)
    except (OSError, TimeoutError) as error:
        raise ControlError("the session's owner did not answer", certain="unknown") from error
    finally:
        writer.close()
    if not line:
        raise ControlError("the session's owner closed the connection", certain="unknown")
    answer: dict[str, Any] = json.loads(line)
    if "error" in answer:
        raise ControlError(answer["error"], hint=answer.get("hint", ""))
    return answer


def _peer_uid(writer: asyncio.StreamWriter) -> int:
    peer: socket.socket = writer.get_extra_info("socket")
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    uid: int = struct.unpack("3i", credentials)[1]
    return uid
