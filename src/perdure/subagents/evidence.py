"""What a call's session says of an execution, read from its rows: also while its host lives, or after it was killed."""

from pathlib import Path
from typing import Any, Final

from perdure import ROOT
from perdure.agent.documents import LiveDoc, UsageDoc
from perdure.agent.usage import total
from perdure.session.reader import SessionReader, read_session
from perdure.subagents.host.documents import (
    AskedDoc,
    DeliveryDoc,
    Generation,
    GenerationDoc,
    MarkerDoc,
    RejectedDoc,
    Report,
    ReportDoc,
    delivery_prefix,
)
from perdure.subagents.host.outcome import outcome, unfinished
from perdure.subagents.protocol import Evidence

QUESTIONS_READ: Final = 1000
"""So many questions of one session are looked at."""
DELIVERIES_READ: Final = 10_000
"""So many deliveries of one generation are looked at."""


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
    begun: Generation | None = await reader.snapshot(GenerationDoc, key=str(generation))
    found = Evidence(marker=marker is not None, task_taken=False, settled=False)
    if begun is None:
        return found  # the session has nothing of this generation
    stands = await outcome(reader, begun.task_id, begun.after if marker is None else marker.after)
    found.task_taken, found.entries, found.damaged = stands.taken, stands.entries, stands.damaged
    if marker is not None:
        found.settled, found.stop, found.text, found.model = stands.over, stands.stop, stands.text, stands.model
        found.error, found.error_code, found.budget_reached = stands.error, stands.code, stands.budget
    report: Report | None = await reader.snapshot(ReportDoc, key=execution)
    if report is not None:
        found.report = {"outcome": report.outcome, "summary": report.summary, "data": report.data}
    found.report_rejected = await reader.snapshot(RejectedDoc, key=str(generation))
    found.question = await _question(reader, generation)
    if not stands.over:
        found.unfinished = unfinished(await reader.value_of(LiveDoc, ROOT))
    found.usage = await _usage(reader, begun.baseline)
    found.taken = await _taken(reader, generation)
    return found


async def _question(reader: SessionReader, generation: int) -> dict[str, Any] | None:
    for qid in await reader.document_keys(AskedDoc, limit=QUESTIONS_READ):
        asked = await reader.snapshot(AskedDoc, key=qid)
        if asked is not None and asked.open and asked.task is not None and asked.generation == generation:
            return {"qid": asked.qid, "rev": asked.rev, "text": asked.text, "task": asked.task, "asked": asked.at}
    return None


async def _usage(reader: SessionReader, baseline: dict[str, float]) -> dict[str, float]:
    """Of the generation: what the conversation used, without what it had used before."""
    value: Any = await reader.value_of(UsageDoc, ROOT)
    used = total([value] if value is not None else [])
    return {
        "input": used["input"] - baseline.get("input", 0),
        "output": used["output"] - baseline.get("output", 0),
        "costUsd": round(used["cost"] - baseline.get("costUsd", 0.0), 10),
    }


async def _taken(reader: SessionReader, generation: int) -> list[str]:
    """What the model has been given or will be: a submission that only waits for its place is none of it."""
    prefix, found = delivery_prefix(generation), []
    for key in await reader.document_keys(DeliveryDoc, prefix=prefix, limit=DELIVERIES_READ):
        delivery, request = await reader.snapshot(DeliveryDoc, key=key), key.removeprefix(prefix)
        if delivery is None or delivery.how == "withdrawn":
            continue
        if delivery.how == "submitted":
            submission = await reader.store.submission_by_request(ROOT, key)
            if submission is None or submission.entry is None:
                continue
        found.append(request)
    return found
