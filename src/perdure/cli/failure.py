"""Errors as people and programs meet them: what happened, what is certain, what to do; and an exit code."""

import os
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
