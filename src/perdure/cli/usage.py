"""`perdure usage`: tokens and cost."""

import asyncio
from pathlib import Path
from typing import Any, Final

import click

from perdure.agent.documents import UsageDoc
from perdure.agent.usage import total
from perdure.cli.config import load_config
from perdure.cli.open import reading
from perdure.cli.session_names import find_session
from perdure.cli.show import emit, say, table

TITLES: Final = {"REQUESTS": "requests", "IN": "input", "CACHED": "cache_read", "OUT": "output"}


@click.command("usage")
@click.argument("session")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def command(session: str, as_json: bool) -> int:
    """Show what a session's models and tools used. A cost that is unknown is not counted as zero: it is named."""
    found = asyncio.run(session_usage(find_session(load_config(), session)))
    if as_json:
        emit(found)
        return 0
    if not found["rows"]:
        say("nothing was used yet")
        return 0
    rows = [_cells(str(row["conversation"]), row["name"], row) for row in found["rows"]]
    if len(rows) > 1:
        rows.append(_cells("total", "", found["total"]))
    table(rows, ["CONVERSATION", "MODEL OR TOOL", *TITLES, "COST"], numbers=range(2, 3 + len(TITLES)))
    if found["total"]["cache_read"]:
        say("cached: the part of what went in that the provider read from its cache")
    return 0


async def session_usage(path: Path) -> dict[str, Any]:
    """Usage by conversation and model, and the sum."""
    rows = []
    values = []
    async with reading(path) as store:
        cursor = 0
        while page := await store.storage.scan_conversations(cursor=cursor, limit=500):
            for conversation in page:
                state = await store.document(store.key_of(UsageDoc, conversation.id, None))
                if state is None:
                    continue
                values.append(state.value)
                for group in ("models", "tools"):
                    for name, row in state.value[group].items():
                        rows.append({"conversation": conversation.id, "name": name, **row})
            cursor = page[-1].id
    return {"rows": rows, "total": total(values)}


def _cells(conversation: str, name: str, row: dict[str, Any]) -> list[str]:
    return [conversation, name, *(f"{row[field]:,}" for field in TITLES.values()), _cost(row)]


def _cost(row: dict[str, Any]) -> str:
    """In USD. Requests whose price nobody knows are named, not counted as free."""
    if row["unpriced"] and row["unpriced"] == row["requests"]:
        return "unknown"
    known = "<$0.0001" if 0 < row["cost"] < 0.0001 else f"${row['cost']:,.4f}"
    return f"{known} + {row['unpriced']:,} unknown" if row["unpriced"] else known
