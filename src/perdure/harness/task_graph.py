"""The live task graph of a session: what runs, what waits or sleeps and on what, who owns whom, as committed."""

import asyncio
from typing import Any, Final

from perdure.base.delta import Operation
from perdure.base.ids import TaskId
from perdure.base.jsonvalue import Json
from perdure.harness.feed import Step
from perdure.harness.questions import questions_of, shown
from perdure.session.publication import Publication
from perdure.session.session import Session
from perdure.storage.protocol import Storage
from perdure.storage.records import LiveTask, Task
from perdure.tasks.states import Sleeping, Waiting, state_of
from perdure.tasks.transaction import TaskTransaction

PAGE: Final = 200
"""Tasks read at once: a few milliseconds, after which others get their turn."""


class TaskGraphSource:
    """`{"tasks": {"12": {…}}}`: every task that has not ended, by its id. See docs/views.md."""

    name = "tasks"

    def __init__(self, session: Session[TaskTransaction]) -> None:
        self._session = session
        self._tasks: dict[TaskId, Task | LiveTask] = {}
        self._seq = 0

    async def begin(self, tx: TaskTransaction) -> None:
        """Note which tasks live; what an open read only lightly is looked up later, it has not changed since."""
        self._tasks = dict(self._session.store.working.tasks)
        self._seq = tx.seq - 1

    async def load(self, storage: Storage) -> Json:
        """The rows of the tasks that lived at the moment."""
        whole = await self._whole_records(storage)
        rows: dict[str, Json] = {}
        for number, (id, task) in enumerate(sorted(self._tasks.items())):
            rows[str(id)] = task_row(whole.get(id, task), await self._conversations(storage, id))
            if number % PAGE == PAGE - 1:
                await asyncio.sleep(0)
        return {"tasks": rows}

    async def _whole_records(self, storage: Storage) -> dict[TaskId, Task]:
        light = {id for id, task in self._tasks.items() if isinstance(task, LiveTask)}
        found: dict[TaskId, Task] = {}
        cursor = 0
        while len(found) < len(light):
            page = await storage.scan_tasks(live=True, cursor=cursor, limit=PAGE)
            found.update((task.id, task) for task in page if task.id in light)
            if len(page) < PAGE:
                break
            cursor = page[-1].id
            await asyncio.sleep(0)
        return found

    async def _conversations(self, storage: Storage, owner: TaskId) -> list[int]:
        owned: list[int] = []
        cursor = 0
        while page := await storage.scan_conversations(owner=owner, cursor=cursor, limit=PAGE):
            owned.extend(conversation.id for conversation in page if conversation.seq <= self._seq)
            if len(page) < PAGE:
                break
            cursor = page[-1].id
        return owned

    def step(self, value: Json, publication: Publication) -> Step | None:
        """The rows that a commit changes."""
        rows = dict(value["tasks"])
        ops: list[Operation] = []
        for change in publication.tasks:
            key, task = str(change.after.id), change.after
            old = rows.get(key)
            if task.status == "terminal":
                if old is not None:
                    del rows[key]
                    ops.append({"op": "remove", "path": f"/tasks/{key}"})
            elif old is None:
                rows[key] = task_row(task, [])
                ops.append({"op": "add", "path": f"/tasks/{key}", "value": rows[key]})
            else:
                rows[key] = new = task_row(task, old["conversations"])
                ops.extend(
                    {"op": "replace", "path": f"/tasks/{key}/{field}", "value": new[field]}
                    for field in new
                    if new[field] != old[field]
                )
        for conversation in publication.conversations:
            key = str(conversation.owner)
            if key in rows:
                rows[key] = {**rows[key], "conversations": [*rows[key]["conversations"], conversation.id]}
                ops.append({"op": "add", "path": f"/tasks/{key}/conversations/-", "value": conversation.id})
        return Step({"tasks": rows}, ops, [], []) if ops else None


def task_row(task: Task | LiveTask, conversations: list[int]) -> dict[str, Any]:
    """What the graph shows of a task."""
    state = state_of(task) if isinstance(task, Task) else None
    checkpoint = getattr(state, "checkpoint", None)
    return {
        "id": task.id,
        "kind": task.kind,
        "conversation": task.conversation,
        "owner": task.owner,
        "status": task.status,
        "phase": None if checkpoint is None else checkpoint.phase,
        "waits_for": list(task.on),
        "policy": state.policy if isinstance(state, Waiting) else None,
        "until": None if task.deadline is None else task.deadline / 1000,
        "signals": [[key.signal, key.key] for key in state.signals] if isinstance(state, Sleeping) else [],
        "questions": [shown(question) for question in questions_of(task)],
        "background": task.background,
        "abort_requested": task.abort_requested,
        "conversations": conversations,
    }
