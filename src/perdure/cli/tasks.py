"""`perdure tasks`: what runs, what waits for what, and until when, as a tree of who owns whom."""

import asyncio
from pathlib import Path
from typing import Any

import click

from perdure.cli.config import load_config
from perdure.cli.open import reading
from perdure.cli.session_names import find_session
from perdure.cli.show import emit, local_time, say, shortened
from perdure.harness.task_graph import PAGE, task_row


@click.command("tasks")
@click.argument("session")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def command(session: str, as_json: bool) -> int:
    """Show a session's live tasks with what they wait for. Reads only, also while another process has it open.

    \b
    perdure tasks nightly
    """
    rows = asyncio.run(live_tasks(find_session(load_config(), session)))
    if as_json:
        emit({"tasks": rows})
    elif not rows:
        say("nothing runs and nothing waits")
    else:
        for line in tree(rows):
            say(line)
    return 0


async def live_tasks(path: Path) -> list[dict[str, Any]]:
    """A row for each task that has not ended, by id."""
    rows: list[dict[str, Any]] = []
    async with reading(path) as store:
        cursor = 0
        while page := await store.storage.scan_tasks(live=True, cursor=cursor, limit=PAGE):
            for task in page:
                owned = await store.storage.scan_conversations(owner=task.id, limit=PAGE)
                rows.append(task_row(task, [conversation.id for conversation in owned]))
            cursor = page[-1].id
    return rows


def tree(rows: list[dict[str, Any]]) -> list[str]:
    """Lines, each task below its owner, each conversation with its own tasks."""
    known = {row["id"] for row in rows}
    owners = {conversation: row["id"] for row in rows for conversation in row["conversations"]}
    lines: list[str] = []

    def below(owner: int | None, conversation: int, depth: int) -> None:
        for row in rows:
            above = row["owner"] if row["owner"] in known else None
            if above == owner and row["conversation"] == conversation:
                lines.append("  " * depth + _line(row))
                lines.extend("  " * (depth + 2) + _asked(question) for question in row["questions"])
                below(row["id"], conversation, depth + 1)

    for conversation in sorted({row["conversation"] for row in rows}):
        owner = owners.get(conversation)
        lines.append(f"conversation {conversation}" + (f" (of task {owner})" if owner is not None else ""))
        below(None, conversation, 1)
    return lines


def _line(row: dict[str, Any]) -> str:
    parts = [str(row["id"]), row["kind"], row["status"] + (f" at {row['phase']}" if row["phase"] else "")]
    if row["waits_for"]:
        parts.append(f"for {', '.join(map(str, row['waits_for']))} ({row['policy']})")
    parts += [f"on {signal}/{shortened(key, 60)}" for signal, key in row["signals"]]
    if row["until"] is not None:
        parts.append(f"until {local_time(row['until'])}")
    parts += [word for word in ("background", "abort_requested") if row[word]]
    return "  ".join(parts)


def _asked(question: dict[str, Any]) -> str:
    return f"? {question['id']}  {shortened(question['text'])}"
