"""This machine as an execution environment."""

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from typing import Final, ParamSpec, TypeVar

from perdure.env import containment, execution, files, globbing, search, watching
from perdure.env.errors import EnvError, env_error
from perdure.env.execution import LocalExecution
from perdure.env.local_watch import LocalWatching
from perdure.env.protocol import LOCAL, FileStat, Found, Match
from perdure.env.secrets import without_provider_keys

P = ParamSpec("P")
T = TypeVar("T")

SHELLS: Final = ("/bin/bash", "/usr/bin/bash", "/bin/sh")


class LocalEnv:
    """Files and processes of this machine. `cwd` is where relative paths begin and commands run. Linux only.

    Blocking work on files runs in threads. A call that is cancelled leaves a file as it was or wholly written.
    Commands see the environment of this process but for the keys of model providers; `provider_keys` passes these on.
    """

    def __init__(self, cwd: str | os.PathLike[str] | None = None, *, provider_keys: bool = False) -> None:
        self._provider_keys = provider_keys
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
        inherited = os.environ if self._provider_keys else without_provider_keys(os.environ)
        return execution.start(
            argv,
            cwd=self._path(cwd) if cwd else self._cwd,
            env={**inherited, **(env or {})},
            stdin=stdin,
            timeout=timeout,
            tag=tag,
        )

    async def reap(self, tag: str) -> tuple[str, ...]:
        """End whatever still runs under the tag; name what could not be ended."""
        return await asyncio.to_thread(containment.reap, tag)

    async def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        return await _in_thread(path, files.read, self._path(path), offset, limit)

    async def write(self, path: str, data: bytes) -> None:
        writing = asyncio.ensure_future(_in_thread(path, files.write, self._path(path), data))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.wait([writing])  # or it would land behind the back, and over the work, of the next writer
            if not writing.cancelled():
                writing.exception()
            raise

    async def stat(self, path: str) -> FileStat:
        return FileStat(*await _in_thread(path, files.stat, self._path(path)))

    async def list(self, path: str) -> list[tuple[str, FileStat]]:
        return [(name, FileStat(*stat)) for name, stat in await _in_thread(path, files.listing, self._path(path))]

    async def resolve(self, path: str) -> str:
        return await _in_thread(path, files.resolve, self._path(path))

    async def glob(self, pattern: str, *, under: str = ".", limit: int = 1_000, gitignore: bool = False) -> Found[str]:
        search.check_glob(pattern)
        if gitignore and (found := await search.unignored(self, pattern, under, limit)) is not None:
            return found
        items, complete = await _in_thread(under, globbing.glob, self._path(under), pattern, limit)
        return Found(tuple(items), complete)

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

    async def watch(self, path: str = ".") -> LocalWatching:
        """Watch by looking twice a second; with the extra `perdure[watch]`, when the system gives word."""
        return LocalWatching(self._path(path), await _in_thread(path, watching.look, self._path(path)))

    async def close(self) -> None:
        """Nothing is held."""

    def _path(self, path: str) -> str:
        return os.path.join(self._cwd, files.under_home(path))


def _shell() -> str:
    return next((shell for shell in SHELLS if os.path.exists(shell)), SHELLS[-1])


async def _in_thread(path: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Blocking work on a path; its errors as ours."""
    try:
        return await asyncio.to_thread(work, *args, **kwargs)
    except (OSError, ValueError) as error:
        raise env_error(error, path) from error
