"""Fits stored tasks to the code that is installed now."""

import msgspec

from perdure.base import jsonvalue
from perdure.storage.records import Task
from perdure.tasks.definition import StoredTask, TaskCatalog, TaskDefinition
from perdure.tasks.states import Checkpoint, Pending, apply_state, state_of

Fitted = tuple[TaskDefinition, Task, bool]
"""The code, the record as that code understands it, and whether its input changed."""


def fit(catalog: TaskCatalog, record: Task) -> Fitted | str:
    """The code for a pending task and its record migrated to it; or why it is blocked. Never ends a task."""
    definition = catalog.task(record.kind)
    if definition is None:
        return f"no code for task kind {record.kind} is installed"
    if record.version > definition.version:
        return f"stored by version {record.version} of {record.kind}, installed is version {definition.version}"
    if record.version == definition.version:
        phase = state_of(record).checkpoint.phase
        if not definition.has_phase(phase):
            return (
                f"version {record.version} of {record.kind} was stored at phase {phase}, which the code does not have"
            )
        return definition, record, False
    return _migrate(definition, record)


def _migrate(definition: TaskDefinition, record: Task) -> Fitted | str:
    state = state_of(record)
    assert isinstance(state, Pending)
    if definition.migrate is None:
        return f"{record.kind} has no migrate from version {record.version} to {definition.version}"
    checkpoint = state.checkpoint
    stored = StoredTask(jsonvalue.decode(record.input), checkpoint.phase, dict(checkpoint.arguments))
    try:
        migrated = definition.migrate(stored, record.version)
        definition.decode_input(migrated.input)
        definition.phase(migrated.phase).decode(migrated.arguments)
        body = jsonvalue.encode(migrated.input)
    except Exception as error:
        return f"migrating {record.kind} from version {record.version} failed: {error}"
    state = Pending(Checkpoint(migrated.phase, migrated.arguments), state.wake, state.restarts, state.cut)
    record = msgspec.structs.replace(record, version=definition.version, input=body)
    return definition, apply_state(record, state), True
