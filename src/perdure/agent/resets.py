"""Beginning a new context: a write whose head is itself."""

from perdure.agent.entries import ResetEntry
from perdure.agent.submissions import Draft, write_draft
from perdure.base.ids import ConversationId
from perdure.base.text import well_formed
from perdure.models.messages import UserMessage
from perdure.tasks.transaction import TaskTransaction


def reset_draft(note: str | None, request_id: str | None = None) -> Draft:
    """The write that begins a new context, from a note if there is one."""
    message = None if note is None else UserMessage(well_formed(note))
    return write_draft(ResetEntry(message), request_id=request_id, head=True)


def resets(tx: TaskTransaction, conversation: ConversationId) -> bool:
    """Whether this transaction places an entry that begins a new context with itself."""
    return any(entry.conversation == conversation and entry.head == id for id, entry in tx.changes.entries.items())
