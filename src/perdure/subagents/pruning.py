"""Removing ended workflows: the decision first, then what lies on disk. A pruned workflow never comes back."""

import asyncio
import os
import shutil
from pathlib import Path
from typing import Any

from perdure import Harness, TaskTransaction
from perdure.subagents import rows
from perdure.subagents.events import append_event
from perdure.subagents.intake.decision import Rejected, Reply, target_workflow
from perdure.subagents.intake.engine import Engine
from perdure.subagents.names import call_of
from perdure.subagents.paths import StateRoot
from perdure.subagents.spool import Sent
from perdure.subagents.state import (
    CallDoc,
    EndedDoc,
    ExecutionDoc,
    JournalDoc,
    NoticeDoc,
    OpenNoticeDoc,
    PinsDoc,
    ResultDoc,
    Tombstone,
    TombstoneDoc,
    Workflow,
    WorkflowDoc,
)

DAY = 86_400.0


async def decide_prune(tx: TaskTransaction, sent: Sent, engine: Engine) -> Reply:
    """Prune the named workflow, or all ended ones, those that ended more than `olderThanDays` ago."""
    older = sent.body.get("olderThanDays", 0)
    if sent.body.get("to"):
        workflow = await target_workflow(tx, sent.body["to"])
        problem = await obstacle(tx, workflow, float(older))
        if problem is not None:
            raise Rejected(problem, wid=workflow.wid)
        await _prune(tx, workflow)
        return {"pruned": [workflow.wid]}
    pruned = []
    for key in await rows.keys(tx, EndedDoc):
        found = await rows.workflow(tx, key.partition("/")[2])
        if found is not None and await obstacle(tx, found, float(older)) is None:
            await _prune(tx, found)
            pruned.append(found.wid)
    return {"pruned": pruned}


async def obstacle(reader: Any, workflow: Workflow, older_days: float) -> str | None:
    """Why a workflow cannot be pruned; None if it can."""
    if workflow.status in ("running", "parked"):
        return f"it is {workflow.status}"
    if workflow.open:
        return f"a follow-up is open: {', '.join(workflow.open)}"
    for exec in await rows.keys(reader, ExecutionDoc, workflow.wid):
        return f"the execution {exec} is not proven gone"
    now = reader.now_millis / 1000 if hasattr(reader, "now_millis") else 0.0
    if older_days and workflow.ended is not None and now - workflow.ended < older_days * DAY:
        return f"it ended less than {older_days:g} days ago"
    return None


async def _prune(tx: TaskTransaction, workflow: Workflow) -> None:
    """All rows of it go; a tombstone stays, and its requests keep their outcomes."""
    await append_event(tx, "pruned", workflow=workflow, status=workflow.status)
    for key in workflow.calls:
        address = call_of(workflow.wid, key)
        for name in await rows.keys(tx, ResultDoc, f"{address}@"):
            await tx.retire(ResultDoc, key=name)
        await tx.retire(CallDoc, key=address)
    for kind in (PinsDoc, JournalDoc):
        for name in await rows.keys(tx, kind, f"{workflow.wid}@"):
            await tx.retire(kind, key=name)
    for notice in await rows.rows(tx, NoticeDoc, f"{workflow.wid}:"):
        await tx.retire(NoticeDoc, key=notice.id)
    for key in await rows.keys(tx, OpenNoticeDoc):
        if key.partition("/")[2].startswith(f"{workflow.wid}:"):
            await tx.retire(OpenNoticeDoc, key=key)
    for key in await rows.keys(tx, EndedDoc):
        if key.endswith(f"/{workflow.wid}"):
            await tx.retire(EndedDoc, key=key)
    await tx.retire(WorkflowDoc, key=workflow.wid)
    gone = Tombstone(
        wid=workflow.wid, status=workflow.status, ended=workflow.ended, request=workflow.request,
        digest=workflow.digest, labels=workflow.labels,
    )  # fmt: skip
    await rows.write(tx, TombstoneDoc, workflow.wid, gone)


async def delete_pruned(root: StateRoot, harness: Harness) -> None:
    """Delete what pruned workflows left on disk; also at the start, for what an earlier orchestrator did not finish."""
    for wid in await rows.keys(harness.session, TombstoneDoc):
        gone = await rows.read(harness.session, TombstoneDoc, wid)
        if gone is None or gone.deleted:
            continue
        await asyncio.to_thread(shutil.rmtree, root.workflow(wid), True)
        async with harness.session.transaction() as tx:
            gone.deleted = True
            await rows.write(tx, TombstoneDoc, wid, gone)


def disk_bytes(path: Path) -> int:
    """What a folder takes."""
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
            except OSError:
                continue
    return total
