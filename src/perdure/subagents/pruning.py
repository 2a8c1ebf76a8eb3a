"""Removing ended workflows: the decision first, then what lies on disk. A pruned workflow never comes back."""

import asyncio
import os
import shutil
from collections.abc import Collection
from pathlib import Path

from perdure import Harness, TaskTransaction
from perdure.storage.sqlite.store import SqliteStorage
from perdure.subagents import rows
from perdure.subagents.events import append_event
from perdure.subagents.intake.decision import Rejected, Reply, target_workflow
from perdure.subagents.intake.engine import Engine
from perdure.subagents.notices import open_key
from perdure.subagents.paths import StateRoot
from perdure.subagents.spool import Sent
from perdure.subagents.state import (
    BuriedDoc,
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
    recent_key,
)

DAY = 86_400.0
AT_ONCE = 50
"""So many buried workflows are removed in one commit."""


async def decide_prune(tx: TaskTransaction, sent: Sent, engine: Engine) -> Reply:
    """Prune the named workflow, or all ended ones, those that ended more than `olderThanDays` ago. They are gone with
    this commit; what they take is given back after it, piece by piece."""
    older = sent.body.get("olderThanDays", 0)
    running = {execution.wid for execution in await rows.rows(tx, ExecutionDoc)}
    if sent.body.get("to"):
        workflow = await target_workflow(tx, sent.body["to"])
        problem = await obstacle(tx, workflow, float(older), running)
        if problem is not None:
            raise Rejected(problem, wid=workflow.wid)
        await _bury(tx, workflow)
        return {"pruned": [workflow.wid]}
    pruned = []
    for key in await rows.keys(tx, EndedDoc):
        found = await rows.workflow(tx, key.partition("/")[2])
        if found is not None and await obstacle(tx, found, float(older), running) is None:
            await _bury(tx, found)
            pruned.append(found.wid)
    return {"pruned": pruned}


async def obstacle(tx: TaskTransaction, workflow: Workflow, older_days: float, running: Collection[str]) -> str | None:
    """Why a workflow cannot be pruned; None if it can. `running`: whose executions are not proven gone."""
    if workflow.status in ("running", "parked"):
        return f"it is {workflow.status}"
    if workflow.open:
        return f"a follow-up is open: {', '.join(workflow.open)}"
    if workflow.wid in running:
        return "an execution of it is not proven gone"
    if older_days and workflow.ended is not None and tx.now_millis / 1000 - workflow.ended < older_days * DAY:
        return f"it ended less than {older_days:g} days ago"
    return None


async def _bury(tx: TaskTransaction, workflow: Workflow) -> None:
    """It is no more: a tombstone stands in its place, and its requests keep their outcomes."""
    await append_event(tx, "pruned", workflow=workflow, status=workflow.status)
    if workflow.ended is not None:
        await tx.retire(EndedDoc, key=recent_key(workflow.ended, workflow.wid))
    await tx.retire(WorkflowDoc, key=workflow.wid)
    gone = Tombstone(
        wid=workflow.wid, status=workflow.status, ended=workflow.ended, request=workflow.request,
        digest=workflow.digest, labels=workflow.labels,
    )  # fmt: skip
    await rows.write(tx, TombstoneDoc, workflow.wid, gone)
    await rows.write(tx, BuriedDoc, workflow.wid, {})


async def delete_pruned(root: StateRoot, harness: Harness) -> None:
    """Delete what pruned workflows left, on disk and in rows; also at the start, for what an earlier orchestrator did
    not finish. A few at a time: whoever else wants to commit gets in between."""
    deleted = False
    while buried := (await rows.keys(harness.session, BuriedDoc))[:AT_ONCE]:
        deleted = True
        for wid in buried:
            await asyncio.to_thread(shutil.rmtree, root.workflow(wid), True)
        async with harness.session.transaction() as tx:
            for wid in buried:
                await _remove(tx, wid)
    storage = harness.session.storage
    if deleted and isinstance(storage, SqliteStorage):
        await storage.shrink()


async def _remove(tx: TaskTransaction, wid: str) -> None:
    """All rows of a buried workflow."""
    for kind in (CallDoc, ResultDoc):
        for name in await rows.keys(tx, kind, f"{wid}/"):
            await tx.retire(kind, key=name)
    for kind in (PinsDoc, JournalDoc):
        for name in await rows.keys(tx, kind, f"{wid}@"):
            await tx.retire(kind, key=name)
    for notice in await rows.rows(tx, NoticeDoc, f"{wid}:"):
        await tx.retire(NoticeDoc, key=notice.id)
        await tx.retire(OpenNoticeDoc, key=open_key(notice))
    await tx.retire(BuriedDoc, key=wid)
    gone = await rows.read(tx, TombstoneDoc, wid)
    if gone is not None:
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
