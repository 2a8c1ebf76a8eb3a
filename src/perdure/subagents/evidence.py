"""What a call's session says of an execution, read from its rows: also after its host was killed."""

from pathlib import Path
from typing import Any

from perdure import ROOT
from perdure.agent.documents import LiveDoc, UsageDoc
from perdure.agent.usage import total
from perdure.session.reader import SessionReader, read_session
from perdure.subagents.host.documents import (
    AskedDoc,
    GenerationDoc,
    MarkerDoc,
    ReportDoc,
    SettlementDoc,
    TakenDoc,
)
from perdure.subagents.protocol import Evidence


async def read_evidence(path: Path, execution: str, generation: int) -> Evidence:
    """Read-only; nothing where there is no session yet. Only what came after the execution's marker counts for it."""
    if _is_empty(path):
        return Evidence(marker=False, task_taken=False, settled=False)
    async with read_session(path) as reader:
        return await _evidence(reader, execution, generation)


def _is_empty(path: Path) -> bool:
    """Whether no host has come so far as to make a store."""
    return not path.exists() or path.stat().st_size == 0


async def _evidence(reader: SessionReader, execution: str, generation: int) -> Evidence:
    marker = await reader.snapshot(MarkerDoc, key=execution)
    begun = await reader.snapshot(GenerationDoc, key=str(generation))
    settlement = await reader.snapshot(SettlementDoc, key=execution)
    found = Evidence(marker=marker is not None, task_taken=begun is not None, settled=settlement is not None)
    if settlement is not None:
        found.stop, found.error_code = settlement.stop, settlement.reason or None
        found.budget_reached = settlement.reason == "budget"
        if settlement.status == "done":
            found.text = settlement.text
        else:
            found.error = settlement.detail or settlement.reason or None
    report = await reader.snapshot(ReportDoc, key=str(generation))
    if report is not None:
        found.report_rejected = report.rejected
        if report.rejected is None and report.exec == execution:
            found.report = {"outcome": report.outcome, "summary": report.summary, "data": report.data}
    for qid in await reader.document_keys(AskedDoc, limit=1000):
        asked = await reader.snapshot(AskedDoc, key=qid)
        if asked is not None and asked.open and asked.task is not None and asked.generation == generation:
            found.question = {
                "qid": asked.qid, "rev": asked.rev, "text": asked.text, "task": asked.task, "asked": asked.at
            }  # fmt: skip
    live: Any = await reader.value_of(LiveDoc, ROOT)
    if live is not None and settlement is None:
        found.unfinished = [
            str(slot["name"])
            for slot in live["tools"].values()
            if slot["status"] == "running" and slot["name"] != "ask"
        ]
    found.usage = await _usage(reader, {} if begun is None else begun.baseline)
    found.taken = await reader.document_keys(TakenDoc, limit=10_000)
    return found


async def _usage(reader: SessionReader, baseline: dict[str, float]) -> dict[str, float]:
    """Of the generation: what the conversation used, without what it had used before."""
    value: Any = await reader.value_of(UsageDoc, ROOT)
    used = total([value] if value is not None else [])
    tokens = used["input"] + used["cache_read"] + used["cache_write"]
    return {
        "input": tokens - baseline.get("input", 0),
        "output": used["output"] - baseline.get("output", 0),
        "costUsd": round(used["cost"] - baseline.get("costUsd", 0.0), 10),
    }
