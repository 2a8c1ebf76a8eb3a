"""What needs a hand: read-only, each finding with one command."""

import asyncio
import time
from typing import Any, Final

import msgspec

from perdure.subagents import rows, spool, starter
from perdure.subagents.client import reading
from perdure.subagents.cost import cost
from perdure.subagents.paths import StateRoot
from perdure.subagents.pruning import disk_bytes
from perdure.subagents.state import (
    BuriedDoc,
    EndedDoc,
    ExecutionDoc,
    LiveDoc,
    NoticeDoc,
)
from perdure.subagents.status import load_config_or_problem

PARKED_SECONDS: Final = 86_400.0
OPEN_SECONDS: Final = 3_600.0
LARGEST: Final = 5
AGAIN_SECONDS: Final = 1.0


class Finding(msgspec.Struct, kw_only=True):
    """What is wrong, and the command that mends it."""

    what: str
    command: str


async def examine(root: StateRoot) -> dict[str, Any]:
    """Figures and findings. Nothing is changed, and nothing started.

    While it looks, requests are decided and orchestrators begin and end: a finding counts if a second look a moment
    later finds it again.
    """
    async with reading(root) as reader:
        found = await _look(reader, root)
    if found["findings"]:
        await asyncio.sleep(AGAIN_SECONDS)
        async with reading(root) as reader:
            again = await _look(reader, root)
        found["findings"] = [one for one in again["findings"] if one in found["findings"]]
    return found


async def _look(reader: rows.Reader | None, root: StateRoot) -> dict[str, Any]:
    found: dict[str, Any] = {"home": str(root.path), "disk": disk_bytes(root.path), "workflows": {}, "largest": []}
    findings: list[Finding] = []
    card = starter.running(root)
    found["orchestrator"] = None if card is None else msgspec.to_builtins(card)
    found["cost"] = await cost(reader, root)
    _, problem = load_config_or_problem(root)
    if problem:
        findings.append(Finding(what=problem, command=f"edit {root.config}"))
    if card is None and spool.any_waiting(root):
        findings.append(Finding(what="requests wait and no orchestrator runs", command="perdure agents start"))
    if reader is not None:
        findings += await _rows(reader, found, card is not None)
        found["largest"] = await _largest(reader, root)
        for wid in await rows.keys(reader, BuriedDoc) if card is None else ():
            findings.append(Finding(what=f"{wid} was pruned, its folder is left", command="perdure agents start"))
    found["findings"] = [msgspec.to_builtins(one) for one in findings]
    return found


async def _rows(reader: rows.Reader, found: dict[str, Any], running: bool) -> list[Finding]:
    now = time.time()
    findings: list[Finding] = []
    counts: dict[str, int] = {}
    for wid in await rows.keys(reader, LiveDoc):
        workflow = await rows.workflow(reader, wid)
        if workflow is None:
            continue
        counts[workflow.status] = counts.get(workflow.status, 0) + 1
        if workflow.status == "parked" and now - workflow.created > PARKED_SECONDS:
            findings.append(Finding(what=f"{wid} is parked: {workflow.reason}", command=f"perdure agents resume {wid}"))
    counts["ended"] = len(await rows.keys(reader, EndedDoc))
    found["workflows"] = counts
    for execution in await rows.rows(reader, ExecutionDoc):
        if execution.fence_failed is not None:
            what = f"processes of {execution.exec} do not end"
            findings.append(Finding(what=what, command=f"perdure agents status {execution.wid}"))
        elif not running:
            what = f"{execution.exec} was under way and no orchestrator runs"
            findings.append(Finding(what=what, command="perdure agents start"))
    for notice in await rows.rows(reader, NoticeDoc):
        if notice.kind == "question" and notice.resolved is None and now - notice.at > OPEN_SECONDS:
            what = f"a question is open since {time.ctime(notice.at)}: {notice.text[:200]}"
            to = f"{notice.wid}/{notice.key}"
            findings.append(Finding(what=what, command=f"perdure agents send answer --to {to} --message …"))
    return findings


async def _largest(reader: rows.Reader, root: StateRoot) -> list[dict[str, Any]]:
    folder = root.path / "workflows"
    sizes = [(disk_bytes(one), one.name) for one in folder.iterdir()] if folder.is_dir() else []
    return [{"wid": name, "bytes": size} for size, name in sorted(sizes, reverse=True)[:LARGEST]]
