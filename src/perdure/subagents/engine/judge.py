"""What an execution's end means: a pure function of the evidence and of what was decided about the call."""

from typing import Any, Literal

import msgspec

from perdure.subagents.engine.errors import meaning_of
from perdure.subagents.protocol import Evidence
from perdure.subagents.state import CallStatus

ERROR_LENGTH = 300
LAUNCHES = 3
"""Hosts in a row that end before they begin: after these it counts as a loss, so that one that cannot start ends."""


class Verdict(msgspec.Struct, kw_only=True):
    """`sealed`: the generation has its result. `asking`: it waits for an answer, nothing runs. `again`: it goes on in
    the same session, as a loss or not."""

    outcome: Literal["sealed", "asking", "again"]
    status: CallStatus = "failed"
    output: str = ""
    data: Any = None
    error: str | None = None
    loss: bool = False
    exhausted: bool = False


def judge(
    evidence: Evidence,
    *,
    stopped: bool = False,
    timed_out: bool = False,
    schema: bool = False,
    once: bool = False,
    forgiven: bool = False,
    losses: int = 0,
    launches: int = 1,
    loss_bound: int = 5,
) -> Verdict:
    """In the order of precedence: stop, timeout, budget, an open question alone, a report, accepted text, a cut `once`
    call, an error that asking again does not mend, a loss. `forgiven`: it was ended from outside, no loss of the
    call."""
    if stopped:
        return Verdict(outcome="sealed", status="stopped")
    if timed_out:
        return Verdict(outcome="sealed", status="timeout", error="timeout")
    if evidence.budget_reached:
        return Verdict(outcome="sealed", status="budget", error="budget reached", output=evidence.text)
    if evidence.question is not None and not evidence.unfinished:
        return Verdict(outcome="asking")
    if evidence.report is not None:
        return _reported(evidence.report, evidence.text)
    if evidence.settled and evidence.text.strip() and not schema:
        return Verdict(outcome="sealed", status="ok", output=evidence.text)
    if once and evidence.unfinished:
        names = ", ".join(evidence.unfinished)
        return Verdict(outcome="sealed", status="unknown", error=f"cut off while these ran, and not run again: {names}")
    told = _told_by_provider(evidence)
    if told is not None:
        return told
    if (not evidence.marker and launches < LAUNCHES) or forgiven:
        return Verdict(outcome="again")  # it had not begun, or somebody else ended it: nothing is lost
    return _lost(evidence, schema, losses, loss_bound)


def _reported(report: dict[str, Any], text: str) -> Verdict:
    status: CallStatus = "ok" if report["outcome"] == "ok" else "failed"
    said = report["summary"] or (msgspec.json.encode(report["data"]).decode() if report["data"] is not None else "")
    output = "\n\n".join(part for part in (said, text) if part)
    error = None if status == "ok" else (report["summary"] or "reported as failed")
    return Verdict(outcome="sealed", status=status, output=output, data=report["data"], error=error)


def _told_by_provider(evidence: Evidence) -> Verdict | None:
    """What an error means that asking again does not mend; None for one that it may, and for none."""
    if not evidence.settled or not evidence.error:
        return None
    error, meaning = evidence.error[:ERROR_LENGTH], meaning_of(evidence.error, evidence.error_code)
    if meaning in ("fatal", "refusal", "overflow"):
        return Verdict(outcome="sealed", status="failed", error=error)
    return Verdict(outcome="again", exhausted=True, error=error) if meaning == "exhausted" else None


def _lost(evidence: Evidence, schema: bool, losses: int, loss_bound: int) -> Verdict:
    error = (evidence.error or "")[:ERROR_LENGTH]
    if losses + 1 >= loss_bound:
        text = f"lost ×{losses + 1}" + (f": {error}" if error else "")
        if schema:
            tried = evidence.report_rejected
            text += f"; its report was refused: {tried}" if tried else "; it never reported"
        return Verdict(outcome="sealed", status="failed", error=text, loss=True)
    return Verdict(outcome="again", loss=True, error=error or None)
