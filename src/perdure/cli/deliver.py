"""What a command says about a value that it handed in, and the exit code that follows."""

from typing import Final

import click

from perdure.base.text import printable
from perdure.cli.show import emit, say
from perdure.tasks.signals import SignalResult

REFUSED: Final[dict[str, tuple[str, str]]] = {
    "duplicate": ("it has a value already, and the first one stays", "what you sent was not stored"),
    "invalid": ("the value does not fit", "look at what is asked for"),
    "closed": ("nobody waits for it any more: it was answered, its deadline passed, or its task ended", ""),
    "not_found": ("there is no such task or question", "`perdure tasks` and `perdure answer` list them"),
}


def delivered(result: SignalResult, by: int | None, as_json: bool) -> int:
    """Tell what became of a value. The exit code: 0 stored, 3 another one came first, 1 refused."""
    if as_json:
        emit({"result": result, "by": by})
    elif result == "delivered":
        say(
            f"delivered by process {by}, which has the session open"
            if by
            else "delivered; its task goes on when somebody goes on with the session"
        )
    if result == "delivered":
        return 0
    what, hint = REFUSED[result]
    complain(f"{result}: {what}", hint)
    return 3 if result == "duplicate" else 1


def complain(what: str, hint: str) -> None:
    """An error in the words of all commands, for what is no exception."""
    click.echo(f"error: {printable(what)}\n  certain: nothing was stored", err=True)
    if hint:
        click.echo(f"  try: {printable(hint)}", err=True)
