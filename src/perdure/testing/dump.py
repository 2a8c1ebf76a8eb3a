"""Everything a store holds, through its own reads, in a form that can be compared."""

from typing import Any

from perdure.base.ids import SESSION_SCOPE
from perdure.session.store import fold
from perdure.storage.protocol import Storage
from perdure.storage.records import Conversation, Entry, Scope, Submission, Task

Dump = dict[str, Any]
PAGE = 500


async def dump(storage: Storage) -> Dump:
    """All records by kind and id; documents as their values now."""
    found: Dump = {}
    await _documents(storage, "session", SESSION_SCOPE, found)
    for conversation in await conversations(storage):
        found[f"conversation {conversation.id}"] = conversation
        for entry in await own_entries(storage, conversation):
            found[f"entry {entry.id}"] = entry
        await _documents(storage, "conversation", conversation.id, found)
        for submission in await submissions(storage, conversation):
            found[f"submission {submission.id}"] = submission
        for task in await tasks(storage, conversation):
            found[f"task {task.id}"] = task
            await _documents(storage, "task", task.id, found)
    return found


def difference(one: Dump, other: Dump) -> str | None:
    """The first thing in which two dumps differ, or None."""
    for name in sorted({*one, *other}):
        if one.get(name) != other.get(name):
            return f"{name}: {one.get(name)!r} against {other.get(name)!r}"
    return None


async def conversations(storage: Storage) -> list[Conversation]:
    """All conversations, oldest first."""
    found: list[Conversation] = []
    while page := await storage.scan_conversations(cursor=_last(found), limit=PAGE):
        found.extend(page)
    return found


async def own_entries(storage: Storage, conversation: Conversation) -> list[Entry]:
    """A conversation's own entries, without those it reads from its parents."""
    found: list[Entry] = []
    after = conversation.fork_entry
    while page := await storage.scan_entries(conversation.id, after=after, limit=PAGE):
        found.extend(entry for entry in page if entry.conversation == conversation.id)
        after = page[-1].id
    return found


async def tasks(storage: Storage, conversation: Conversation) -> list[Task]:
    """All tasks of a conversation, ended ones too."""
    found: list[Task] = []
    while page := await storage.scan_tasks(conversation=conversation.id, cursor=_last(found), limit=PAGE):
        found.extend(page)
    return found


async def submissions(storage: Storage, conversation: Conversation) -> list[Submission]:
    """All submissions of a conversation."""
    found: list[Submission] = []
    while page := await storage.scan_submissions(conversation=conversation.id, cursor=_last(found), limit=PAGE):
        found.extend(page)
    return found


async def _documents(storage: Storage, scope: Scope, scope_id: int, into: Dump) -> None:
    cursor = 0
    while page := await storage.scan_documents(scope, scope_id, cursor=cursor, limit=PAGE):
        for record in page:
            stored = await storage.document(record.id)
            state = None if stored is None else fold(stored)
            into[f"document {record.id}"] = (record, None if state is None else (state.value, state.version))
        cursor = page[-1].id


def _last(found: list[Any]) -> int:
    return 0 if not found else int(found[-1].id)
