"""Finding files by name and lines by content in any environment, within bounds. What is not text is passed over."""

import os
from collections.abc import AsyncIterator
from typing import Final

from perdure.base.text import decode_utf8
from perdure.env.errors import BadPattern, EnvError
from perdure.env.globbing import MAX_VISITED, SKIPPED_FOLDERS, Glob
from perdure.env.protocol import Execution, ExecutionEnv, Found, Match

MAX_LINE: Final = 500
"""Characters shown of a line that matches."""
MAX_PENDING_BYTES: Final = 64 * 1024
"""Held of a line that has not ended; the rest of a longer one is dropped."""
SEARCH_SECONDS: Final = 30.0
GREP: Final = ("grep", "-rnIEsZ", *(f"--exclude-dir={name}" for name in SKIPPED_FOLDERS), "-H")
"""The system's grep: its expressions take linear time, which Python's do not, and it can be stopped from outside."""
GIT: Final = ("git", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false", "--no-pager", "--no-optional-locks")
"""Only looks: starts no program that a repository's configuration names, and writes no index."""
GIT_GREP: Final = (*GIT, "grep", "-nIEz", "--untracked", "--no-color", "--no-textconv")
GIT_FILES: Final = (*GIT, "ls-files", "-z", "-t", "--cached", "--deleted", "--others", "--exclude-standard")
IN_ENGLISH: Final = {"LC_ALL": "C.UTF-8"}


async def grep(
    env: ExecutionEnv,
    pattern: str,
    under: str,
    files: str,
    limit: int,
    *,
    gitignore: bool = False,
    ignore_case: bool = False,
) -> Found[Match]:
    """Lines that match an extended regular expression, in text files whose relative path fits `files`, sorted."""
    if "\n" in pattern or "\0" in pattern:
        raise BadPattern("a pattern is one line of text")
    matcher = check_glob(files)
    folder, target = under, "."
    if (await env.stat(under)).kind != "directory":
        folder, target = os.path.split(under)
    rest = (*(["-i"] if ignore_case else []), "-e", pattern, "--", target)
    if gitignore:
        found = await _matches(env, [*GIT_GREP, *rest], folder or ".", matcher, limit)
        if found is not None:
            return found
    found = await _matches(env, [*GREP, *rest], folder or ".", matcher, limit)
    assert found is not None
    return found


async def unignored(env: ExecutionEnv, pattern: str, under: str, limit: int) -> Found[str] | None:
    """Files below a folder that fit, but for those that its repository ignores; None where there is no repository."""
    matcher = check_glob(pattern)
    there: set[str] = set()
    gone: set[str] = set()
    visited = 0
    async with await env.exec([*GIT_FILES, "--", "."], cwd=under, env=IN_ENGLISH, timeout=SEARCH_SECONDS) as run:
        async for line in _Pieces(run, b"\0"):
            kind, _, path = os.fsdecode(line).partition(" ")
            visited += 1
            if matcher.matches(path) and not path.endswith("/"):
                (gone if kind == "R" else there).add(path)
            if visited > MAX_VISITED:
                break
        else:
            end = await run.wait()
            if end.code != 0 and not end.timed_out:
                return None
            found = sorted(there - gone)
            return Found(tuple(found[:limit]), not end.timed_out and len(found) <= limit)
    return Found(tuple(sorted(there - gone)[:limit]), False)


def check_glob(pattern: str) -> Glob:
    """The pattern. Raises `BadPattern`."""
    try:
        return Glob(pattern)
    except ValueError as error:
        raise BadPattern(str(error)) from error


async def _matches(env: ExecutionEnv, argv: list[str], folder: str, matcher: Glob, limit: int) -> Found[Match] | None:
    """What a grep finds; None where git finds no repository, or does not like the pattern."""
    found: list[Match] = []
    async with await env.exec(argv, cwd=folder, env=IN_ENGLISH, timeout=SEARCH_SECONDS) as run:
        pieces = _Pieces(run, b"\n")
        async for line in pieces:
            match = _match(line)
            if match is not None and matcher.matches(match.path):
                found.append(match)
            if len(found) > limit:
                break
        else:
            end = await run.wait()
            if argv[0] == "git" and end.code not in (0, 1) and not end.timed_out:
                return None
            if end.code == 2 and pieces.faults:
                raise BadPattern(f"the pattern cannot be used: {decode_utf8(pieces.faults).strip()}")
            if end.code == 127:
                raise EnvError("there is no grep on this machine")
            return Found(_sorted(found), not end.timed_out)
    return Found(_sorted(found[:limit]), False)


class _Pieces:
    """What a command writes, piece by piece as a byte divides it; of a piece that is too long, the beginning."""

    def __init__(self, run: Execution, divider: bytes) -> None:
        self.faults = b""
        """The beginning of what it wrote to stderr."""
        self._run = run
        self._divider = divider

    async def __aiter__(self) -> AsyncIterator[bytes]:
        rest = b""
        async for chunk in self._run:
            if chunk.stream == "stderr":
                self.faults = (self.faults + chunk.data)[:MAX_PENDING_BYTES]
                continue
            *whole, last = chunk.data.split(self._divider)
            for piece in whole:
                yield rest + piece
                rest = b""
            rest = (rest + last)[:MAX_PENDING_BYTES]


def _match(line: bytes) -> Match | None:
    path, _, rest = line.partition(b"\0")
    number, divider, text = rest.partition(b"\0")
    if not divider or not number.isdigit():  # grep divides the rest by a colon, git by another NUL
        number, _, text = rest.partition(b":")
    if not number.isdigit():
        return None
    shown = decode_utf8(text[: 4 * MAX_LINE])[:MAX_LINE]
    return Match(os.fsdecode(path).removeprefix("./"), int(number), shown.rstrip("\r"))


def _sorted(found: list[Match]) -> tuple[Match, ...]:
    return tuple(sorted(found, key=lambda match: (match.path, match.line)))
