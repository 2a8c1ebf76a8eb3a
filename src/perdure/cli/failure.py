"""Errors as people and programs meet them: what happened, what is certain, what to do; and an exit code."""

import contextlib
import errno
import os
import sys
import traceback
from collections.abc import Iterator
from typing import Final

import click

from perdure.base.errors import Busy, Error, RequestConflict, StorageBusy, StorageInUse
from perdure.base.text import printable

EXIT_CODES: Final = {
    0: "ok",
    1: "refused or failed",
    2: "usage",
    3: "conflict",
    75: "try again",
    130: "interrupted",
}
_CERTAIN: Final = {
    "stored": "what you asked for is stored",
    "not_stored": "nothing was stored",
    "unknown": "it is not known whether the last change is stored",
}


class OutputFailed(Exception):
    """What a command prints cannot be written: the disk is full, or whoever read it has gone."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error.strerror or str(error))
        self.reader_gone = error.errno == errno.EPIPE


@contextlib.contextmanager
def printing() -> Iterator[None]:
    """Tell errors of the output apart from those of files, by where they come from. All printing is click's."""
    try:
        yield
    except OSError as error:
        if any(frame.f_code.co_filename == click.utils.__file__ for frame, _ in traceback.walk_tb(error.__traceback__)):
            raise OutputFailed(error) from error
        raise


def exit_code(error: BaseException) -> int:
    """The exit code of an error."""
    if isinstance(error, RequestConflict):
        return 3
    if isinstance(error, StorageInUse | StorageBusy | Busy):
        return 75
    return 1


def report_failure(error: Exception) -> int:
    """Print an error on stderr; return its exit code. A mistake of ours keeps its traceback for `PERDURE_DEBUG=1`."""
    if os.environ.get("PERDURE_DEBUG", "") not in ("", "0"):
        raise error
    if isinstance(error, OutputFailed):
        return _output_failed(error)
    if isinstance(error, Error):
        click.echo(f"error: {printable(error.what)}", err=True)
        click.echo(f"  certain: {_CERTAIN[error.certain]}", err=True)
        if error.hint:
            click.echo(f"  try: {printable(error.hint)}", err=True)
    elif isinstance(error, OSError):
        click.echo(f"error: {error.strerror or error}" + (f": {error.filename}" if error.filename else ""), err=True)
    else:
        click.echo(f"error: {type(error).__name__}: {printable(str(error))}", err=True)
        click.echo("  this is a mistake in Perdure; run again with PERDURE_DEBUG=1 for the traceback", err=True)
    return exit_code(error)


def _output_failed(error: OutputFailed) -> int:
    """Nothing more can be printed; nothing that is left over is tried again when the program ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if error.reader_gone:
        return 0
    with contextlib.suppress(OSError):
        click.echo(f"error: the output cannot be written: {error}", err=True)
        click.echo("  certain: it is incomplete; what was said and done is stored", err=True)
        click.echo("  try: print it to another place, such as with `perdure log SESSION`", err=True)
    return 1
