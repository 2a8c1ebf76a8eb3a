"""What is in memory of a file: where each record stands, and by what it is found. Contents stay in the file.

The index is built by reading lines, the same way at an open and after each commit, so both always agree.
"""

from collections.abc import Callable

import msgspec

from perdure.base.errors import StorageCorrupt
from perdure.storage.jsonl import content
from perdure.storage.jsonl.content import EntryKeys, StoredBlob, decoded
from perdure.storage.jsonl.documents import DocumentIndex, Step
from perdure.storage.jsonl.lines import Placed, placed, read
from perdure.storage.jsonl.sorted import Groups, Ids, Places
from perdure.storage.jsonl.work import SubmissionIndex, TaskIndex
from perdure.storage.records import Conversation, Document, DocumentCopy

Fetch = Callable[[int, int], bytes]
"""Bytes of the file: offset and length."""


class Index:
    """Everything of one file, up to some length of it."""

    def __init__(self, fetch: Fetch) -> None:
        self.next_id = 1
        self.seq = 0
        self.epoch = 0
        self.durability = ""
        self.boot = ""
        self.conversations: dict[int, Conversation] = {}
        self.conversation_ids = Ids()
        self.owned: Groups[int] = Groups()
        self.entries = Places()
        self.entries_of: Groups[int] = Groups()
        self.heads_of: Groups[int] = Groups()
        self.tasks = TaskIndex(fetch)
        self.submissions = SubmissionIndex(fetch)
        self.documents = DocumentIndex()
        self.blobs: dict[str, StoredBlob] = {}
        self._small = 0

    @property
    def used(self) -> int:
        """Bytes of the file that a rewritten one would hold as well."""
        return (
            self._small + self.entries.bytes + self.tasks.bytes + self.submissions.places.bytes + self.documents.bytes
        )

    def take(self, text: bytes, start: int) -> None:
        """A whole line that begins at `start`. Raises `StorageCorrupt` for one that does not follow."""
        line = read(text)
        begins = line.epoch > 0
        if begins and self.seq and line.seq != self.seq:
            raise StorageCorrupt(f"opened at commit {line.seq} behind commit {self.seq}")
        if line.seq and not begins and line.seq != self.seq + 1:
            raise StorageCorrupt(f"commit {line.seq} stands behind commit {self.seq}")
        for record in placed(line, text, start):
            self._take(record)
        if line.next:
            self.seq, self.next_id = line.seq, line.next
        if begins:
            self.epoch, self.durability, self.boot = line.epoch, line.durability, line.boot

    def _take(self, record: Placed) -> None:
        section, raw, offset, length = record
        if section == "entries":
            keys = decoded(raw, EntryKeys)
            self.entries.put(keys.id, offset, length)
            self.entries_of.add(keys.conversation, keys.id)
            if keys.head is not None:
                self.heads_of.add(keys.conversation, keys.id)
        elif section == "tasks":
            self.tasks.take(decoded(raw, content.StoredTask), offset, length)
        elif section == "submissions":
            self.submissions.take(decoded(raw, content.StoredSubmission), offset, length)
        elif section == "revisions":
            revision = decoded(raw, content.StoredRevision)
            self.documents.take_revision(revision.document, Step(revision.seq, revision.base, offset, length))
        else:
            self._small += length
            self._take_small(section, raw)

    def _take_small(self, section: str, raw: msgspec.Raw) -> None:
        """Records that are kept in memory whole."""
        if section == "conversations":
            conversation = decoded(raw, Conversation)
            self.conversations[conversation.id] = conversation
            self.conversation_ids.add(conversation.id)
            if conversation.owner is not None:
                self.owned.add(conversation.owner, conversation.id)
        elif section == "documents":
            self.documents.take(decoded(raw, Document))
        elif section == "copies":
            self.documents.take_copy(decoded(raw, DocumentCopy))
        else:
            blob = decoded(raw, StoredBlob)
            self.blobs[blob.digest] = blob
