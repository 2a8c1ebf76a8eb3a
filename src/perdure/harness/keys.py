"""Conversations by names of the host's own: creating under a key twice gives the first."""

from typing import Any, TypedDict

from perdure.base import jsonvalue
from perdure.base.errors import InvalidValue
from perdure.base.ids import ConversationId
from perdure.session.documents import Document
from perdure.session.session import Session
from perdure.tasks.transaction import TaskTransaction


class KeyValue(TypedDict):
    """What a key stands for."""

    conversation: int


class KeysValue(TypedDict):
    """Conversation ids by key, all in one."""

    conversations: dict[str, int]


KeyDoc: Document[Any] = Document("perdure.key", KeyValue, scope="session", family=True)
"""One document for each key: taking the ten-thousandth costs what the first one cost."""
KeysDoc: Document[Any] = Document("perdure.keys", KeysValue, scope="session", initial=lambda: {"conversations": {}})
"""Where earlier versions kept them; read, never written."""


def check_key(key: Any) -> None:
    """Refuse what is no key."""
    if not isinstance(key, str) or not key or not jsonvalue.is_strict(key):
        raise InvalidValue(f"a conversation's key is a well-formed text that is not empty, not {key!r}")


async def under_key(reader: TaskTransaction | Session[Any], key: str) -> ConversationId | None:
    """The conversation that was created under the key; None if there is none."""
    found: Any = await reader.value_of(KeyDoc, key=key)
    if found is not None:
        return ConversationId(found["conversation"])
    earlier: Any = await reader.value_of(KeysDoc)
    id = None if earlier is None else earlier["conversations"].get(key)
    return None if id is None else ConversationId(id)


async def take_key(tx: TaskTransaction, key: str, conversation: ConversationId) -> None:
    """Let the key stand for the conversation, in this commit."""
    await tx.set(KeyDoc, None, {"conversation": conversation}, key=key)
