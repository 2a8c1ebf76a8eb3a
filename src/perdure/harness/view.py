"""The view of a conversation: the active transcript and the built-in documents, as committed."""

import asyncio
from typing import Any, Final

from perdure.agent.documents import AgentDoc, InboxDoc, LiveDoc, UsageDoc
from perdure.base.delta import Operation
from perdure.base.ids import ConversationId, EntryId
from perdure.base.jsonvalue import Json, decode, encode
from perdure.harness.feed import MOVED, Step
from perdure.session.publication import Publication
from perdure.storage.protocol import Storage
from perdure.storage.records import Conversation, Entry
from perdure.tasks.transaction import TaskTransaction

DOCUMENTS: Final[dict[str, Any]] = {"agent": AgentDoc, "live": LiveDoc, "inbox": InboxDoc, "usage": UsageDoc}
"""The built-in documents by their name in the view."""
PAGE: Final = 200
"""Entries read at once: some milliseconds, after which others get their turn."""
REMOVAL_BYTES: Final = 36
"""What the removal of one entry takes on the wire, about."""
COPIED_LENGTH: Final = 64
"""Characters from which on a streamed text is copied to its entry instead of being told again."""

_NAMES: Final = {document.kind: name for name, document in DOCUMENTS.items()}


class ConversationSource:
    """`{"conversation": …, "entries": […], "docs": {"agent": …, "live": …, "inbox": …, "usage": …}}`.

    `entries` is what is stored from the head on, ancestors included, in order. A document that was never written is
    null. See docs/views.md.
    """

    def __init__(self, id: ConversationId) -> None:
        self.name = f"c{id}"
        self._id = id
        self._record: Json = None
        self._docs: dict[str, Json] = {}
        self._newest = EntryId(0)

    async def begin(self, tx: TaskTransaction) -> None:
        """Read the documents, and note which entry is the newest; nobody commits meanwhile."""
        self._record = _conversation(await tx.conversation(self._id))
        self._docs = {name: await tx.value_of(document, self._id) for name, document in DOCUMENTS.items()}
        self._newest = EntryId(tx.next_id - 1)

    async def load(self, storage: Storage) -> Json:
        """The entries of the active range as of the moment; entries never change, so later commits do no harm."""
        head = await storage.latest_head(self._id, self._newest)
        after = EntryId(0 if head is None or head.head is None else head.head - 1)
        entries: list[Json] = []
        before = EntryId(self._newest + 1)
        while page := await storage.scan_entries(self._id, after=after, before=before, limit=PAGE):
            entries.extend(map(shown_entry, page))
            after = page[-1].id
            if len(page) < PAGE:
                break
            await asyncio.sleep(0)
        return {"conversation": self._record, "entries": entries, "docs": self._docs}

    def step(self, value: Json, publication: Publication) -> Step | None:
        """The next value, with the operations that lead to it."""
        ops: list[Operation] = []
        mine = [entry for entry in publication.entries if entry.conversation == self._id]
        fresh = [shown_entry(entry) for entry in mine]
        entries = value["entries"]
        if mine:
            partial = (value["docs"]["live"] or {}).get("partial")
            for at, shown in enumerate(fresh, len(entries)):
                _add_entry(shown, at, partial, ops)
            entries = entries + fresh
            heads = [entry for entry in mine if entry.head is not None]
            if heads:
                begin = heads[-1].head
                assert begin is not None
                if begin < entries[0]["id"]:  # what is held begins later
                    self._docs = self._changed_docs(value["docs"], publication, [])
                    self._newest = max(entry.id for entry in publication.entries)
                    return MOVED
                entries = _moved(entries, begin, ops)
        docs = self._changed_docs(value["docs"], publication, ops)
        submissions = [each for each in publication.submissions if each.conversation == self._id]
        if not ops and not submissions:
            return None
        after = {"conversation": value["conversation"], "entries": entries, "docs": docs} if ops else value
        return Step(after, ops, fresh, submissions)

    def _changed_docs(self, docs: Json, publication: Publication, ops: list[Operation]) -> Json:
        for change in publication.documents:
            kind, scope, id, _ = change.key
            if id != self._id or scope != "conversation" or kind not in _NAMES:
                continue
            name = _NAMES[kind]
            docs = {**docs, name: change.value}
            prefix = f"/docs/{name}"
            if change.retired:
                ops.append({"op": "replace", "path": prefix, "value": None})
            for op in change.ops:
                placed = {**op, "path": prefix + op["path"]}
                if "from" in op:
                    placed["from"] = prefix + op["from"]
                ops.append(placed)
        return docs


def _conversation(record: Conversation) -> Json:
    return {"id": record.id, "parent": record.parent, "fork_entry": record.fork_entry, "owner": record.owner}


def shown_entry(entry: Entry) -> Json:
    """An entry as a view shows it; what it does not have is left out."""
    shown: dict[str, Json] = {"id": entry.id, "conversation": entry.conversation, "kind": entry.kind}
    if entry.version != 1:
        shown["version"] = entry.version
    shown["messages"] = decode(entry.messages)
    if entry.data != b"null":
        shown["data"] = decode(entry.data)
    for name in ("task", "head", "edits"):
        found = getattr(entry, name)
        if found is not None:
            shown[name] = found
    return shown


def _add_entry(shown: Json, at: int, partial: Json, ops: list[Operation]) -> None:
    """Add an entry. What had streamed before is copied from there: whoever watches has that text already."""
    copies: list[Operation] = []
    if partial is not None and shown["messages"] and shown["messages"][0]["role"] == "assistant":
        message = shown["messages"][0]
        content: list[Json] = []
        for index, block in enumerate(message["content"]):
            streamed = partial["blocks"][index] if index < len(partial["blocks"]) else None
            if streamed is None or not _is_told(streamed, block):
                content.append(block)
                continue
            content.append({**block, "text": ""})
            path = f"/entries/{at}/messages/0/content/{index}/text"
            copies.append({"op": "copy", "from": f"/docs/live/partial/blocks/{index}/text", "path": path})
            rest = block["text"][len(streamed["text"]) :]
            if rest:
                copies.append({"op": "append", "path": path, "value": rest})
        if copies:
            shown = {**shown, "messages": [{**message, "content": content}, *shown["messages"][1:]]}
    ops.append({"op": "add", "path": "/entries/-", "value": shown})
    ops.extend(copies)


def _is_told(streamed: Json, block: Json) -> bool:
    if streamed["type"] != block["type"] or block["type"] not in ("text", "thinking"):
        return False
    return len(streamed["text"]) >= COPIED_LENGTH and bool(block["text"].startswith(streamed["text"]))


def _moved(entries: list[Json], begin: int, ops: list[Operation]) -> list[Json]:
    """The entries from the new head on."""
    gone = sum(entry["id"] < begin for entry in entries)
    kept = entries[gone:]
    if not gone:
        return entries
    if gone * REMOVAL_BYTES < len(encode(kept)):
        ops.extend({"op": "remove", "path": "/entries/0"} for _ in range(gone))
    else:
        ops.append({"op": "replace", "path": "/entries", "value": kept})
    return kept
