"""When nothing is heard of a call, its parent is told once; and once more when it moves again."""

from typing import Final

from perdure import TaskTransaction
from perdure.env.containment import marked
from perdure.subagents import rows
from perdure.subagents.engine.activity import Activity
from perdure.subagents.engine.processes import EXECUTION_VARIABLE
from perdure.subagents.names import call_of
from perdure.subagents.notices import put_notice, resolve_notices
from perdure.subagents.state import Call, Waiting, Workflow
from perdure.subagents.waiting import moves, waits

CPU_SECONDS: Final = 2.0
"""Before anybody is told of silence, the processor time of the call's processes is compared over so long."""
SHOWN: Final = 300


def processor_ticks(execution: str) -> int:
    """What the processes of an execution have used so far: proc(5), fields 14 and 15. Blocking, milliseconds."""
    total = 0
    for process in marked(EXECUTION_VARIABLE, execution):
        try:
            with open(f"/proc/{process.pid}/stat", "rb") as file:
                text = file.read()
        except OSError:
            continue  # it has ended
        fields = text[text.rindex(b")") + 2 :].split()
        total += int(fields[11]) + int(fields[12])
    return total


def silence_text(activity: Activity, now: float) -> str:
    """What is told of a call that is silent."""
    if activity.stuck_since() is not None and activity.retrying is not None:
        minutes = (now - activity.progress) / 60
        return f"no output for {minutes:.0f} min, the request is tried again: {activity.retrying[:SHOWN]}"
    minutes = (now - activity.heard) / 60
    command = activity.command(now)
    return f"nothing heard for {minutes:.0f} min" + (f"; {command} is running" if command else "")


async def raise_silence(tx: TaskTransaction, workflow: Workflow, call: Call, text: str) -> bool:
    """Tell of it, unless the call is held or waits for something else. True if it was told."""
    if workflow.held or call.phase == "sealed" or call.waiting is not None:
        return False
    await waits(tx, workflow, call, Waiting(reason="silent", detail=text, since=tx.now_millis / 1000))
    await rows.put_call(tx, call)
    await put_notice(tx, workflow, "stall", f"{call_of(call.wid, call.key)}: {text}", key=call.key)
    return True


async def end_silence(tx: TaskTransaction, workflow: Workflow, call: Call) -> None:
    """It moves again."""
    if call.waiting is None or call.waiting.reason != "silent":
        return
    await moves(tx, workflow, call)
    await rows.put_call(tx, call)
    await resolve_notices(tx, call.wid, "recovered", key=call.key, kinds=("stall",))
