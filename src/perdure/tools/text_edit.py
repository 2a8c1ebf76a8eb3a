"""Replacing text in a file exactly, and saying what was found where that is not possible. Pure."""

import difflib
from typing import Final, NamedTuple

from perdure.extensions.results import ToolError

SHOWN_LINES: Final = 12
"""Line numbers listed at most."""


class Edited(NamedTuple):
    """The new text, and how many places changed."""

    text: str
    places: int


def edit(text: str, old: str, new: str, *, replace_all: bool = False) -> Edited:
    """Replace `old` by `new`, once or everywhere. Line ends of the file are kept.

    Raises `ToolError` when `old` is not there (with the nearest lines) or is there more than once (with the lines).
    """
    if not old:
        raise ToolError("old_text is empty; use write to create a file")
    if "\r\n" in text and "\r" not in old:
        old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
    if old == new:
        raise ToolError("old_text and new_text are the same; nothing was changed")
    places = text.count(old)
    if places == 0:
        raise ToolError("old_text was not found; nothing was changed." + _nearest(text, old))
    if places > 1 and not replace_all:
        lines = _lines_of(text, old)
        shown = ", ".join(map(str, lines[:SHOWN_LINES])) + (" …" if len(lines) > SHOWN_LINES else "")
        raise ToolError(
            f"old_text was found {places} times (lines {shown}); nothing was changed. "
            "Give more of the surrounding text, or pass replace_all"
        )
    return Edited(text.replace(old, new), places)


def _lines_of(text: str, old: str) -> list[int]:
    found = []
    at = text.find(old)
    while at >= 0:
        found.append(text.count("\n", 0, at) + 1)
        at = text.find(old, at + len(old))
    return found


def _nearest(text: str, old: str) -> str:
    """The stretch of the file that is most like the first line that was looked for."""
    lines = text.splitlines()[:5_000]
    wanted = next((line for line in old.splitlines() if line.strip()), "")
    stripped = [line.strip() for line in lines]
    if wanted.strip() in stripped:
        at = stripped.index(wanted.strip())
    else:
        near = difflib.get_close_matches(wanted.strip(), stripped, 1, 0.6) if wanted else []
        if not near:
            return ""
        at = stripped.index(near[0])
    end = min(at + max(len(old.splitlines()), 1), at + SHOWN_LINES, len(lines))
    shown = "\n".join(f"{number + 1:>6}\t{lines[number][:500]}" for number in range(at, end))
    return f" The nearest lines of the file are:\n{shown}"
