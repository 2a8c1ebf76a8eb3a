"""`perdure usage`: tokens and cost."""

import asyncio
from pathlib import Path
from typing import Any

import click

from perdure.agent.documents import UsageDoc
from perdure.agent.usage import total
from perdure.cli.config import load_config
from perdure.cli.open import reading
from perdure.cli.session_names import find_session
from perdure.cli.show import emit, say, table


@click.command("usage")
@click.argument("session")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def command(session: str, as_json: bool) -> int:
    """Show what a session's models and tools used. A cost that is unknown is not counted as zero: it is named."""
    found = asyncio.run(session_usage(find_session(load_config(), session)))
    if as_json:
        emit(found)
        return 0
    rows = [
        [str(row["conversation"]), row["name"], str(row["requests"]), str(row["input"]), str(row["output"]), _cost(row)]
        for row in found["rows"]
    ]
    table(rows, ["CONVERSATION", "MODEL OR TOOL", "REQUESTS", "IN", "OUT", "USD"])
    say(f"total: {found['total']['input']} in, {found['total']['output']} out, {_cost(found['total'])} USD")
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


def _cost(row: dict[str, Any]) -> str:
    known = f"{row['cost']:.4f}"
    return f"{known} + {row['unpriced']} unpriced" if row["unpriced"] else known
