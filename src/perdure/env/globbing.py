"""Paths that fit a pattern, and walks over folders. Also runs on the far side: standard library of Python 3.9 only."""

import fnmatch
import os
import re
from collections.abc import Iterator

SKIPPED_FOLDERS = (".git", ".hg", ".svn")
MAX_VISITED = 200_000
"""Files looked at in one search: more than any source tree has, less than a whole disk."""


class Glob:
    """A pattern over a relative path: `*`, `?` and `[…]` within a name, `**` for any number of folders.

    Raises `ValueError` for a pattern that cannot be one. Matching takes time in proportion to pattern times path.
    """

    def __init__(self, pattern: str) -> None:
        if not pattern:
            raise ValueError("an empty pattern")
        if "\0" in pattern:
            raise ValueError("a pattern cannot contain a NUL character")
        names = [name for name in pattern.split("/") if name not in ("", ".")]
        if ".." in names:
            raise ValueError(f"the pattern {pattern!r} leads out of the folder")
        try:
            self._names = [None if name == "**" else _name_pattern(name) for name in names]
        except re.error as error:
            raise ValueError(f"the pattern {pattern!r} cannot be used: {error}") from error

    def matches(self, path: str) -> bool:
        """Whether a relative path fits. Names at the end of which `**` stands are all files below."""
        parts = path.split("/")
        reached = {0}
        """Numbers of pattern names that may come next, after the parts so far."""
        for part in parts:
            reached = self._over_folders(reached)
            following = set()
            for at in reached:
                if at == len(self._names):
                    continue
                name = self._names[at]
                if name is None:
                    following.add(at)
                elif name.match(part):
                    following.add(at + 1)
            if not following:
                return False
            reached = following
        return len(self._names) in self._over_folders(reached)

    def _over_folders(self, reached: set[int]) -> set[int]:
        """With `**` taken for no folder too."""
        found = set(reached)
        for at in sorted(reached):
            while at < len(self._names) and self._names[at] is None:
                at += 1
                found.add(at)
        return found


def _name_pattern(name: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(re.sub(r"\[\^", "[!", name)))


def walk(under: str) -> Iterator[str]:
    """Relative paths of everything that is no folder; links to folders are not entered."""
    for folder, names, files in os.walk(under):
        names[:] = sorted(name for name in names if name not in SKIPPED_FOLDERS)
        begin = os.path.relpath(folder, under)
        for name in sorted(files):
            yield name if begin == "." else f"{begin}/{name}"


def glob(under: str, pattern: str, limit: int) -> tuple[list[str], bool]:
    """Paths of files below a folder that fit, sorted, and whether these are all. Blocking. Raises OSError, ValueError.

    A folder that cannot be read is passed over, as a shell does.
    """
    matcher = Glob(pattern)
    found: list[str] = []
    complete = True
    os.listdir(under)  # a folder that is not there is an error, which a walk would hide
    for number, path in enumerate(walk(under)):
        if number >= MAX_VISITED or len(found) > limit:
            complete = False
            break
        if matcher.matches(path):
            found.append(path)
    return sorted(found)[:limit], complete and len(found) <= limit
