"""What the running orchestrator costs, as the kernel and it itself tell it."""

import asyncio
import json
import os
import time
from typing import Any, Final

from perdure.subagents import rows, starter
from perdure.subagents.client import connection, say
from perdure.subagents.paths import StateRoot
from perdure.subagents.state import EndedDoc, LiveDoc

HELLO_SECONDS: Final = 1.0


async def cost(reader: rows.Reader | None, root: StateRoot) -> dict[str, Any] | None:
    """Figures of the orchestrator that runs now; None if none does."""
    card = starter.running(root)
    if card is None:
        return None
    seconds = max(time.time() - card.since, 0.001)
    found: dict[str, Any] = {
        "pid": card.pid,
        "seconds": round(seconds, 1),
        "cpuSeconds": processor_seconds(card.pid),
        "bytesRead": bytes_read(card.pid),
        "openStores": open_stores(card.pid),
    }
    passes = await _passes(root)
    if passes is not None:
        found["passesPerSecond"] = round(passes / seconds, 3)
    if reader is not None:
        live = len(await rows.keys(reader, LiveDoc))
        found |= {"live": live, "workflows": live + len(await rows.keys(reader, EndedDoc))}
    return found if starter.running(root) is not None else None


def bytes_read(pid: int) -> int:
    """What the process's own threads have read. The kernel adds what ended children read to the process's whole, so the
    whole is not asked for: proc(5), /proc/pid/task/tid/io."""
    total = 0
    for thread in _listed(f"/proc/{pid}/task"):
        for line in _text(f"/proc/{pid}/task/{thread}/io").splitlines():
            if line.startswith("rchar:"):
                total += int(line.split()[1])
    return total


def processor_seconds(pid: int) -> float:
    """Processor time of the process without its children: proc(5), /proc/pid/stat, fields 14 and 15."""
    fields = _text(f"/proc/{pid}/stat").rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def open_stores(pid: int) -> int:
    """How many sessions' files the process has open."""
    found = set()
    for number in _listed(f"/proc/{pid}/fd"):
        try:
            found.add(os.readlink(f"/proc/{pid}/fd/{number}"))
        except OSError:
            continue  # closed meanwhile
    return sum(path.endswith(".db") for path in found)


async def _passes(root: StateRoot) -> int | None:
    """How often it has looked at its inbox, as it says itself."""
    try:
        async with asyncio.timeout(HELLO_SECONDS), connection(root) as (reader, writer):
            await say(writer, {"op": "hello"})
            return int(json.loads(await reader.readline())["stats"]["passes"])
    except (OSError, ValueError, KeyError, TimeoutError):
        return None


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""  # it has ended
