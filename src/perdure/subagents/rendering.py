"""Status and events as lines for people. Text of models and tools comes without control characters."""

import json
import time
from typing import Any

from perdure.base.text import printable
from perdure.subagents.state import Event

LABELS = 60


def brief_lines(found: dict[str, Any]) -> list[str]:
    """The brief status."""
    lines = [_orchestrator(found["orchestrator"])]
    if found.get("config"):
        lines.append(f"settings: {found['config']['digest']}, in effect since {_clock(found['config']['since'])}")
    if found.get("config_problem"):
        lines.append(f"config.json is not in effect: {found['config_problem']}")
    for one in found["exhausted"]:
        lines.append(f"used up: {one['provider']}, next try {_clock(one['next_try'])}: {one['error']}")
    for workflow in found["live"]:
        lines.append(f"{_name(workflow)}  {_state(workflow)}  {workflow['done']}/{workflow['total']} done")
        for call in workflow["calls"]:
            lines += call_lines(workflow["wid"], call)
    if not found["live"]:
        lines.append("nothing runs")
    for workflow in found["recent"]:
        counts = ", ".join(f"{count} {word}" for word, count in workflow["calls"].items())
        lines.append(f"{_name(workflow)}  {workflow['status']}  {counts}")
    if found["slots"]:
        lines.append("slots held: " + ", ".join(f"{provider} {held}" for provider, held in found["slots"].items()))
    return [printable(line) for line in lines]


def workflow_lines(found: dict[str, Any]) -> list[str]:
    """One workflow with its calls."""
    lines = [f"{_name(found)}  {_state(found)}"]
    if found.get("error"):
        lines.append(f"  error: {found['error']}")
    for call in found["calls"]:
        lines += call_lines(found["wid"], call)
        for name in ("output", "data"):
            if call.get(name) not in (None, ""):
                text = call[name] if isinstance(call[name], str) else json.dumps(call[name], ensure_ascii=False)
                lines += [f"    {line}" for line in text.splitlines()]
    return [printable(line) for line in lines]


def call_lines(wid: str, call: dict[str, Any]) -> list[str]:
    """A call: what it does, why it waits, what it asks."""
    what = call.get("status") or call["phase"]
    for flag, word in (("hibernated", "hibernated"), ("held", "held"), ("paused", "paused")):
        if call.get(flag):
            what += f", {word}"
    line = f"  {call['key']}@{call['gen']}  {what}  {call['agent']}"
    if call.get("model"):
        line += f"  {call['model']}"
    if call.get("notesPending"):
        line += f"  {call['notesPending']} notes pending"
    lines = [line]
    if call.get("error"):
        lines.append(f"    error: {call['error']}")
    waiting = call.get("waiting")
    if waiting:
        lines.append(f"    {waiting if isinstance(waiting, str) else waiting['detail']}")
    question = call.get("question")
    if question and not question.get("answered"):
        lines.append(f"    asks: {question['text']}")
        lines.append(f"    perdure agents send answer --to {wid}/{call['key']} --message …")
    return lines


def event_line(event: Event) -> str:
    """An event of a timeline."""
    where = event.call or event.wid or ""
    data = " ".join(f"{name}={_short(value)}" for name, value in event.data.items())
    return printable(f"{_clock(event.at)} {event.type:<13} {where} {data}".rstrip())


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else text[:199] + "…"


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))


def _name(workflow: dict[str, Any]) -> str:
    labels = " ".join(f"{name}={value}" for name, value in workflow.get("labels", {}).items())[:LABELS]
    calls = workflow.get("calls")
    agents = sorted({str(call["agent"]) for call in calls}) if isinstance(calls, list) else []
    shown = workflow.get("name") or labels or (agents[0] if len(agents) == 1 else "")
    return f"{workflow['wid']}" + (f" ({shown})" if shown else "")


def _state(workflow: dict[str, Any]) -> str:
    held = ", held" if workflow.get("held") else ""
    reason = f": {workflow['reason']}" if workflow.get("reason") else ""
    return f"{workflow['status']}{held}{reason}"


def _orchestrator(card: dict[str, Any] | None) -> str:
    if card is None:
        return "orchestrator: not running"
    return f"orchestrator: {card['version']} (pid {card['pid']})"
