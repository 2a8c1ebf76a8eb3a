"""Where clients reach the orchestrator: lines of JSON on its Unix socket. Nothing is decided here.

`{"op": "hello"}` tells who listens. `intake` says that a request was recorded. `decided` waits for the decision of a
request. `notices` stays open: a line with the open notices of a session now and after each change; `presented` tells
that one has been stored there. `events` stays open too: a line for each event after a cursor.
"""

import asyncio
import json
import os
import socket
import struct
from collections.abc import Callable
from typing import Any, Final

import msgspec

from perdure import Error, Harness
from perdure.subagents import events, notices
from perdure.subagents.intake.intake import Intake
from perdure.subagents.paths import StateRoot
from perdure.subagents.state import EventDoc, NoticeDoc

LINE_BYTES: Final = 1024 * 1024
Card = Callable[[], dict[str, Any]]


class Server:
    """The orchestrator's door: `async with Server(…)`. Only processes of the same user get in."""

    def __init__(self, root: StateRoot, harness: Harness, intake: Intake, card: Card) -> None:
        self._root = root
        self._harness = harness
        self._intake = intake
        self._card = card
        self._server: asyncio.Server | None = None
        self._changed: dict[str, set[asyncio.Event]] = {NoticeDoc.kind: set(), EventDoc.kind: set()}
        self._streams: set[asyncio.Task[Any]] = set()

    @property
    def watchers(self) -> int:
        """Streams that are open."""
        return sum(len(found) for found in self._changed.values())

    async def __aenter__(self) -> "Server":
        folder = self._root.runtime
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if folder.stat().st_uid != os.getuid():
            raise Error(f"{folder} belongs to somebody else", hint="set XDG_RUNTIME_DIR to a folder of your own")
        self._root.socket.unlink(missing_ok=True)  # the store's lock is ours: a socket there is a dead one's
        before = os.umask(0o177)
        try:
            self._server = await asyncio.start_unix_server(self._serve, str(self._root.socket), limit=LINE_BYTES)
        finally:
            os.umask(before)
        self._harness.session.listeners.append(self._published)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._harness.session.listeners.remove(self._published)
        if self._server is not None:
            self._server.close()
        for stream in list(self._streams):
            stream.cancel()
        await asyncio.gather(*self._streams, return_exceptions=True)
        self._root.socket.unlink(missing_ok=True)

    def _published(self, publication: Any) -> None:
        for kind in {change.key[0] for change in publication.documents}:
            for event in self._changed.get(kind, ()):
                event.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._streams.add(task)
        try:
            if _peer_uid(writer) != os.getuid():
                return
            while line := await reader.readline():
                await self._answer(json.loads(line), reader, writer)
        except (ConnectionError, ValueError, asyncio.LimitOverrunError):
            pass  # the client is gone, or does not speak our language
        except asyncio.CancelledError:
            pass  # this orchestrator ends
        finally:
            self._streams.discard(task)
            writer.close()

    async def _answer(self, said: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        op = said.get("op")
        if op == "hello":
            await _say(writer, self._card())
        elif op == "intake":
            self._intake.nudge()
            await _say(writer, {"ok": True})
        elif op == "decided":
            await self._decided(said, writer)
        elif op == "presented":
            async with self._harness.session.transaction() as tx:
                await notices.presented(tx, said["id"], said["rev"])
            await _say(writer, {"ok": True})
        elif op == "notices":
            await self._stream(NoticeDoc.kind, reader, writer, lambda: self._notices(said["session"], writer))
        elif op == "events":
            cursor = [said["after"]]
            await self._stream(EventDoc.kind, reader, writer, lambda: self._events(cursor, writer))
        else:
            await _say(writer, {"error": f"unknown op {op!r:.100}"})

    async def _decided(self, said: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        self._intake.nudge()
        try:
            async with asyncio.timeout(said.get("wait", 10.0)):
                found = await self._intake.decided(said["request"])
        except TimeoutError:
            await _say(writer, {"pending": True})
        else:
            await _say(writer, {"request": msgspec.to_builtins(found)})

    async def _stream(
        self, kind: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, send: Callable[[], Any]
    ) -> None:
        """Send now and after each change, until the client hangs up."""
        changed = asyncio.Event()
        self._changed[kind].add(changed)
        over = asyncio.ensure_future(reader.read())
        try:
            while not over.done():
                changed.clear()
                await send()
                await asyncio.wait({over, news := asyncio.ensure_future(changed.wait())}, return_when="FIRST_COMPLETED")
                news.cancel()
        finally:
            over.cancel()
            self._changed[kind].discard(changed)

    async def _notices(self, session: str, writer: asyncio.StreamWriter) -> None:
        found = await notices.open_notices(self._harness.session, session)
        await _say(writer, {"notices": msgspec.to_builtins(found)})

    async def _events(self, cursor: list[str], writer: asyncio.StreamWriter) -> None:
        more = True
        while more:
            page = await events.after(self._harness.session, cursor[0])
            for event in page.events:
                await _say(writer, {"event": msgspec.to_builtins(event)})
            cursor[0], more = page.head, page.more


async def _say(writer: asyncio.StreamWriter, line: dict[str, Any]) -> None:
    writer.write(msgspec.json.encode(line) + b"\n")
    await writer.drain()


def _peer_uid(writer: asyncio.StreamWriter) -> int:
    """unix(7): SO_PEERCRED gives pid, uid, gid."""
    found = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", found)[1])
