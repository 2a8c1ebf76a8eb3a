"""Replacing text in a file exactly, and saying what was found where that is not possible. Pure."""

import difflib
import heapq
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
"""Lines looked at for the nearest one, by the pieces of three characters they share: 0.02 ms each."""
COMPARED_CLOSELY: Final = 12
"""The best of them are compared character by character: up to 6 ms each, while everything else waits."""
COMPARED_CHARACTERS: Final = 200
LIKE: Final = 0.6
"""How like a line must be to be shown; what `difflib` calls close."""


COUNTED_PLACES: Final = 1_000
"""Counted before saying that there are too many: text that repeats itself is in a file millions of times."""

Place = tuple[int, int]
"""Where a piece of text begins and ends."""


class Edited(NamedTuple):
    """The new text, and the lines (from 1) where places changed."""

    text: str
    lines: list[int]


def edit(text: str, old: str, new: str, *, replace_all: bool = False) -> Edited:
    """Replace `old` by `new`, once or everywhere. All other text stays, byte order mark and line ends included.

    Where a file ends lines with CR LF, `old` and `new` may be given with LF; new text gets the ends of what it
    replaces. Raises `ToolError` when `old` is not there (with the nearest lines), is there more than once (with the
    line numbers), or nothing would change.
    """
    if not old:
        raise ToolError("old_text is empty. To create a file, or replace all of it, use write")
    places = _places(text, old, apart=replace_all)
    if not places:
        raise ToolError(f"old_text was not found; nothing was changed.{_nearest(text, old)}")
    if len(places) > 1 and not replace_all:
        times = f"over {COUNTED_PLACES:,}" if len(places) > COUNTED_PLACES else str(len(places))
        raise ToolError(
            f"old_text was found {times} times, at lines {_listed(_line_numbers(text, places))}; nothing was changed. "
            "Give more of the text around the one that is meant, or pass replace_all"
        )
    crlf = _crlf_only(text)
    kept, at, changed = [], 0, False
    for begin, end in places:
        before = text[begin:end]
        after = _with_crlf(new) if crlf or _crlf_only(before) else new
        kept += [text[at:begin], after]
        at, changed = end, changed or after != before
    if not changed:
        raise ToolError("old_text and new_text are the same; nothing was changed")
    return Edited("".join([*kept, text[at:]]), _line_numbers(text, places))


def _places(text: str, old: str, *, apart: bool) -> list[Place]:
    """Where the text is: all that lie apart; or, to tell whether one is meant, overlapping ones too, to a bound."""
    found: list[Place] = []
    at = text.find(old)
    while at >= 0 and (apart or len(found) <= COUNTED_PLACES):
        found.append((at, at + len(old)))
        at = text.find(old, at + (len(old) if apart else 1))
    if found or "\n" not in old or "\r\n" not in text:
        return found
    lines = re.split(r"\r?\n", old)  # whichever way each line ends
    return [match.span() for match in re.finditer(r"\r?\n".join(map(re.escape, lines)), text)]


def _crlf_only(text: str) -> bool:
    """Whether there are lines, and every one ends with CR LF."""
    count = text.count("\r\n")
    return count > 0 and count == text.count("\n")


def _with_crlf(text: str) -> str:
    return re.sub(r"\r?\n", "\r\n", text)


def _line_numbers(text: str, places: list[Place]) -> list[int]:
    numbers, line, at = [], 1, 0
    for begin, _ in places:
        line += text.count("\n", at, begin)
        numbers.append(line)
        at = begin
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
    pieces = _pieces(goal)
    scores: list[tuple[float, int]] = []
    for number, line in enumerate(lines[:COMPARED_LINES]):
        found = _pieces(line[:COMPARED_CHARACTERS])
        shared = len(pieces & found)
        if shared:
            scores.append((-shared / (len(pieces) + len(found)), number))
    best, ratio = None, LIKE
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(goal)
    for _, number in heapq.nsmallest(COMPARED_CLOSELY, scores):
        matcher.set_seq1(lines[number][:COMPARED_CHARACTERS])
        if (like := matcher.ratio()) > ratio:
            best, ratio = number, like
    return best, first


def _pieces(line: str) -> set[str]:
    """Its stretches of three characters; of a very short line, itself."""
    return {line[at : at + 3] for at in range(max(1, len(line) - 2))}


def _squeezed(line: str) -> str:
    return " ".join(line.split())


def _shown(lines: list[str], at: int, count: int) -> str:
    end = min(at + min(count, SHOWN_LINES), len(lines))
    shown = (f"\n{number + 1:>6}\t{cut_head(well_formed(lines[number]), SHOWN_BYTES)}" for number in range(at, end))
    return "".join(shown)
