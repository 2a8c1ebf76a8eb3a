"""`perdure repair`: what stands before the damage in a session's file of lines, as a new session."""

import click
import msgspec

from perdure.cli.show import emit, say
from perdure.storage.jsonl.repair import repair


@click.command("repair")
@click.argument("path", type=click.Path(exists=True, dir_okay=False))
@click.argument("new_path", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def command(path: str, new_path: str, as_json: bool) -> int:
    """Write the commits before the damage in PATH, a .jsonl session, to a new session at NEW_PATH.

    PATH stays as it is. Whole commits behind the damage go to NEW_PATH.rest, for people to read.
    """
    done = repair(path, new_path)
    if as_json:
        emit(msgspec.to_builtins(done))
        return 0
    say(f"{done.path}: everything up to commit {done.seq}, byte {done.offset} of the damaged file")
    if done.rest is not None:
        say(f"{done.rest}: {len(done.lost_seqs)} later commits, for people")
    return 0
