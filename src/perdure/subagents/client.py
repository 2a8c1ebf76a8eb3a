"""Asking the orchestrator for something, and learning what was decided; from the command line, a tool, or a program."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, Literal

import msgspec

from perdure import InvalidValue, StorageCorrupt
from perdure.session.reader import SessionReader, read_session
from perdure.subagents import rows, starter
from perdure.subagents.describe import describe
from perdure.subagents.digest import request_digest
from perdure.subagents.intake.server import LINE_BYTES
from perdure.subagents.names import check_request_id, new_request_id
from perdure.subagents.paths import StateRoot
from perdure.subagents.spool import Kind, Outbox, Sent
from perdure.subagents.state import Notice, Request, RequestDoc

MAKING: Final = 100
MAKING_PAUSE: Final = 0.01
"""How long a store may be in the making before it is called empty."""
WAIT_SECONDS: Final = 10.0
AGAIN_SECONDS: Final = 0.1
"""How long a tool waits for a decision; a command waits longer."""


class Outcome(msgspec.Struct, kw_only=True):
    """What became of a request.

    `applied` and `rejected` are decisions, made once and for ever. `conflict`: another content was recorded under this
    id before, and nothing of this one was. `pending`: it is recorded and not decided yet; ask again under the same id.
    """

    request: str
    state: Literal["applied", "rejected", "conflict", "pending"]
    reply: dict[str, Any] = {}
    digest: str = ""
    created: bool = False
    """False where the id was decided before this was asked."""
    wid: str | None = None


class Client:
    """One sender. Keep it for as long as requests of one order are sent."""

    def __init__(
        self, root: StateRoot, sender: str, *, via: str = "", origin: str | None = None, listed: str | None = None
    ) -> None:
        self.root = root
        self.sender = sender
        self._via = via
        self._origin = origin
        self._listed = listed
        self._outbox = Outbox(root, sender)

    async def ask(
        self,
        kind: Kind,
        body: dict[str, Any],
        *,
        request: str | None = None,
        targets: list[str] | None = None,
        wait: float = WAIT_SECONDS,
    ) -> Outcome:
        """Record a request, and wait at most `wait` seconds for its decision.

        A request with an id may be sent again after any failure: the first submission decides. Raises `InvalidValue`
        for a bad id, `OSError` if it cannot be recorded; then nothing was.
        """
        id = new_request_id() if request is None else check_request_id(request)
        digest = request_digest(kind, body, targets or [])
        if request is not None:
            known = await self.known(id)
            if known is not None:
                return await self._told(_outcome(known, digest, created=False))
            first = None if targets else await self.known(part_of(id, 1))
            if first is not None and first.targets:
                return await self._told(_conflict(first, id))
        self._outbox.record(
            Sent(
                request=id, kind=kind, body=body, sender=self.sender, via=self._via, origin=self._origin,
                listed=self._listed, targets=targets or [],
            )
        )  # fmt: skip
        return await self.outcome(id, digest, wait)

    async def ask_all(
        self, kind: Kind, body: dict[str, Any], to: list[str], *, request: str | None = None, wait: float = WAIT_SECONDS
    ) -> list[Outcome]:
        """The same to several targets: a request for each, named `<request>:1` and so on, decided on its own. If that
        name stood for anything else before, all of them are conflicts and nothing is sent. Raises `InvalidValue` for
        what has one target only."""
        if len(to) == 1:
            return [await self.ask(kind, {**body, "to": to[0]}, request=request, wait=wait)]
        if not to or kind == "answer" or "replaces" in body:
            raise InvalidValue(f"{'an answer' if kind == 'answer' else 'this'} has one target, not {len(to)}")
        names = [None if request is None else part_of(check_request_id(request), n + 1) for n in range(len(to))]
        if request is not None:
            clashes = [await self.known(request)]
            for name, target in zip(names, to, strict=True):
                found = await self.known(str(name))
                same = found is None or found.digest == request_digest(kind, {**body, "to": target}, to)
                clashes.append(None if same else found)
            for clash in clashes:
                if clash is not None:
                    return [await self._told(_conflict(clash, str(name))) for name in names]
        return [
            await self.ask(kind, {**body, "to": target}, request=name, targets=to, wait=wait)
            for target, name in zip(to, names, strict=True)
        ]

    async def outcome(self, request: str, digest: str, wait: float) -> Outcome:
        """Wait for the decision of a recorded request. Starts the orchestrator if none runs, or if one dies over it."""
        gone: OSError | None = None
        try:
            async with asyncio.timeout(wait):
                while True:
                    await starter.ensure(self.root)
                    try:
                        found = await self._call({"op": "decided", "request": request, "wait": wait})
                        break
                    except OSError as error:
                        gone = error
                        await asyncio.sleep(AGAIN_SECONDS)
        except (TimeoutError, OSError, starter.NotStarted) as error:
            why = str((gone or "") if isinstance(error, TimeoutError) else error)
            return Outcome(request=request, state="pending", digest=digest, reply={"reason": why} if why else {})
        if "request" not in found:
            return Outcome(request=request, state="pending", digest=digest)
        return await self._told(_outcome(msgspec.convert(found["request"], Request), digest, created=True))

    async def _told(self, outcome: Outcome) -> Outcome:
        """Of a conflict, also what became of the content that was recorded."""
        if outcome.state == "conflict":
            async with reading(self.root) as reader:
                outcome.reply["state"] = (await describe(reader, self.root, outcome.request))["state"]
        return outcome

    async def known(self, request: str) -> Request | None:
        """A request's decision, if there is one. Starts nothing."""
        async with reading(self.root) as reader:
            return None if reader is None else await rows.read(reader, RequestDoc, request)

    async def _call(self, line: dict[str, Any]) -> dict[str, Any]:
        async with connection(self.root) as (reader, writer):
            await say(writer, line)
            said = await reader.readline()
            if not said:
                raise ConnectionResetError("the orchestrator hung up")
            answer: dict[str, Any] = json.loads(said)
            return answer

    async def presented(self, notice: Notice) -> None:
        """Tell that a notice's revision is stored in its session."""
        await starter.ensure(self.root)
        await self._call({"op": "presented", "id": notice.id, "rev": notice.rev})


@asynccontextmanager
async def reading(root: StateRoot) -> AsyncIterator[SessionReader | None]:
    """The orchestrator's rows, read-only, whether it runs or not; None where there never was one."""
    async with contextlib.AsyncExitStack() as stack:
        reader, attempts = None, 0
        while root.store.exists():
            try:
                reader = await stack.enter_async_context(read_session(root.store))
                break
            except StorageCorrupt:  # the first orchestrator may be making it at this moment
                attempts += 1
                if attempts > MAKING:
                    raise
                await asyncio.sleep(MAKING_PAUSE)
        yield reader


@asynccontextmanager
async def connection(root: StateRoot) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to the running orchestrator. Raises `OSError` if none listens."""
    reader, writer = await asyncio.open_unix_connection(str(root.socket), limit=LINE_BYTES)
    try:
        yield reader, writer
    finally:
        writer.close()


async def say(writer: asyncio.StreamWriter, line: dict[str, Any]) -> None:
    """Send one line."""
    writer.write(msgspec.json.encode(line) + b"\n")
    await writer.drain()


def part_of(request: str, number: int) -> str:
    """The name of one of several requests that are sent under one."""
    return f"{request}:{number}"


def _conflict(found: Request, request: str) -> Outcome:
    """Another content stands under this name."""
    reply = {"error": "another content was recorded under this id before", "digest": found.digest}
    return Outcome(request=request, state="conflict", digest=found.digest, wid=found.wid, reply=reply)


def _outcome(found: Request, digest: str, *, created: bool) -> Outcome:
    if found.digest and found.digest != digest:
        return _conflict(found, found.request)
    return Outcome(
        request=found.request, state="applied" if found.applied else "rejected", reply=found.reply, digest=digest,
        created=created, wid=found.wid,
    )  # fmt: skip
