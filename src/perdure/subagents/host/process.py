"""The host's process: a socket of its own, one launch, and the orchestrators that come and go."""

import asyncio
import os
import signal
import socket
import struct
import sys
import traceback
from typing import Any, Final

import msgspec

from perdure import Error, ProviderModels, SessionClosed, SessionPoisoned, StorageError
from perdure.base.lazy import load
from perdure.models.protocol import Models
from perdure.subagents.config import AgentsConfig, ConfigWatch
from perdure.subagents.host.errors_file import bounded_errors
from perdure.subagents.host.work import HostSession, open_session
from perdure.subagents.paths import StateRoot
from perdure.subagents.processes import me
from perdure.subagents.protocol import (
    BEGIN_SECONDS,
    FEATURES,
    PROTOCOL,
    Answered,
    Begin,
    Close,
    Deliver,
    Done,
    FromHost,
    Hello,
    News,
    SetModel,
    ToHost,
    Withdraw,
    decode_to_host,
    encode,
)

LINE_BYTES: Final = 16 * 1024 * 1024
UNREAD_BYTES: Final = 1024 * 1024
"""Who reads no more of the news than that is hung up on; what it missed is told to it when it comes back."""
KEPT_NEWS: Final = 1000
"""What is said again to the next orchestrator: the newest of what this one may have missed."""


class Host:
    """Serves one execution until it is closed or killed."""

    def __init__(self, root: StateRoot, execution: str, nonce: str, config: AgentsConfig) -> None:
        self._root = root
        self._execution = execution
        self._nonce = nonce
        self._config = config
        self._session: HostSession | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._kept: list[News] = []
        self._begun = asyncio.Event()
        self._closing = asyncio.Event()
        self._lock = asyncio.Lock()
        self.code = 0

    async def run(self) -> int:
        """Listen; leave if nobody begins in time."""
        path = self._root.host_socket(self._execution)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            server = await asyncio.start_unix_server(self._serve, str(path), limit=LINE_BYTES)
        finally:
            os.umask(before)
        try:
            try:
                async with asyncio.timeout(BEGIN_SECONDS):
                    await self._begun.wait()
            except TimeoutError:
                return 0
            await self._closing.wait()
        finally:
            server.close()
            path.unlink(missing_ok=True)
            if self._session is not None:
                await self._session.close()
        return self.code

    def end(self) -> None:
        """Close the session and leave; nothing is settled."""
        self._begun.set()
        self._closing.set()

    def tell(self, news: News) -> None:
        """Say something to whoever listens, and keep it for who comes next."""
        self._kept.append(news)
        del self._kept[:-KEPT_NEWS]
        for writer in tuple(self._writers):
            if writer.transport.get_write_buffer_size() > UNREAD_BYTES:
                self._writers.discard(writer)
                writer.transport.abort()
            else:
                writer.write(encode(news))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if _peer_uid(writer) != os.getuid():
                return
            pid, started = me()
            writer.write(
                encode(
                    Hello(
                        protocol=PROTOCOL, features=list(FEATURES), exec=self._execution, pid=pid, started=started,
                        begun=self._begun.is_set(),
                    )
                )
            )  # fmt: skip
            for news in self._kept:
                writer.write(encode(news))
            self._writers.add(writer)
            while line := await reader.readline():
                said = decode_to_host(line)
                writer.write(encode(await self._answer(said)))
                await writer.drain()
                if isinstance(said, Close):
                    self._closing.set()
        except (ConnectionError, msgspec.MsgspecError, asyncio.LimitOverrunError, ValueError):
            pass  # it is gone, or is none of ours
        except asyncio.CancelledError:
            pass  # the process ends, and with it every connection
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, said: ToHost) -> FromHost:
        async with self._lock:  # in the order of sending, whoever sends
            try:
                return Done(id=said.id, result=await self._do(said))
            except (SessionClosed, SessionPoisoned, StorageError) as error:
                if isinstance(
                    said, Deliver | Answered | Withdraw
                ):  # it is not stored, so somebody else has to deliver it
                    return Done(id=said.id, result="held")
                return Done(id=said.id, error=str(error), result=error.code)
            except Error as error:
                return Done(id=said.id, error=str(error), result=error.code)
            except Exception as error:
                return Done(id=said.id, error=f"{type(error).__name__}: {error}")

    async def _do(self, said: ToHost) -> Any:
        if isinstance(said, Close):
            return "closing"
        if isinstance(said, Begin):
            return await self._begin(said)
        if self._session is None or self._closing.is_set():
            return "held"
        if isinstance(said, Deliver):
            return await self._session.deliver(said)
        if isinstance(said, Answered):
            return await self._session.answer(said)
        if isinstance(said, Withdraw):
            return await self._session.withdraw(said.request)
        assert isinstance(said, SetModel)
        return await self._session.set_model(said)

    async def _begin(self, said: Begin) -> str:
        if said.nonce != self._nonce or said.launch.exec != self._execution:
            self.end()
            return "not mine"
        if self._session is not None:
            return "begun"
        launch = said.launch
        path = self._root.call_store(launch.wid, launch.key)
        try:
            session = await open_session(path, launch, self._config, self._models(), self.tell, self._fail)
        except BaseException:  # it cannot have the session
            self.end()
            raise
        self._session = session
        self._begun.set()
        try:
            await session.begin()
        except BaseException:
            self._closing.set()
            raise
        return "begun"

    def _fail(self, error: BaseException) -> None:
        """The session tells nothing any more: what is stored is all there is."""
        traceback.print_exception(error)
        self.code = 1
        self._closing.set()

    def _models(self) -> Models:
        if self._config.models is None:
            return ProviderModels()
        found = load(self._config.models)
        models: Models = found() if isinstance(found, type) or not hasattr(found, "model") else found
        return models


def _peer_uid(writer: asyncio.StreamWriter) -> int:
    found = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", found)[1])


async def main() -> int:
    """Serve the execution that the environment names."""
    root = StateRoot()
    execution, nonce = os.environ["PERDURE_EXEC"], os.environ.pop("PERDURE_NONCE")
    os.environ["PATH"] = f"{root.bin}{os.pathsep}{os.environ.get('PATH', '')}"
    os.environ.pop("PERDURE_SESSION", None)
    sys.path.append(str(root.path))  # modules that the settings name may lie beside them; never the call's folder
    host = Host(root, execution, nonce, ConfigWatch(root).current)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, host.end)
    with bounded_errors():
        return await host.run()
