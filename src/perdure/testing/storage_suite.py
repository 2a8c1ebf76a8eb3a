"""What the cases of the storage suite share: the store under test, and a script that writes commits into it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar

import pytest_asyncio

from perdure.base.ids import ConversationId, DocumentId, EntryId, SubmissionId, TaskId
from perdure.storage.protocol import Storage
from perdure.storage.records import (
    Batch,
    Conversation,
    Document,
    Entry,
    Revision,
    Scope,
    Submission,
    Task,
    TaskWrite,
)
from perdure.testing.reopening import ReopeningStorage

ODD_TEXTS = (
    "",
    "plain",
    "nul \x00 inside",
    "\x00",
    "Ünïcödé",
    "日本語",
    "👩‍👩‍👧‍👦",
    "\u2028\ufffd\U0010ffff",
    "quote ' \" ;-- %",
)
"""Texts that a store must give back as they are."""


class Script:
    """Writes commits and counts ids and seqs as a session does."""

    def __init__(self, storage: Storage, *, seq: int = 0, next_id: int = 1) -> None:
        self.storage = storage
        self.seq = seq
        self.next_id = next_id

    def mint(self) -> int:
        """The next id."""
        self.next_id += 1
        return self.next_id - 1

    def batch(self, **parts: Any) -> Batch:
        """The next commit, not yet written."""
        return Batch(self.seq + 1, self.next_id, **parts)

    async def commit(self, **parts: Any) -> int:
        """Write the next commit."""
        written = await self.storage.commit(self.batch(**parts))
        assert written == self.seq + 1
        self.seq = written
        return written

    def conversation(self, **fields: Any) -> Conversation:
        """A new conversation."""
        return Conversation(ConversationId(self.mint()), self.seq + 1, **fields)

    def entry(self, conversation: int, **fields: Any) -> Entry:
        """A new entry."""
        given = {"kind": "user", "version": 1, **fields}
        return Entry(EntryId(self.mint()), ConversationId(conversation), self.seq + 1, **given)

    def task(self, conversation: int, **fields: Any) -> Task:
        """A new task."""
        given = {"kind": "work", "version": 1, "status": "pending", "input": b"{}", "state": b"{}", **fields}
        return Task(TaskId(self.mint()), ConversationId(conversation), **given)

    def submission(self, conversation: int, **fields: Any) -> Submission:
        """A new submission."""
        given = {"status": "queued", "kind": "input", "content": b'"hi"', "digest": b"\x01\x02", **fields}
        return Submission(SubmissionId(self.mint()), ConversationId(conversation), **given)

    def document(self, scope: Scope = "session", scope_id: int = 0, **fields: Any) -> Document:
        """A new document."""
        given = {"kind": "plan", "key": None, "rewindable": False, "fork": "initial", **fields}
        return Document(id=DocumentId(self.mint()), scope=scope, scope_id=scope_id, created=self.seq + 1, **given)

    def base(self, document: Document, body: bytes, version: int = 1) -> Revision:
        """A whole value, in the next commit."""
        return Revision(document.id, self.seq + 1, True, version, body)

    def delta(self, document: Document, body: bytes, version: int = 1) -> Revision:
        """Operations, in the next commit."""
        return Revision(document.id, self.seq + 1, False, version, body)


def created(*tasks: Task) -> list[TaskWrite]:
    """Writes of new tasks."""
    return [TaskWrite(task, True) for task in tasks]


def updated(*tasks: Task) -> list[TaskWrite]:
    """Writes of tasks whose input is as it was."""
    return [TaskWrite(task, False) for task in tasks]


class StorageSuite:
    """The store under test. `make_storage` is the one thing that a user of the suite writes."""

    reopen: ClassVar[bool] = False
    """Close and open the store after every commit."""

    def make_storage(self, folder: Path) -> Storage:
        """A closed store in the folder, which is empty at first. The same folder means the same store."""
        raise NotImplementedError("a subclass of StorageConformance says how its store is made")

    @pytest_asyncio.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[Storage]:
        """The open store."""
        made: Storage = self.make_storage(tmp_path)
        if self.reopen:
            made = ReopeningStorage(lambda: self.make_storage(tmp_path))
        await made.open()
        yield made
        await made.close()

    @pytest_asyncio.fixture
    async def script(self, store: Storage) -> Script:
        """A script on the open store, with the root conversation written."""
        script = Script(store)
        await script.commit(conversations=[script.conversation()])
        return script
