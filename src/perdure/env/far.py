"""Another machine, or a container, through channels: a service for files that is asked, and commands that are started.

What brings the channels (SSH, a container engine) is a `Carrier`. A broken connection is opened anew at the next
question; before anything else is done there, what the broken one had left running is ended.
"""

import asyncio
import contextlib
import errno
import itertools
import json
import os
from collections.abc import Callable
from typing import Any, Final, Protocol

from perdure.env import far_program
from perdure.env.containment import EXECUTION_VARIABLE
from perdure.env.errors import ConnectionLost, EnvError, NotReachable, env_error
from perdure.env.far_files import SIZES

NOISE_BYTES: Final = 64 * 1024
"""What a login may print before our program begins."""
READ_BYTES: Final = 256 * 1024


class Channel(Protocol):
    """A program on the far side: its input and output, until one of both ends."""

    async def read(self) -> bytes:
        """Some output; empty at its end. Never raises for a broken connection."""
        ...

    def send(self, data: bytes) -> None:
        """Input for it. What a broken connection does not take is dropped."""
        ...

    async def drain(self) -> None:
        """Wait until not too much of the input is unsent."""
        ...

    def close(self) -> None:
        """Let go of it; its input ends."""
        ...

    async def why(self) -> EnvError:
        """Why the output has ended before its time."""
        ...


class Carrier(Protocol):
    """Opens channels to one place."""

    @property
    def name(self) -> str:
        """The place, for people."""
        ...

    async def open(self, marks: dict[str, str], python: str | None) -> Channel:
        """Start the far side's bootstrap with these variables. Raises `NotReachable` and its kind.

        `python` is the interpreter that was found there before, which starts faster than what stands for it on a path.
        """
        ...


class Incoming:
    """What a channel brings, in pieces of wanted sizes."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._held = bytearray()

    async def exactly(self, size: int) -> bytes | None:
        """So many bytes; None where the channel ends before."""
        while len(self._held) < size:
            data = await self._channel.read()
            if not data:
                return None
            self._held += data
        found = bytes(self._held[:size])
        del self._held[:size]
        return found

    async def after(self, magic: bytes) -> bool:
        """Drop everything up to the magic words."""
        while magic not in self._held:
            data = await self._channel.read()
            if not data or len(self._held) > NOISE_BYTES:
                return False
            self._held += data
        del self._held[: self._held.index(magic) + len(magic)]
        return True


async def start(
    carrier: Carrier, name: str, marks: dict[str, str], python: str | None = None
) -> tuple[Channel, Incoming]:
    """Send one of our programs and wait until it runs."""
    channel = await carrier.open(marks, python)
    try:
        magic = far_program.MAGIC + marks[EXECUTION_VARIABLE].encode() + b"\n"
        channel.send(far_program.program(name, magic))
        await channel.drain()
        incoming = Incoming(channel)
        if not await incoming.after(magic):
            raise await channel.why()
    except BaseException:
        channel.close()
        raise
    return channel, incoming


class Service:
    """The files' service on its channel: any number of questions at once."""

    def __init__(self, name: str, mark: str, channel: Channel, incoming: Incoming) -> None:
        self.mark = mark
        self.broken: EnvError | None = None
        self._name = name
        self._channel = channel
        self._incoming = incoming
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Callable[[dict[str, Any] | None, bytes], None]] = {}
        self._reading = asyncio.ensure_future(self._read())

    def ask(
        self, op: str, listen: Callable[[dict[str, Any] | None, bytes], None], data: bytes = b"", **arguments: Any
    ) -> int:
        """Send a question; every answer goes to `listen`, None when the connection breaks."""
        number = next(self._numbers)
        text = json.dumps({"id": number, "op": op, **arguments}).encode()
        self._waiting[number] = listen
        if self.broken is not None:
            self.forget(number)
            listen(None, b"")
        else:
            self._channel.send(SIZES.pack(len(text), len(data)) + text + data)
        return number

    def forget(self, number: int) -> None:
        """No more answers to this question."""
        self._waiting.pop(number, None)

    async def answer(self, op: str, data: bytes = b"", **arguments: Any) -> tuple[dict[str, Any], bytes]:
        """Ask, and wait for the one answer. Raises the typed error of what went wrong there."""
        told: asyncio.Future[tuple[dict[str, Any] | None, bytes]] = asyncio.get_running_loop().create_future()

        def listen(head: dict[str, Any] | None, raw: bytes) -> None:
            if not told.done():
                told.set_result((head, raw))

        number = self.ask(op, listen, data, **arguments)
        try:
            await self._channel.drain()
            head, raw = await told
        finally:
            self.forget(number)
        if head is None:
            assert self.broken is not None
            raise self.broken
        raise_told(head, str(arguments.get("path", "")))
        return head, raw

    async def close(self) -> None:
        """End it there and here."""
        self._channel.close()
        self._reading.cancel()
        await asyncio.wait([self._reading])

    async def _read(self) -> None:
        try:
            while (sizes := await self._incoming.exactly(SIZES.size)) is not None:
                length, size = SIZES.unpack(sizes)
                text, data = await self._incoming.exactly(length), await self._incoming.exactly(size)
                if text is None or data is None:
                    break
                head = json.loads(text)
                if (listen := self._waiting.get(head["id"])) is not None:
                    listen(head, data)
            self.broken = await self._channel.why()
        except asyncio.CancelledError:
            self.broken = EnvError(f"the connection to {self._name} was closed")
        finally:
            self._channel.close()
            if self.broken is None:
                self.broken = ConnectionLost(f"{self._name} sent what cannot be understood")
            for listen in [*self._waiting.values()]:
                listen(None, b"")
            self._waiting.clear()


def raise_told(head: dict[str, Any], path: str) -> None:
    """Raise the error that an answer tells of, if it does."""
    kind = head.get("error")
    if kind == "os":
        raise env_error(OSError(getattr(errno, head["errno"], 0), head["text"]), path)
    if kind == "value":
        raise env_error(ValueError(head["text"]), path)
    if kind is not None:
        raise EnvError(f"the far side failed: {head['text']}", path=path)


class FarSide:
    """One place behind a carrier, shared by any number of environments. Belongs to one event loop."""

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self._service: Service | None = None
        self._python: str | None = None
        self._opening = asyncio.Lock()
        self._lost: set[str] = set()
        """Marks of what broken connections may have left running."""
        self._closed = False

    @property
    def name(self) -> str:
        return self._carrier.name

    async def service(self) -> Service:
        """The service, opened if it is not there, when nothing that a broken connection left runs any more."""
        async with self._opening:
            if self._closed:
                raise NotReachable(f"the connection to {self.name} was closed")
            if self._service is not None and self._service.broken is not None:
                self._lost.add(self._service.mark)
                self._service = None
            if self._service is None:
                mark = new_mark()
                channel, incoming = await start(self._carrier, "far_files", {EXECUTION_VARIABLE: mark})
                self._service = Service(self.name, mark, channel, incoming)
                self._python = (await self._service.answer("hello"))[0]["python"] or None
            if self._lost:
                marks = sorted(self._lost)
                await self._service.answer("fence", marks=marks)
                self._lost -= set(marks)
            return self._service

    async def ask(
        self, op: str, data: bytes = b"", *, again: bool = True, **arguments: Any
    ) -> tuple[dict[str, Any], bytes]:
        """One question and its answer. With `again` a broken connection is opened anew and asked once more."""
        service = await self.service()
        try:
            return await service.answer(op, data, **arguments)
        except ConnectionLost:
            if not again:
                raise
        return await (await self.service()).answer(op, data, **arguments)

    async def command(self, request: dict[str, Any], data: bytes, marks: dict[str, str]) -> tuple[Channel, Incoming]:
        """Start a command's program and send it what to run."""
        await self.service()
        channel, incoming = await start(self._carrier, "far_exec", marks, self._python)
        text = json.dumps(request).encode()
        channel.send(SIZES.pack(len(text), len(data)) + text + data)
        with contextlib.suppress(ConnectionError):
            await channel.drain()
        return channel, incoming

    def lost(self, mark: str) -> None:
        """A command's connection broke: end what it left before anything else is done there."""
        self._lost.add(mark)

    async def close(self) -> None:
        """Close the service. Commands that run are not touched: whoever runs them ends them."""
        self._closed = True
        if self._service is not None:
            await self._service.close()
            self._service = None


def new_mark() -> str:
    """A name for one program on the far side."""
    return os.urandom(16).hex()
