"""What a parent is told of an ended workflow: status and result of each call, long ones by their ends."""

from typing import Any, Final

import msgspec

from perdure.subagents import rows
from perdure.subagents.names import generation_of
from perdure.subagents.state import Call, ResultDoc, Workflow

NOTICE_LENGTH: Final = 6000
OVERHEAD: Final = 160


async def finished_text(reader: rows.Reader, workflow: Workflow, only: str | None = None) -> str:
    """At most `NOTICE_LENGTH` characters; errors and usage always survive."""
    calls = [call for call in await rows.calls(reader, workflow) if only in (None, call.key)]
    name = workflow.name or workflow.wid
    head = (
        f"Workflow {name} ({workflow.wid}): {workflow.status}" if only is None else f"{workflow.wid}/{only} has ended"
    )
    if workflow.error and only is None:
        head += f": {workflow.error}"
    parts: list[tuple[str, str]] = []
    for call in calls:
        result = await rows.read(reader, ResultDoc, generation_of(call.wid, call.key, call.generation))
        parts.append((_title(call, result), _body(result)))
    parts += [(f"{key}: skipped", "") for key in workflow.skipped if only is None]
    room = max(0, NOTICE_LENGTH - len(head) - sum(len(title) + OVERHEAD for title, _ in parts))
    shown = fair([body for _, body in parts], room)
    lines = [head]
    for (title, body), kept in zip(parts, shown, strict=True):
        cut = "" if kept == body else f"[the last {len(kept)} of {len(body)} characters; status shows all]\n"
        lines.append(f"- {title}" + (f"\n{cut}{kept}" if kept else ""))
    return "\n".join(lines)


def _title(call: Call, result: Any) -> str:
    if result is None:
        return f"{call.key}@{call.generation}: going on"
    usage = result.usage
    error = f": {result.error[:300]}" if result.error else ""
    edits = "; what it edited stays as it is" if result.status == "stopped" else ""
    spent = f" ({usage.input} in, {usage.output} out" + (f", ${usage.cost_usd:.4f})" if usage.cost_usd else ")")
    return f"{call.key}@{call.generation}: {result.status}{error}{edits}{spent}"


def _body(result: Any) -> str:
    if result is None:
        return ""
    if result.data is not None:
        return msgspec.json.encode(result.data).decode()
    return str(result.output)


def fair(texts: list[str], room: int) -> list[str]:
    """Share the room: short texts are whole, long ones keep their tails."""
    left, shown = room, [""] * len(texts)
    for place, (length, number) in enumerate(sorted((len(text), number) for number, text in enumerate(texts))):
        share = left // (len(texts) - place)
        shown[number] = texts[number] if length <= share else texts[number][length - share :] if share else ""
        left -= len(shown[number])
    return shown
