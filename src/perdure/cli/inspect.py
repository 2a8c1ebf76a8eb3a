"""`perdure inspect`: what a session does, waits for and holds, read from its store."""

import asyncio
from pathlib import Path
from typing import Any

import click

from perdure.agent.documents import AgentDoc, InboxDoc, LiveDoc
from perdure.cli.config import load_config
from perdure.cli.open import reading
from perdure.cli.session_names import find_session
from perdure.cli.show import emit, say, table
from perdure.session.store import Store
from perdure.storage.lock import read_owner


@click.command("inspect")
@click.argument("session")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def command(session: str, as_json: bool) -> int:
    """Show a session's conversations and live tasks. Reads only, also while another process has it open."""
    path = find_session(load_config(), session)
    found = asyncio.run(inspected(path))
    if as_json:
        emit(found)
        return 0
    owner = found["owner"]
    say(f"session  {path}")
    say(f"owner    {'process ' + str(owner['pid']) if owner else 'nobody'}")
    say(f"commits  {found['seq']}")
    say()
    table(
        [
            [str(c["id"]), c["model"] or "-", "busy" if c["busy"] else "idle", str(c["queued"]), _origin(c)]
            for c in found["conversations"]
        ],
        ["CONVERSATION", "MODEL", "STATE", "QUEUED", "FROM"],
    )
    if found["tasks"]:
        say()
        table(
            [[str(t["id"]), t["kind"], t["status"], str(t["conversation"]), _detail(t)] for t in found["tasks"]],
            ["TASK", "KIND", "STATUS", "CONVERSATION", ""],
        )
    return 0


async def inspected(path: Path) -> dict[str, Any]:
    """Everything that `inspect` shows."""
    async with reading(path) as store:
        conversations = []
        cursor = 0
        while page := await store.storage.scan_conversations(cursor=cursor, limit=500):
            for record in page:
                conversations.append(await _conversation(store, record))
            cursor = page[-1].id
        tasks = []
        cursor = 0
        while lights := await store.storage.scan_live(cursor=cursor, limit=500):
            for task in lights:
                tasks.append(
                    {
                        "id": task.id,
                        "kind": task.kind,
                        "status": task.status,
                        "conversation": task.conversation,
                        "owner": task.owner,
                        "background": task.background,
                        "abort_requested": task.abort_requested,
                        "waits_for": list(task.on),
                        "until": None if task.deadline is None else task.deadline / 1000,
                    }
                )
            cursor = lights[-1].id
        return {"seq": store.seq, "owner": read_owner(path), "conversations": conversations, "tasks": tasks}


async def _conversation(store: Store, record: Any) -> dict[str, Any]:
    async def value(kind: Any) -> Any:
        state = await store.document(store.key_of(kind, record.id, None))
        return None if state is None else state.value

    agent, live, inbox = await value(AgentDoc), await value(LiveDoc), await value(InboxDoc)
    return {
        "id": record.id,
        "parent": record.parent,
        "fork_entry": record.fork_entry,
        "owner": record.owner,
        "model": (agent or {}).get("model"),
        "cwd": (agent or {}).get("cwd"),
        "busy": bool(live and live["run"]),
        "queued": len(inbox["items"]) if inbox else 0,
    }


def _origin(conversation: dict[str, Any]) -> str:
    if conversation["parent"] is not None:
        return f"fork of {conversation['parent']} at {conversation['fork_entry']}"
    return f"task {conversation['owner']}" if conversation["owner"] is not None else ""


def _detail(task: dict[str, Any]) -> str:
    parts = []
    if task["abort_requested"]:
        parts.append("abort requested")
    if task["background"]:
        parts.append("background")
    if task["waits_for"]:
        parts.append(f"waits for {', '.join(map(str, task['waits_for']))}")
    if task["until"] is not None:
        parts.append(f"until {task['until']:.0f}")
    return "; ".join(parts)
