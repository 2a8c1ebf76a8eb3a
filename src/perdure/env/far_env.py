"""An environment on the far side of a connection: what `SshEnv` and `ContainerEnv` have in common."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

from perdure.env import far_execution, search
from perdure.env.containment import EXECUTION_VARIABLE, TAG_VARIABLE
from perdure.env.errors import BadCommand, EnvError
from perdure.env.far import FarSide, new_mark
from perdure.env.far_execution import FarExecution
from perdure.env.far_watch import FarWatching
from perdure.env.protocol import FileStat, Found, Match

SHELL: Final = (
    "/bin/sh",
    "-c",
    'if command -v bash >/dev/null 2>&1; then exec bash -c "$1"; else exec sh -c "$1"; fi',
    "sh",
)
"""A string goes to bash there, or to sh where there is none."""


class FarEnv:
    """Files and processes of another place. It needs Python 3.9 or newer there, and Linux for commands.

    A call that is cancelled leaves a file as it was or wholly written.
    """

    def __init__(self, far: FarSide, id: str, cwd: str | None) -> None:
        self._far = far
        self._id = id
        self._cwd = "~" if cwd is None else cwd

    @property
    def id(self) -> str:
        return self._id

    @property
    def cwd(self) -> str:
        """Where relative paths begin; `~` is the login's own folder there."""
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
    ) -> FarExecution:
        """Start a command there, under a launcher that ends everything it starts, also when the connection breaks.

        Raises `ConnectionLost` where it broke meanwhile: the command may have begun.
        """
        argv = [*SHELL, command] if isinstance(command, str) else list(command)
        if not argv:
            raise EnvError("an empty command")
        _check_text([*argv, *(env or {}), *(env or {}).values(), cwd or "."])
        mark = new_mark()
        marks = {EXECUTION_VARIABLE: mark} if tag is None else {EXECUTION_VARIABLE: mark, TAG_VARIABLE: _plain(tag)}
        request = {"argv": argv, "cwd": [self._cwd, cwd or "."], "env": env or {}}
        return await far_execution.start(self._far, request, stdin, timeout, marks, mark)

    async def reap(self, tag: str) -> tuple[str, ...]:
        """End whatever still runs there under the tag; name what could not be ended."""
        head, _ = await self._far.ask("reap", tag=_plain(tag))
        return tuple(head["survivors"])

    async def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        return (await self._ask("read", path, offset=offset, limit=limit))[1]

    async def write(self, path: str, data: bytes) -> None:
        """Replace the file as a whole. `ConnectionLost`: it is as it was, or wholly written."""
        writing = asyncio.ensure_future(self._ask("write", path, data, again=False))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.wait([writing])  # or it would land behind the back, and over the work, of the next writer
            if not writing.cancelled():
                writing.exception()
            raise

    async def stat(self, path: str) -> FileStat:
        return FileStat(*(await self._ask("stat", path))[0]["stat"])

    async def list(self, path: str) -> list[tuple[str, FileStat]]:
        return [(name, FileStat(*stat)) for name, stat in (await self._ask("list", path))[0]["list"]]

    async def resolve(self, path: str) -> str:
        found: str = (await self._ask("resolve", path))[0]["path"]
        return found

    async def glob(self, pattern: str, *, under: str = ".", limit: int = 1_000, gitignore: bool = False) -> Found[str]:
        search.check_glob(pattern)
        if gitignore and (found := await search.unignored(self, pattern, under, limit)) is not None:
            return found
        head, _ = await self._ask("glob", under, pattern=pattern, limit=limit)
        return Found(tuple(head["found"]), head["complete"])

    async def grep(
        self,
        pattern: str,
        *,
        under: str = ".",
        files: str = "**",
        limit: int = 1_000,
        gitignore: bool = False,
        ignore_case: bool = False,
    ) -> Found[Match]:
        return await search.grep(self, pattern, under, files, limit, gitignore=gitignore, ignore_case=ignore_case)

    async def watch(self, path: str = ".") -> FarWatching:
        """Watch by looking twice a second, there."""
        return await FarWatching.begun(await self._far.service(), path, self._cwd)

    async def close(self) -> None:
        """Nothing is held: the connection belongs to the host."""

    async def _ask(
        self, op: str, path: str, data: bytes = b"", *, again: bool = True, **arguments: Any
    ) -> tuple[dict[str, Any], bytes]:
        return await self._far.ask(op, data, again=again, path=path, cwd=self._cwd, **arguments)


def _check_text(words: list[str]) -> None:
    for word in words:
        if "\0" in word:
            raise BadCommand("the command cannot be run: embedded null byte")
        try:
            word.encode("utf-8", "surrogateescape")
        except UnicodeError:
            raise BadCommand("the command cannot be run: it contains text that is no valid Unicode") from None


def _plain(tag: str) -> str:
    """A tag that no shell on the way can misread."""
    return quote(tag.encode("utf-8", "surrogatepass"), safe="")
