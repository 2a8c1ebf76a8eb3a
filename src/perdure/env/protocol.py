"""What an execution environment offers to tools. This machine, another one, or a container.

Paths are strings; a relative path is resolved against `cwd`. Errors are the typed ones of `perdure.env.errors`.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Final, Generic, Literal, Protocol, TypeVar

import msgspec

T = TypeVar("T")

LOCAL: Final = "local"
"""The id of the machine that we run on: its paths are ours."""


class FileStat(msgspec.Struct, frozen=True, gc=False):
    """What is known of a path without reading it. `size` in bytes, `modified` in seconds since the epoch."""

    kind: Literal["file", "directory", "link", "other"]
    size: int
    modified: float


class Match(msgspec.Struct, frozen=True, gc=False):
    """A line that matched, cut if it is long. `line` counts from 1; `path` is relative to where was searched."""

    path: str
    line: int
    text: str


class Found(msgspec.Struct, Generic[T], frozen=True):
    """What a search found, sorted. Not `complete`: a bound was reached, and there may be more."""

    items: tuple[T, ...]
    complete: bool


class OutputChunk(msgspec.Struct, frozen=True, gc=False):
    """Raw bytes that a command wrote, as they came."""

    stream: Literal["stdout", "stderr"]
    data: bytes


class ExecEnd(msgspec.Struct, frozen=True, gc=False):
    """How a command ended. `code` is None where a signal or a time-out ended it; the signal is the command's own."""

    code: int | None
    signal: int | None = None
    timed_out: bool = False
    survivors: tuple[str, ...] = ()
    """Processes it started that could not be ended, named for people."""


class Change(msgspec.Struct, frozen=True, gc=False):
    """A file that came, changed or went. `path` is relative to the folder that is watched."""

    kind: Literal["added", "modified", "deleted"]
    path: str


class Watching(Protocol):
    """Changes below a folder. Leaving the `async with` block ends it."""

    def __aiter__(self) -> AsyncIterator[tuple[Change, ...]]:
        """Changes in batches, by path; a file that changed twice between two looks is told once. Raises EnvError."""
        ...

    async def __aenter__(self) -> "Watching": ...
    async def __aexit__(self, *exc: object) -> None: ...


class Execution(Protocol):
    """A command that runs. Leaving the `async with` block ends it and everything it started."""

    def __aiter__(self) -> AsyncIterator[OutputChunk]:
        """Output as it comes, until both streams end or the command is ended."""
        ...

    async def wait(self) -> ExecEnd:
        """Wait until the command and everything it started is gone."""
        ...

    async def kill(self) -> None:
        """End the command and everything it started."""
        ...

    async def __aenter__(self) -> "Execution": ...
    async def __aexit__(self, *exc: object) -> None: ...


class ExecutionEnv(Protocol):
    """Files and processes of one place."""

    @property
    def id(self) -> str:
        """Names the place, so that tools of one process can serialize their writes to one file of it."""
        ...

    @property
    def cwd(self) -> str: ...

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        stdin: bytes | None = None,
        timeout: float | None = None,
        tag: str | None = None,
    ) -> Execution:
        """Start a command: a string goes to the shell, a sequence is run as it is. `env` adds to the environment.

        `tag` marks everything it starts, so that `reap` finds it after a crash of ours.
        """
        ...

    async def reap(self, tag: str) -> tuple[str, ...]:
        """End whatever still runs under the tag; return what could not be ended. Never touches anything else."""
        ...

    async def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes: ...
    async def write(self, path: str, data: bytes) -> None:
        """Replace the file as a whole or not at all; missing folders are made; mode and symlinks are kept."""
        ...

    async def stat(self, path: str) -> FileStat: ...
    async def list(self, path: str) -> list[tuple[str, FileStat]]: ...
    async def resolve(self, path: str) -> str:
        """The absolute path with links followed; the file need not exist."""
        ...

    async def glob(self, pattern: str, *, under: str = ".", limit: int = 1_000, gitignore: bool = False) -> Found[str]:
        """Files below a folder by path, relative to it: `*` and `?` within a name, `**` over folders.

        With `gitignore`, those that a git repository ignores are left out, where there is one.
        """
        ...

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
        """Lines of text files that match an extended regular expression; `files` is a glob. `under` may be a file."""
        ...

    async def watch(self, path: str = ".") -> Watching:
        """Watch a file, or all files below a folder but for `.git` and its like.

        Every change after the return is told, within seconds. A bound on their number is an error, not a silence.
        """
        ...

    async def close(self) -> None: ...
