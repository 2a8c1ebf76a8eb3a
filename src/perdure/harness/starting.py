"""Tasks that a host starts from outside, exactly once under a request id."""

from typing import Any, TypedDict

from perdure.base import jsonvalue
from perdure.base.digest import sha256
from perdure.base.errors import InvalidValue, RequestConflict
from perdure.base.ids import ConversationId, TaskId
from perdure.session.documents import Document
from perdure.tasks.definition import task_definition
from perdure.tasks.transaction import TaskTransaction


class StartedValue(TypedDict):
    """What a request id stands for: the task, and what was asked for."""

    task: int
    kind: str
    input: str
    """A digest."""
    conversation: int
    background: bool


StartedDoc: Document[Any] = Document("perdure.started", StartedValue, scope="session", family=True)
"""One document for each request id: taking the ten-thousandth costs what the first one cost."""


async def start(
    tx: TaskTransaction, task: Any, conversation: ConversationId, *, background: bool, request_id: Any
) -> TaskId:
    """Create a task, or find the one that was created under the request id (see `Harness.start`)."""
    if request_id is None:
        return tx.create_task(task, conversation=conversation, background=background)
    if not isinstance(request_id, str) or not request_id or not jsonvalue.is_strict(request_id):
        raise InvalidValue(f"a request id is a well-formed text that is not empty, not {request_id!r}")
    definition = task_definition(task)
    asked = {
        "kind": definition.kind,
        "input": sha256(jsonvalue.canonical(definition.encode_input(task))).hex(),
        "conversation": conversation,
        "background": background,
    }
    first: Any = await tx.value_of(StartedDoc, key=request_id)
    if first is not None:
        if {name: first[name] for name in asked} != asked:
            raise RequestConflict(f"request id {request_id!r} stands for another task", hint="use another id")
        return TaskId(first["task"])
    id = tx.create_task(task, conversation=conversation, background=background)
    await tx.set(StartedDoc, None, {"task": id, **asked}, key=request_id)
    return id
