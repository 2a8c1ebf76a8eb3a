"""Ids of records. All ids of a session come from one integer sequence and are never used again."""

from typing import Final, NewType

ConversationId = NewType("ConversationId", int)
EntryId = NewType("EntryId", int)
TaskId = NewType("TaskId", int)
SubmissionId = NewType("SubmissionId", int)
DocumentId = NewType("DocumentId", int)

ROOT: Final = ConversationId(1)
"""The root conversation of every session."""

SESSION_SCOPE: Final = 0
"""The scope id of documents that belong to the session as a whole."""
