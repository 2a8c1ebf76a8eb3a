"""The orchestrator's side of a host's socket."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from perdure import Error
from perdure.subagents.host.process import LINE_BYTES
from perdure.subagents.paths import StateRoot
from perdure.subagents.protocol import (
    Answered,
    Begin,
    Close,
    Deliver,
    Done,
    Hello,
    Launch,
    News,
    SetModel,
    ToHost,
    Withdraw,
    decode_from_host,
    encode,
)


class HostGone(Error):
    """The host does not answer any more. What it had stored is in its session."""

    code = "host_gone"


class HostRefused(Error):
    """The host could not do what it was asked. `code_of_it` is the code of its error, where it had one."""

    code = "host_refused"

    def __init__(self, what: str, code_of_it: str) -> None:
        super().__init__(what)
        self.code_of_it = code_of_it


class HostLink:
    """A connection to the host of one execution. News come as they are told, those of before the connection first."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hello: Hello) -> None:
        self.hello = hello
        self._reader = reader
        self._writer = writer
        self._next = 1
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._news: asyncio.Queue[News | None] = asyncio.Queue()
        self._reading = asyncio.create_task(self._read(), name="host link")

    @classmethod
    async def connect(cls, root: StateRoot, execution: str) -> "HostLink":
        """Connect, and hear who it is. Raises `OSError` where nobody listens, `HostGone` if it says nothing."""
        reader, writer = await asyncio.open_unix_connection(str(root.host_socket(execution)), limit=LINE_BYTES)
        try:
            line = await reader.readline()
            if not line:
                raise HostGone(f"the host of {execution} hung up")
            hello = decode_from_host(line)
            if not isinstance(hello, Hello) or hello.exec != execution:
                raise HostGone(f"somebody else listens for {execution}")
            return cls(reader, writer, hello)
        except BaseException:
            writer.close()
            raise

    async def begin(self, launch: Launch, nonce: str) -> str:
        """Open the gate: the execution is current."""
        return str(await self._call(Begin(id=0, nonce=nonce, launch=launch)))

    async def deliver(self, request: str, kind: Any, text: str) -> str:
        """Hand in a message; returns once it is stored: `taken`, `placed`, or `interrupted`."""
        return str(await self._call(Deliver(id=0, request=request, kind=kind, text=text)))

    async def answer(self, request: str, qid: str, rev: int, text: str) -> str:
        """Answer a question: `delivered`, `held`, or `closed`."""
        return str(await self._call(Answered(id=0, request=request, qid=qid, rev=rev, text=text)))

    async def withdraw(self, request: str) -> str:
        """Take a message back: `withdrawn`, or `placed` if it has its place."""
        return str(await self._call(Withdraw(id=0, request=request)))

    async def set_model(self, request: str, model: str) -> str:
        """Switch, from the next request on."""
        return str(await self._call(SetModel(id=0, request=request, model=model)))

    async def close_host(self) -> None:
        """Let the host close its session and end. Nothing is settled by it."""
        await self._call(Close(id=0))

    async def news(self) -> AsyncIterator[News]:
        """What it tells, until it hangs up."""
        while (news := await self._news.get()) is not None:
            yield news

    async def disconnect(self) -> None:
        """Hang up; the host goes on."""
        self._reading.cancel()
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _call(self, said: ToHost) -> Any:
        said = msgspec.structs.replace(said, id=self._next)
        self._next += 1
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[said.id] = answer
        if self._reading.done():
            raise HostGone("the host hung up")
        self._writer.write(encode(said))
        try:
            return await answer
        finally:
            self._waiting.pop(said.id, None)

    async def _read(self) -> None:
        try:
            while line := await self._reader.readline():
                said = decode_from_host(line)
                if isinstance(said, News):
                    self._news.put_nowait(said)
                elif isinstance(said, Done) and (waiting := self._waiting.get(said.id)) and not waiting.done():
                    if said.error is None:
                        waiting.set_result(said.result)
                    else:
                        waiting.set_exception(HostRefused(said.error, str(said.result or "")))
        except (ConnectionError, msgspec.MsgspecError, ValueError):
            pass
        finally:
            self._news.put_nowait(None)
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(HostGone("the host hung up"))
