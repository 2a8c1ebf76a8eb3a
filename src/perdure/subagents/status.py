"""What runs, asks, failed and ended: brief for everything, whole for one workflow. From committed rows alone."""

import json
import re
import subprocess
import sys
from typing import Any, Final

import msgspec

from perdure import InvalidValue
from perdure.subagents import rows, starter
from perdure.subagents.config import InEffectDoc, load_config
from perdure.subagents.describe import about, describe_call
from perdure.subagents.events import head
from perdure.subagents.paths import StateRoot
from perdure.subagents.state import (
    Call,
    EndedDoc,
    ExecutionDoc,
    ExhaustedDoc,
    LiveDoc,
    Workflow,
)

RECENT: Final = 5
"""Finished workflows in the brief status."""
CLIPPED: Final = 600
"""Characters of an output in a workflow's status."""
EXCERPT: Final = 4000
"""Characters of a call's `tail` or `grep`."""
LINE: Final = 2000
LINES: Final = 5000
"""How much of an output a search looks at: the beginning of each line, and the newest lines."""
SEARCH_SECONDS: Final = 2.0
SEARCH: Final = """
import json, re, sys
pattern, lines = json.load(sys.stdin)
find = re.compile(pattern).search
print(json.dumps([number for number, line in enumerate(lines) if find(line)]))
"""


async def status(reader: rows.Reader | None, root: StateRoot) -> dict[str, Any]:
    """The brief one. Its size does not grow with what has ended."""
    card = starter.running(root)
    found: dict[str, Any] = {
        "orchestrator": None if card is None else msgspec.to_builtins(card),
        "live": [],
        "recent": [],
        "slots": {},
        "exhausted": [],
    }
    _, problem = load_config_or_problem(root)
    if problem:
        found["config_problem"] = problem
    if reader is None:
        return found
    found["head"] = await head(reader)
    settings = await reader.snapshot(InEffectDoc)
    if settings is not None:
        found["config"] = msgspec.to_builtins(settings)
    for wid in await rows.keys(reader, LiveDoc):
        workflow = await rows.workflow(reader, wid)
        if workflow is not None:
            found["live"].append(await brief(reader, workflow))
    for key in await reader.document_keys(EndedDoc, limit=RECENT):
        workflow = await rows.workflow(reader, key.partition("/")[2])
        if workflow is not None:
            found["recent"].append(await summary(reader, workflow))
    found["slots"] = await slots(reader)
    found["exhausted"] = [msgspec.to_builtins(one) for one in await rows.rows(reader, ExhaustedDoc)]
    return found


def load_config_or_problem(root: StateRoot) -> tuple[Any, str]:
    """The configuration as its file says, or what is wrong with it."""
    try:
        return load_config(root), ""
    except InvalidValue as error:
        return None, str(error)


async def slots(reader: rows.Reader) -> dict[str, int]:
    """Slots held by provider, counted from the executions."""
    held: dict[str, int] = {}
    for execution in await rows.rows(reader, ExecutionDoc):
        for provider in (execution.provider, execution.reserved):
            if provider:
                held[provider] = held.get(provider, 0) + 1
    return held


async def brief(reader: rows.Reader, workflow: Workflow) -> dict[str, Any]:
    """A live workflow: what runs, what asks, what failed."""
    calls = [_line(call) for call in await rows.calls(reader, workflow)]
    shown = [call for call in calls if call["phase"] != "sealed" or call.get("status") != "ok"]
    done = sum(call["phase"] == "sealed" for call in calls)
    return {**about(workflow), "done": done, "total": total(workflow, len(calls)), "calls": shown}


def total(workflow: Workflow, calls: int) -> str:
    """How many calls there are to be: a number where it is known, else what there is so far and a plus."""
    if workflow.planned is not None:
        return str(workflow.planned)
    return f"{calls}+" if workflow.status == "running" else str(calls)


async def summary(reader: rows.Reader, workflow: Workflow) -> dict[str, Any]:
    """An ended workflow in one line."""
    counts: dict[str, int] = {}
    for call in await rows.calls(reader, workflow):
        word = call.status or call.phase
        counts[word] = counts.get(word, 0) + 1
    if workflow.skipped:
        counts["skipped"] = len(workflow.skipped)
    return {**about(workflow), "calls": counts}


def _line(call: Call) -> dict[str, Any]:
    found: dict[str, Any] = {"key": call.key, "gen": call.generation, "agent": call.agent, "phase": call.phase}
    if call.status is not None and call.phase == "sealed":
        found["status"] = call.status
    if call.model is not None:
        found["model"] = call.model
    if call.question is not None and call.question.answered is None:
        found["question"] = {"to": f"{call.wid}/{call.key}", "text": call.question.text, "qid": call.question.qid}
    if call.waiting is not None:
        found["waiting"] = call.waiting.detail
    for name in ("hibernated", "held"):
        if getattr(call, name):
            found[name] = True
    if call.notes:
        found["notesPending"] = len(call.notes)
    return found


async def workflow_status(
    reader: rows.Reader,
    workflow: Workflow,
    *,
    key: str | None = None,
    full: bool = False,
    tail: int | None = None,
    grep: str | None = None,
) -> dict[str, Any]:
    """One workflow: outputs clipped, or whole with `full`, or one call's with `key`, or the lines that `tail` and
    `grep` choose. Raises `InvalidValue` for options that exclude each other and for a bad expression."""
    if (tail is not None or grep is not None) and (key is not None or full):
        raise InvalidValue("tail and grep go without key and full")
    if tail is not None and (type(tail) is not int or tail < 1):
        raise InvalidValue(f"tail counts lines from 1, it is not {tail!r}")
    pattern = None if grep is None else _compiled(grep)
    if key is not None and key not in workflow.calls:
        raise InvalidValue(f"{workflow.wid} has no call {key!r}", hint=", ".join(workflow.calls)[:500])
    calls = []
    for call in await rows.calls(reader, workflow):
        if key is not None and call.key != key:
            continue
        found = await describe_call(reader, call)
        if "output" in found and not full and key is None:
            output = found["output"]
            lines = tail is not None or pattern is not None
            found["output"] = excerpt(output, tail, pattern) if lines else clip(output)
        calls.append(found)
    return {**about(workflow), "result": workflow.result, "error": workflow.error, "calls": calls}


def clip(text: str, limit: int = CLIPPED) -> str:
    """Head and tail of a long text, with what is left out between."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters …]\n{text[-half:]}"


def excerpt(text: str, tail: int | None, pattern: re.Pattern[str] | None) -> str:
    """The last lines, those that match, or the last of those. The search ends after a time, and says so."""
    lines = text.splitlines()
    said = []
    if pattern is not None:
        if len(lines) > LINES:
            said.append(f"[{len(lines) - LINES} earlier lines not searched]")
            lines = lines[-LINES:]
        matching = matches(pattern, [line[:LINE] for line in lines])
        if matching is None:
            return "\n".join([*said, "[the search took too long and was cut off]"])
        lines = [lines[number] for number in matching]
    if tail is not None:
        lines = lines[-tail:]
    kept = "\n".join(lines)
    return "\n".join([*said, kept[-EXCERPT:]])


def matches(pattern: re.Pattern[str], lines: list[str]) -> list[int] | None:
    """The numbers of the lines that match; None if that takes too long. In a process that can be ended: an expression
    may take for ever on one line, and cannot be stopped from within."""
    given = json.dumps([pattern.pattern, lines])
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", SEARCH], input=given, capture_output=True, text=True,
            timeout=SEARCH_SECONDS, check=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return None
    found: list[int] = json.loads(done.stdout)
    return found


def _compiled(grep: str) -> re.Pattern[str]:
    try:
        return re.compile(grep)
    except re.error as error:
        raise InvalidValue(f"not a regular expression: {grep!r:.200}: {error}") from error
