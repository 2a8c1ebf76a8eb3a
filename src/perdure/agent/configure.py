"""Changing which agent a conversation has. Only names are stored."""

from typing import Any, get_args

from perdure.agent.documents import AgentDoc
from perdure.agent.settings import stored_budget
from perdure.base import jsonvalue
from perdure.base.errors import InvalidValue
from perdure.base.ids import ConversationId
from perdure.extensions.resolve import stored_selection
from perdure.extensions.results import UNSET
from perdure.models.protocol import ThinkingLevel
from perdure.tasks.transaction import TaskTransaction

FIELDS = ("model", "thinking", "extensions", "tools", "instructions", "cwd", "budget")


async def configure(tx: TaskTransaction, conversation: ConversationId, **fields: Any) -> None:
    """Change the given fields; `UNSET` leaves one alone, None clears it back to the host's default."""
    changes = {name: value for name, value in fields.items() if value is not UNSET}
    unknown = changes.keys() - set(FIELDS)
    if unknown:
        raise InvalidValue(f"an agent has no field {sorted(unknown)[0]!r}", hint=f"fields: {', '.join(FIELDS)}")
    checked = {name: None if value is None else _checked(name, value) for name, value in changes.items()}
    if not checked:
        return
    await begin_as_owner(tx, conversation)
    value = await tx.doc(AgentDoc, conversation)
    for name, new in checked.items():
        if new is None:
            value.pop(name, None)
        else:
            value[name] = new


async def begin_owned(tx: TaskTransaction) -> None:
    """Commit rule: conversations that this transaction creates for a task begin with its agent."""
    for conversation in list(tx.changes.conversations):
        await begin_as_owner(tx, conversation)


async def begin_as_owner(tx: TaskTransaction, conversation: ConversationId) -> None:
    """Give a conversation that was created just now the agent of the task that owns it, as a copy. A fork keeps its
    parent's; one that has an agent already is left alone."""
    made = tx.changes.conversations.get(conversation)
    if made is None or made.owner is None or made.parent is not None:
        return
    owner = tx.live_task(made.owner)
    if owner is None or await tx.value_of(AgentDoc, conversation) is not None:
        return
    stored: Any = await tx.value_of(AgentDoc, owner.conversation)
    if stored:
        value = await tx.doc(AgentDoc, conversation)
        value.update(jsonvalue.decode(jsonvalue.encode(stored)))


def _checked(name: str, value: Any) -> Any:
    if name in ("extensions", "tools"):
        return stored_selection(value, name)
    if name == "budget":
        return stored_budget(value)
    if not isinstance(value, str) or not value:
        raise InvalidValue(f"{name} is a text that is not empty, not {value!r}")
    if name == "model" and ":" not in value:
        raise InvalidValue(f"not a model name: {value[:80]!r}", hint="provider:model, such as openai:gpt-5")
    if name == "thinking" and value not in get_args(ThinkingLevel):
        raise InvalidValue(f"not a thinking level: {value[:80]!r}", hint=", ".join(get_args(ThinkingLevel)))
    return value


async def add_tools(tx: TaskTransaction, conversation: ConversationId, names: list[str]) -> None:
    """Put tools on offer beside those that are, from the next request on; a later `configure(tools=…)` counts more."""
    stored: Any = await tx.value_of(AgentDoc, conversation)
    selection = None if stored is None else stored.get("tools")
    if selection is None:
        return  # every tool of the selected extensions is on offer
    value = await tx.doc(AgentDoc, conversation)
    if isinstance(selection, list):
        value["tools"] = list(dict.fromkeys([*selection, *names]))
    else:
        value["tools"] = {**selection, "remove": [name for name in selection.get("remove", ()) if name not in names]}
