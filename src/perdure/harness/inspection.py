"""What `inspect()` tells: the state of a session at one glance, from memory only."""

from typing import Any

from perdure.harness.reports import Reports
from perdure.session.session import Session
from perdure.storage.records import Task
from perdure.tasks.states import Completing, Sleeping, Terminal, state_of
from perdure.tasks.tasks import Tasks


def inspection(session: Session[Any], tasks: Tasks, reports: Reports) -> dict[str, Any]:
    """Live tasks with what they wait for, blocked ones with the reason, the line, recent reports."""
    now = session.clock.now()
    scheduler = tasks.scheduler
    live = []
    for task in sorted(tasks.index.tasks.values(), key=lambda task: task.id):
        row: dict[str, Any] = {
            "id": task.id,
            "kind": task.kind,
            "conversation": task.conversation,
            "status": task.status,
            "owner": task.owner,
        }
        if isinstance(task, Task):  # what an open read only lightly has its phase in the store
            state = state_of(task)
            if not isinstance(state, Completing | Terminal):
                row["phase"] = state.checkpoint.phase
            if isinstance(state, Sleeping) and state.signals:
                row["signals"] = [[key.signal, key.key] for key in state.signals]
        if owned := tasks.index.owned_conversations(task.id):
            row["conversations"] = sorted(owned)
        if task.background:
            row["background"] = True
        if task.abort_requested:
            row["abort_requested"] = True
        if task.on:
            row["waits_for"] = list(task.on)
        if task.deadline is not None:
            row["until"] = task.deadline / 1000
        if task.id in scheduler.blocked:
            row["blocked"] = scheduler.blocked[task.id]
        if task.id in scheduler.invocations and task.abort_requested:
            row["cleans_up" if scheduler.invocations[task.id].in_abort else "ignores_cancellation"] = True
        if task.id in tasks.host.asking:
            gate, since = tasks.host.asking[task.id]
            row["gate"] = {"name": gate, "seconds": max(0.0, now - since)}
        live.append(row)
    wake = tasks.wake()
    return {
        "location": session.storage.location,
        "now": now,
        "seq": session.seq,
        "epoch": session.epoch,
        "scheduling": scheduler.active,
        "wake": {"active": wake.active, "at": wake.at},
        "tasks": live,
        "line": session.line.long_hold(),
        "reports": list(reports.kept),
    }
