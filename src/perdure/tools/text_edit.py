"""Replacing text in a file exactly, and saying what was found where that is not possible. Pure."""

import difflib
import re
from typing import Final, NamedTuple

from perdure.base.text import cut_head, well_formed
from perdure.extensions.results import ToolError

SHOWN_PLACES: Final = 12
"""Line numbers listed at most."""
SHOWN_LINES: Final = 12
"""Lines of the file shown at most."""
SHOWN_BYTES: Final = 300
"""Of each line."""
COMPARED_LINES: Final = 5_000
"""Lines compared for the nearest one: a comparison takes about 0.1 ms."""
COMPARED_CHARACTERS: Final = 200
LIKE: Final = 0.6
"""How like a line must be to be shown; what `difflib` calls close."""


class Edited(NamedTuple):
    """The new text, and the lines (from 1) where places changed."""

    text: str
    lines: list[int]


def edit(text: str, old: str, new: str, *, replace_all: bool = False) -> Edited:
    """Replace `old` by `new`, once or everywhere. All other text stays, byte order mark and line ends included.

    Where a file ends its lines with CR LF, `old` and `new` may be given with LF. Raises `ToolError` when `old` is not
    there (with the nearest lines), is there more than once (with the line numbers), or nothing would change.
    """
    if not old:
        raise ToolError("old_text is empty. To create a file, or replace all of it, use write")
    places, width = _places(text, old), len(old)
    if not places and "\r\n" in text and "\n" in old:
        old = _with_crlf(old)
        places, width = _places(text, old), len(old)
    if not places:
        raise ToolError(f"old_text was not found; nothing was changed.{_nearest(text, old)}")
    if len(places) > 1 and not replace_all:
        shown = _listed(_line_numbers(text, places))
        raise ToolError(
            f"old_text was found {len(places)} times, at lines {shown}; nothing was changed. "
            "Give more of the text around the one that is meant, or pass replace_all"
        )
    if _crlf_only(text):
        new = _with_crlf(new)
    if new == old:
        raise ToolError("old_text and new_text are the same; nothing was changed")
    places = _apart(places, width)
    kept, at = [], 0
    for place in places:
        kept += [text[at:place], new]
        at = place + width
    return Edited("".join([*kept, text[at:]]), _line_numbers(text, places))


def _places(text: str, old: str) -> list[int]:
    """Where the text is, also where it overlaps itself: of two overlapping places none is the one that is meant."""
    found, at = [], text.find(old)
    while at >= 0:
        found.append(at)
        at = text.find(old, at + 1)
    return found


def _apart(places: list[int], width: int) -> list[int]:
    """Those that do not overlap one before them."""
    kept: list[int] = []
    for place in places:
        if not kept or place >= kept[-1] + width:
            kept.append(place)
    return kept


def _crlf_only(text: str) -> bool:
    """Whether every line ends with CR LF; in a mixed file new text stays as it was given."""
    count = text.count("\r\n")
    return count > 0 and count == text.count("\n")


def _with_crlf(text: str) -> str:
    return re.sub(r"\r?\n", "\r\n", text)


def _line_numbers(text: str, places: list[int]) -> list[int]:
    numbers, line, at = [], 1, 0
    for place in places:
        line += text.count("\n", at, place)
        numbers.append(line)
        at = place
    return numbers


def _listed(lines: list[int]) -> str:
    more = len(lines) - SHOWN_PLACES
    return ", ".join(map(str, lines[:SHOWN_PLACES])) + (f" and {more} more" if more > 0 else "")


def _nearest(text: str, old: str) -> str:
    """What of the file is most like the text that was looked for."""
    lines, wanted = text.split("\n"), old.strip("\r\n").split("\n")
    squeezed = [_squeezed(line) for line in lines]
    looked = [_squeezed(line) for line in wanted]
    for at in range(len(lines) - len(looked) + 1):
        if squeezed[at] == looked[0] and squeezed[at : at + len(looked)] == looked and any(looked):
            return " The file has it with other white space:" + _shown(lines, at, len(looked))
    best, first = _closest(squeezed, looked)
    if best is None:
        return " No line of the file is like it."
    return " The nearest lines of the file are:" + _shown(lines, max(0, best - first), len(looked))


def _closest(lines: list[str], wanted: list[str]) -> tuple[int | None, int]:
    """The line most like the longest one that is wanted, and how many lines before that one are wanted too."""
    first = max(range(len(wanted)), key=lambda index: len(wanted[index]))
    goal = wanted[first][:COMPARED_CHARACTERS]
    best, ratio = None, LIKE
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(goal)
    for number, line in enumerate(lines[:COMPARED_LINES]):
        matcher.set_seq1(line[:COMPARED_CHARACTERS])
        if matcher.real_quick_ratio() > ratio and matcher.quick_ratio() > ratio and matcher.ratio() > ratio:
            best, ratio = number, matcher.ratio()
    return best, first


def _squeezed(line: str) -> str:
    return " ".join(line.split())


def _shown(lines: list[str], at: int, count: int) -> str:
    end = min(at + min(count, SHOWN_LINES), len(lines))
    shown = (f"\n{number + 1:>6}\t{cut_head(well_formed(lines[number]), SHOWN_BYTES)}" for number in range(at, end))
    return "".join(shown)
