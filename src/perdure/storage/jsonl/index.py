"""What is in memory of a file: where each record stands, and by what it is found. Contents stay in the file.

The index is built by reading lines, the same way at an open and after each commit, so both always agree.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from perdure.base.errors import StorageCorrupt
from perdure.storage.jsonl.content import EntryKeys, RevisionKeys, StoredBlob
from perdure.storage.jsonl.documents import DocumentIndex, Step
from perdure.storage.jsonl.lines import BODY, SECTIONS, Line, first_at, read
from perdure.storage.jsonl.sorted import Groups, Ids, Places
from perdure.storage.jsonl.work import SubmissionIndex, TaskIndex
from perdure.storage.records import Conversation, Document, DocumentCopy

Fetch = Callable[[int, int], bytes]
"""Bytes of the file: offset and length."""

_conversation: Final = msgspec.json.Decoder(Conversation).decode
_entry_keys: Final = msgspec.json.Decoder(EntryKeys).decode
_document: Final = msgspec.json.Decoder(Document).decode
_copy: Final = msgspec.json.Decoder(DocumentCopy).decode
_revision_keys: Final = msgspec.json.Decoder(RevisionKeys).decode
_blob: Final = msgspec.json.Decoder(StoredBlob).decode


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
        self._takers: dict[str, Callable[[msgspec.Raw, int, int], None]] = dict(
            zip(
                SECTIONS,
                (
                    self._conversation,
                    self._entry,
                    self.tasks.take,
                    self.submissions.take,
                    self._document,
                    self._copy,
                    self._revision,
                    self._blob,
                ),
                strict=True,
            )
        )

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
        try:
            self._take_records(line, text, start)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StorageCorrupt(f"a record that no version of this program writes: {error}") from error
        if line.next:
            self.seq, self.next_id = line.seq, line.next
        if begins:
            self.epoch, self.durability, self.boot = line.epoch, line.durability, line.boot

    def _take_records(self, line: Line, text: bytes, start: int) -> None:
        at = BODY
        for section, take in self._takers.items():
            records: list[msgspec.Raw] = getattr(line, section)
            if not records:
                continue
            at = first_at(section, text, at)
            for raw in records:
                length = len(raw)
                take(raw, start + at, length)
                at += length + 1
            at -= 1
            if text[at : at + 1] != b"]":
                raise StorageCorrupt("a line with other spaces than this program writes")

    def _conversation(self, raw: msgspec.Raw, offset: int, length: int) -> None:
        conversation = _conversation(raw)
        self._small += length
        self.conversations[conversation.id] = conversation
        self.conversation_ids.add(conversation.id)
        if conversation.owner is not None:
            self.owned.add(conversation.owner, conversation.id)

    def _entry(self, raw: msgspec.Raw, offset: int, length: int) -> None:
        keys = _entry_keys(raw)
        self.entries.put(keys.id, offset, length)
        self.entries_of.add(keys.conversation, keys.id)
        if keys.head is not None:
            self.heads_of.add(keys.conversation, keys.id)

    def _document(self, raw: msgspec.Raw, offset: int, length: int) -> None:
        self._small += length
        self.documents.take(_document(raw))

    def _copy(self, raw: msgspec.Raw, offset: int, length: int) -> None:
        self._small += length
        self.documents.take_copy(_copy(raw))

    def _revision(self, raw: msgspec.Raw, offset: int, length: int) -> None:
        keys = _revision_keys(raw)
        self.documents.take_revision(keys.document, Step(keys.seq, keys.base, offset, length))

    def _blob(self, raw: msgspec.Raw, offset: int, length: int) -> None:
        blob = _blob(raw)
        self._small += length
        self.blobs[blob.digest] = blob
