"""This machine as an execution environment."""

import asyncio
import os
import sys
from collections.abc import Sequence
from typing import Final

from perdure.env import containment, execution, files, search
from perdure.env.errors import EnvError
from perdure.env.execution import LocalExecution
from perdure.env.protocol import LOCAL, FileStat, Found, Match

SHELLS: Final = ("/bin/bash", "/usr/bin/bash", "/bin/sh")


class LocalEnv:
    """Files and processes of this machine. `cwd` is where relative paths begin and commands run. Linux only.

    Blocking work on files runs in threads. A call that is cancelled leaves a file as it was or wholly written.
    """

    def __init__(self, cwd: str | os.PathLike[str] | None = None) -> None:
        self._cwd = os.path.abspath(os.fspath(cwd) if cwd is not None else os.getcwd())

    @property
    def id(self) -> str:
        return LOCAL

    @property
    def cwd(self) -> str:
        return self._cwd

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        stdin: bytes | None = None,
        timeout: float | None = None,
        tag: str | None = None,
    ) -> LocalExecution:
        """Start a command under a launcher that ends everything it starts. A string goes to bash, or sh where there is
        none. A program that is not there ends with code 127, as in a shell."""
        if sys.platform != "linux":
            raise EnvError("commands cannot be contained on this system", hint="LocalEnv runs them on Linux only")
        argv = [_shell(), "-c", command] if isinstance(command, str) else list(command)
        if not argv:
            raise EnvError("an empty command")
        return execution.start(
            argv, cwd=self._path(cwd or "."), env={**os.environ, **(env or {})}, stdin=stdin, timeout=timeout, tag=tag
        )

    async def reap(self, tag: str) -> tuple[str, ...]:
        """End whatever still runs under the tag; name what could not be ended."""
        return await asyncio.to_thread(containment.reap, tag)

    async def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        return await asyncio.to_thread(files.read, self._path(path), offset, limit)

    async def write(self, path: str, data: bytes) -> None:
        writing = asyncio.ensure_future(asyncio.to_thread(files.write, self._path(path), data))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.wait([writing])  # or it would land behind the back, and over the work, of the next writer
            raise

    async def stat(self, path: str) -> FileStat:
        return await asyncio.to_thread(files.stat, self._path(path))

    async def list(self, path: str) -> list[tuple[str, FileStat]]:
        return await asyncio.to_thread(files.listing, self._path(path))

    async def resolve(self, path: str) -> str:
        return await asyncio.to_thread(files.resolve, self._path(path))

    async def glob(self, pattern: str, *, under: str = ".", limit: int = 1_000) -> Found[str]:
        return await asyncio.to_thread(search.glob, self._path(under), pattern, limit)

    async def grep(self, pattern: str, *, under: str = ".", files: str = "**", limit: int = 1_000) -> Found[Match]:
        return await search.grep(self._path(under), pattern, files, limit)

    async def close(self) -> None:
        """Nothing is held."""

    def _path(self, path: str) -> str:
        if path == "~" or path.startswith("~/"):
            path = os.path.expanduser(path)
        return os.path.join(self._cwd, path)


def _shell() -> str:
    return next((shell for shell in SHELLS if os.path.exists(shell)), SHELLS[-1])
