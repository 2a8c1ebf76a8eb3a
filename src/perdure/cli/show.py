"""What commands print: plain lines for people, JSON for programs, nothing that a terminal would obey."""

import json
import sys
from collections.abc import Collection
from datetime import datetime
from typing import Any

import click

from perdure.base.errors import InvalidValue
from perdure.base.text import printable


def say(text: str = "") -> None:
    """A line on stdout."""
    click.echo(printable(text))


def note(text: str) -> None:
    """A line of progress on stderr."""
    click.echo(printable(text), err=True)


def piped() -> str:
    """What comes on stdin, to its end."""
    if sys.stdin is None:
        raise InvalidValue("there is no stdin to read from", hint="give the text itself instead of `-`")
    return sys.stdin.buffer.read().decode("utf-8", "replace")


def emit(value: Any) -> None:
    """One JSON value as a line on stdout."""
    click.echo(json.dumps(value, ensure_ascii=False))


def table(rows: list[list[str]], header: list[str], *, numbers: Collection[int] = ()) -> None:
    """Columns as wide as their widest cell; those of numbers, by their position, stand at the right."""
    cells = [header, *([printable(cell).replace("\n", " ") for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    for row in cells:
        placed = [
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        click.echo("  ".join(placed).rstrip())


def local_time(seconds: float | None) -> str:
    """A moment by this machine's clock, with its time zone; "-" for none."""
    return "-" if seconds is None else datetime.fromtimestamp(seconds).astimezone().isoformat(" ", timespec="seconds")


def shortened(text: str, length: int = 100) -> str:
    """One line of at most `length` characters."""
    line = " ".join(printable(text).split())
    return line if len(line) <= length else line[: length - 1] + "…"
