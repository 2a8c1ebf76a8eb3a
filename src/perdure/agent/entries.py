"""The built-in kinds of entries. Their messages are all they hold, so they are stored once."""

from typing import Any, ClassVar, Final

import msgspec

from perdure.base.errors import InvalidValue
from perdure.base.ids import ConversationId, EntryId, TaskId
from perdure.models.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolResultMessage,
    UserMessage,
    decode_messages,
    encode_messages,
)
from perdure.session.transaction import Transaction
from perdure.storage.records import Entry


class _NoData:
    """A built-in entry holds nothing beside its message."""

    def to_json(self, value: Any) -> None:
        return None


class _MessageKind:
    """Reads a built-in entry back from its one message (see `perdure.session.entries.EntryKind`)."""

    codec: Final = _NoData()

    def __init__(self, kind: str, cls: Any) -> None:
        self.kind = kind
        self.version = 1
        self._class = cls

    def read(self, entry: Entry) -> Any:
        """The typed entry."""
        if entry.kind != self.kind:
            raise InvalidValue(f"entry {entry.id} is a {entry.kind}, not a {self.kind}")
        messages = decode_messages(entry.messages)
        return self._class(messages[0] if messages else None)


class UserEntry(msgspec.Struct, frozen=True):
    """What a person or program said."""

    message: UserMessage
    KIND: ClassVar[str] = "perdure.user"


class AssistantEntry(msgspec.Struct, frozen=True):
    """One response of a model; cut-off and failed ones are kept too (`message.stop`)."""

    message: AssistantMessage
    KIND: ClassVar[str] = "perdure.assistant"


class ToolResultEntry(msgspec.Struct, frozen=True):
    """The result of one tool call."""

    message: ToolResultMessage
    KIND: ClassVar[str] = "perdure.tool_result"


class SystemEntry(msgspec.Struct, frozen=True):
    """A change of the system prompt or of the offered tools."""

    message: SystemMessage
    KIND: ClassVar[str] = "perdure.system"


class SummaryEntry(msgspec.Struct, frozen=True):
    """A summary that stands for the older messages; it carries the head."""

    message: UserMessage
    KIND: ClassVar[str] = "perdure.summary"


class ResetEntry(msgspec.Struct, frozen=True):
    """A new beginning, with the note it begins from, if any."""

    message: UserMessage | None
    KIND: ClassVar[str] = "perdure.reset"


def _to_model(self: Any) -> list[Message]:
    return [] if self.message is None else [self.message]


def _define(cls: Any) -> None:
    cls.__perdure_entry__ = _MessageKind(cls.KIND, cls)
    cls.to_model = _to_model


for _class in (UserEntry, AssistantEntry, ToolResultEntry, SystemEntry, SummaryEntry, ResetEntry):
    _define(_class)


def put(
    tx: Transaction,
    conversation: ConversationId,
    kind: type[Any],
    message: Message,
    *,
    task: TaskId | None = None,
    head: EntryId | bool | None = None,
    data: Any = None,
) -> EntryId:
    """Append a built-in entry."""
    return tx.put_entry(
        conversation,
        kind.KIND,
        messages=encode_messages([message]),
        data=b"null" if data is None else msgspec.json.encode(data),
        task=task,
        head=head,
    )
