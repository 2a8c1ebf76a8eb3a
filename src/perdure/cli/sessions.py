"""`perdure sessions`: what lies on this machine."""

import time
from typing import Any

import click

from perdure.cli.config import Config, load_config
from perdure.cli.session_names import SUFFIX, list_names, sessions_folder
from perdure.cli.show import emit, note, table
from perdure.storage.lock import read_owner


@click.command("sessions")
@click.option("--json", "as_json", is_flag=True, help="One JSON array on stdout.")
def command(as_json: bool) -> int:
    """List the sessions of this machine, the newest first."""
    rows = sessions(load_config())
    if as_json:
        emit(rows)
        return 0
    if not rows:
        note("no sessions yet; `perdure ask` makes one")
        return 0
    table(
        [
            [
                row["name"],
                _age(row["modified"]),
                f"{row['bytes'] / 1024:.0f} KiB",
                f"open in {row['pid']}" if row["pid"] else "",
            ]
            for row in rows
        ],
        ["SESSION", "CHANGED", "SIZE", "OWNER"],
    )
    return 0


def sessions(config: Config) -> list[dict[str, Any]]:
    """Name, size, time of change and owner of each session."""
    found = []
    for name in list_names(config):
        path = sessions_folder(config) / f"{name}{SUFFIX}"
        stat = path.stat()
        log = path.with_name(f"{path.name}-wal")
        owner = read_owner(path)
        found.append(
            {
                "name": name,
                "path": str(path),
                "bytes": stat.st_size + (log.stat().st_size if log.exists() else 0),
                "modified": stat.st_mtime,
                "pid": None if owner is None else owner.get("pid"),
            }
        )
    return found


def _age(modified: float) -> str:
    seconds = max(0, time.time() - modified)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return "just now"
