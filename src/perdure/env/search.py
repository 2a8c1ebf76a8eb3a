"""Finding files by name and lines by content, within bounds. Hidden folders are searched, `.git` and its like not."""

import os
import re
from collections.abc import Iterator
from typing import Final

from perdure.base.text import decode_utf8
from perdure.env import execution
from perdure.env.errors import BadPattern, EnvError, FileNotThere, env_error
from perdure.env.protocol import Found, Match

SKIPPED_FOLDERS: Final = (".git", ".hg", ".svn")
MAX_VISITED: Final = 200_000
"""Files looked at in one search: more than any source tree has, less than a whole disk."""
MAX_LINE: Final = 500
"""Characters shown of a line that matches."""
MAX_PENDING_BYTES: Final = 64 * 1024
"""Held of a line that has not ended; the rest of a longer one is dropped."""
GREP_SECONDS: Final = 30.0
GREP: Final = ("grep", "-rnIEsZ", *(f"--exclude-dir={name}" for name in SKIPPED_FOLDERS))
"""The system's grep: its expressions take linear time, which Python's do not, and it can be stopped from outside."""


def glob(under: str, pattern: str, limit: int) -> Found[str]:
    """Paths of files below a folder, relative to it, sorted. `**` is any number of folders; blocking."""
    matcher = compile_glob(pattern)
    found: list[str] = []
    complete = True
    try:
        if not os.path.isdir(under):
            raise FileNotThere(f"{under} is no folder", path=under)
        for number, path in enumerate(_walk(under)):
            if number >= MAX_VISITED or len(found) > limit:
                complete = False
                break
            if matcher.fullmatch(path):
                found.append(path)
    except (OSError, ValueError) as error:
        raise env_error(error, under) from error
    return Found(tuple(sorted(found)[:limit]), complete and len(found) <= limit)


async def grep(under: str, pattern: str, files: str, limit: int) -> Found[Match]:
    """Lines that match an extended regular expression, in text files whose relative path fits `files`, sorted."""
    if "\n" in pattern or "\0" in pattern:
        raise BadPattern("a pattern is one line of text")
    matcher = compile_glob(files)
    folder, target = _place(under)
    found: list[Match] = []
    faults = b""
    lines = _Lines()
    run = execution.start(
        [*GREP, "-H", "-e", pattern, "--", target],
        cwd=folder,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
        stdin=None,
        timeout=GREP_SECONDS,
        tag=None,
    )
    async with run:
        async for chunk in run:
            if chunk.stream == "stderr":
                faults = (faults + chunk.data)[:MAX_PENDING_BYTES]
                continue
            found += [match for match in map(_match, lines.feed(chunk.data)) if match and matcher.fullmatch(match.path)]
            if len(found) > limit:
                break
        else:
            end = await run.wait()
            if end.code == 2 and faults:
                raise BadPattern(f"the pattern cannot be used: {decode_utf8(faults).strip()}")
            if end.code == 127:
                raise EnvError("there is no grep on this machine")
            return Found(_sorted(found), not end.timed_out)
    return Found(_sorted(found[:limit]), False)


def compile_glob(pattern: str) -> re.Pattern[str]:
    """A glob as a regular expression over a relative path. `*` and `?` stay within a name, `[…]` as in a shell."""
    if not pattern or "\0" in pattern:
        raise BadPattern("an empty pattern" if not pattern else "a pattern cannot contain a NUL character")
    text, at = "", 0
    pattern = pattern.removeprefix("./")
    while at < len(pattern):
        if pattern.startswith("**/", at):
            text, at = text + "(?:[^/]+/)*+", at + 3  # possessive: one way to match, so no exponential search
        elif pattern.startswith("**", at):
            text, at = text + ".*", at + 2
        elif pattern[at] == "*":
            text, at = text + "[^/]*", at + 1
        elif pattern[at] == "?":
            text, at = text + "[^/]", at + 1
        elif pattern[at] == "[" and (end := pattern.find("]", at + 2)) > 0:
            inner = pattern[at + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
            text, at = text + "[" + ("^/" + inner[1:] if inner[0] in "!^" else inner) + "]", end + 1
        else:
            text, at = text + re.escape(pattern[at]), at + 1
    try:
        return re.compile(text, re.DOTALL)
    except re.error as error:
        raise BadPattern(f"the pattern {pattern!r} cannot be used: {error}") from error


def _walk(under: str) -> Iterator[str]:
    """Relative paths of everything that is no folder; links to folders are not entered."""
    for folder, names, files in os.walk(under):
        names[:] = sorted(name for name in names if name not in SKIPPED_FOLDERS)
        begin = os.path.relpath(folder, under)
        for name in sorted(files):
            yield name if begin == "." else f"{begin}/{name}"


class _Lines:
    """Whole lines out of pieces; of a line that is too long, the beginning."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        *whole, rest = data.split(b"\n")
        if whole:
            whole[0] = self._rest + whole[0]
            self._rest = b""
        self._rest = (self._rest + rest)[:MAX_PENDING_BYTES]
        return whole


def _place(under: str) -> tuple[str, str]:
    """The folder to search from, and what to search there."""
    return os.path.split(under) if os.path.isfile(under) else (under, ".")


def _match(line: bytes) -> Match | None:
    path, _, rest = line.partition(b"\0")
    number, _, text = rest.partition(b":")
    if not number.isdigit():
        return None
    shown = decode_utf8(text[: 4 * MAX_LINE])[:MAX_LINE]
    return Match(os.fsdecode(path).removeprefix("./"), int(number), shown.rstrip("\r"))


def _sorted(found: list[Match]) -> tuple[Match, ...]:
    return tuple(sorted(found, key=lambda match: (match.path, match.line)))
