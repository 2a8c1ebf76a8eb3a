"""What one commit changed. Made once, immutable, handed to everyone in commit order."""

import msgspec

from perdure.base.delta import Operation
from perdure.base.jsonvalue import Json
from perdure.storage.records import Conversation, Document, Entry, LiveTask, Scope, Submission, Task

DocumentKey = tuple[str, Scope, int, str | None]
"""Kind, scope, scope id, member key."""


class DocumentChange(msgspec.Struct, frozen=True, gc=False):
    """One document's step: the operations and the value after them; `value` None with `retired`."""

    key: DocumentKey
    document: Document
    version: int
    value: Json
    ops: list[Operation]
    retired: bool = False


class TaskChange(msgspec.Struct, frozen=True, gc=False):
    """One task before (None: it is new) and after."""

    before: Task | LiveTask | None
    after: Task


class Publication(msgspec.Struct, frozen=True, gc=False):
    """Everything one commit changed. Values are shared: nobody may change them."""

    epoch: int
    seq: int
    conversations: list[Conversation]
    entries: list[Entry]
    tasks: list[TaskChange]
    submissions: list[Submission]
    documents: list[DocumentChange]
