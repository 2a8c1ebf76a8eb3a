"""The working set: what the newest commits left behind, in memory. Everything else is read from storage."""

from collections.abc import Callable
from typing import Final

import msgspec

from perdure.base.ids import ConversationId, SubmissionId, TaskId
from perdure.base.jsonvalue import Json
from perdure.session.publication import DocumentKey, Publication
from perdure.storage.records import Conversation, Document, LiveTask, Scope, Submission, Task

CACHED_DOCUMENTS: Final = 4096
"""Documents kept in memory; beyond it, those read longest ago are dropped."""
CACHED_CONVERSATIONS: Final = 8192
"""Conversation records kept in memory (they never change, and are small)."""

CACHED_SCOPES: Final = 256
"""Scopes of which the list of documents is kept; beyond it, all are read again when asked for."""


class DocumentState(msgspec.Struct, frozen=True, gc=False):
    """A document as the newest commit left it. `deltas` and `bytes` count what lies behind its newest base."""

    document: Document
    value: Json
    version: int
    deltas: int
    base_bytes: int
    delta_bytes: int
    seq: int


class WorkingSet:
    """Live tasks, unsettled submissions, and recently used documents and conversations."""

    def __init__(self) -> None:
        self.tasks: dict[TaskId, Task | LiveTask] = {}
        self.submissions: dict[SubmissionId, Submission] = {}
        self.by_request: dict[tuple[ConversationId, str], SubmissionId] = {}
        self.documents: dict[DocumentKey, DocumentState | None] = {}
        self.conversations: dict[ConversationId, Conversation] = {}
        self.scopes: dict[tuple[Scope, int], list[Document] | None] = {}
        """All incarnations that a scope has or had, where somebody asked; None: too many to keep."""

    def adopt(self, publication: Publication, documents: dict[DocumentKey, DocumentState | None]) -> None:
        """Take over what a commit changed."""
        for conversation in publication.conversations:
            self.conversations[conversation.id] = conversation
        for change in publication.tasks:
            if change.after.status == "terminal":
                self.tasks.pop(change.after.id, None)
            else:
                self.tasks[change.after.id] = change.after
        for submission in publication.submissions:
            self._adopt_submission(submission)
        self.documents.update(documents)
        if self.scopes:
            self._adopt_scopes(publication, documents)

    def _adopt_scopes(self, publication: Publication, documents: dict[DocumentKey, DocumentState | None]) -> None:
        for key, state in documents.items():
            if state is None or state.document.created == publication.seq:
                self.scopes.pop((key[1], key[2]), None)
        for conversation in publication.conversations:  # a fork begins with documents that nobody publishes
            self.scopes.pop(("conversation", conversation.id), None)

    def _adopt_submission(self, submission: Submission) -> None:
        request = (submission.conversation, submission.request_id) if submission.request_id is not None else None
        if submission.status in ("done", "unanswered"):
            self.submissions.pop(submission.id, None)
            if request is not None:
                self.by_request.pop(request, None)
            return
        self.submissions[submission.id] = submission
        if request is not None:
            self.by_request[request] = submission.id

    def trim(self, flushed: int, keep: Callable[[DocumentKey], bool]) -> None:
        """Drop what was read longest ago and can be read again: only what is flushed and nobody watches."""
        if len(self.documents) > CACHED_DOCUMENTS:
            for key in list(self.documents)[: CACHED_DOCUMENTS // 4]:
                state = self.documents[key]
                if not keep(key) and (state is None or state.seq <= flushed):
                    del self.documents[key]
        if len(self.scopes) > CACHED_SCOPES:
            self.scopes.clear()
        if len(self.conversations) > CACHED_CONVERSATIONS:
            for id in list(self.conversations)[: CACHED_CONVERSATIONS // 4]:
                del self.conversations[id]

    def forget_conversation(self, id: ConversationId, flushed: int) -> None:
        """Drop an idle conversation's documents; they are read again when somebody asks."""
        for key, state in list(self.documents.items()):
            if key[1] == "conversation" and key[2] == id and (state is None or state.seq <= flushed):
                del self.documents[key]
        self.scopes.pop(("conversation", id), None)
