"""Changing which agent a conversation has. Only names are stored."""

from typing import Any, get_args

from perdure.agent.documents import AgentDoc
from perdure.base.errors import InvalidValue
from perdure.base.ids import ConversationId
from perdure.extensions.resolve import stored_selection
from perdure.extensions.results import UNSET
from perdure.models.protocol import ThinkingLevel
from perdure.tasks.transaction import TaskTransaction

FIELDS = ("model", "thinking", "extensions", "tools", "instructions", "cwd")


async def configure(tx: TaskTransaction, conversation: ConversationId, **fields: Any) -> None:
    """Change the given fields; `UNSET` leaves one alone, None clears it back to the host's default."""
    changes = {name: value for name, value in fields.items() if value is not UNSET}
    unknown = changes.keys() - set(FIELDS)
    if unknown:
        raise InvalidValue(f"an agent has no field {sorted(unknown)[0]!r}", hint=f"fields: {', '.join(FIELDS)}")
    checked = {name: None if value is None else _checked(name, value) for name, value in changes.items()}
    if not checked:
        return
    value = await tx.doc(AgentDoc, conversation)
    for name, new in checked.items():
        if new is None:
            value.pop(name, None)
        else:
            value[name] = new


def _checked(name: str, value: Any) -> Any:
    if name in ("extensions", "tools"):
        return stored_selection(value, name)
    if not isinstance(value, str) or not value:
        raise InvalidValue(f"{name} is a text that is not empty, not {value!r}")
    if name == "model" and ":" not in value:
        raise InvalidValue(f"not a model name: {value!r}", hint="provider:model, such as openai:gpt-5")
    if name == "thinking" and value not in get_args(ThinkingLevel):
        raise InvalidValue(f"not a thinking level: {value!r}", hint=", ".join(get_args(ThinkingLevel)))
    return value
