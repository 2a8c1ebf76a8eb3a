"""Conversations by names of the host's own: creating under a key twice gives the first."""

from typing import Any, TypedDict

from perdure.session.documents import Document


class KeysValue(TypedDict):
    """Conversation ids by key."""

    conversations: dict[str, int]


KeysDoc: Document[Any] = Document("perdure.keys", KeysValue, scope="session", initial=lambda: {"conversations": {}})
