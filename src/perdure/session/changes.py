"""What an open transaction has written so far."""

from perdure.base.ids import ConversationId, EntryId, SubmissionId, TaskId
from perdure.session.publication import DocumentKey
from perdure.storage.records import (
    Blob,
    Conversation,
    Document,
    DocumentCopy,
    Entry,
    Revision,
    Submission,
    Task,
    TaskWrite,
)


class Changes:
    """The writes of one transaction, by id, in order of writing."""

    __slots__ = ("blobs", "conversations", "copies", "documents", "entries", "revisions", "submissions", "tasks")

    def __init__(self) -> None:
        self.conversations: dict[ConversationId, Conversation] = {}
        self.entries: dict[EntryId, Entry] = {}
        self.tasks: dict[TaskId, TaskWrite] = {}
        self.submissions: dict[SubmissionId, Submission] = {}
        self.blobs: dict[str, Blob] = {}
        self.copies: list[DocumentCopy] = []
        self.documents: list[Document] = []
        """Documents of a fork that begin with a value of this very transaction; `revisions` holds it, side by side."""
        self.revisions: list[Revision] = []

    def task(self, id: TaskId) -> Task | None:
        """The task as this transaction wrote it."""
        write = self.tasks.get(id)
        return None if write is None else write.task

    @property
    def begins_documents(self) -> bool:
        """Whether a fork of this transaction begins with documents."""
        return bool(self.copies or self.documents)

    def begun_documents(self) -> list[Document]:
        """The documents that forks of this transaction begin with."""
        return [*(copy.target for copy in self.copies), *self.documents]

    def forget_document(self, key: DocumentKey) -> Document | None:
        """Take back what a fork of this transaction begins with; its record, or None where there was none."""
        for copy in self.copies:
            if key_of(copy.target) == key:
                self.copies.remove(copy)
                return copy.target
        for at, record in enumerate(self.documents):
            if key_of(record) == key:
                del self.documents[at], self.revisions[at]
                return record
        return None

    def __bool__(self) -> bool:
        return bool(
            self.entries
            or self.tasks
            or self.submissions
            or self.conversations
            or self.copies
            or self.documents
            or self.blobs
        )


def key_of(document: Document) -> DocumentKey:
    """What a document is found by."""
    return (document.kind, document.scope, document.scope_id, document.key)
