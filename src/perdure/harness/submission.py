"""A submission as its sender holds it."""

from typing import Any

import msgspec

from perdure.agent.submissions import settled_of
from perdure.base.errors import NotFound, Unanswered
from perdure.base.ids import ConversationId, EntryId, SubmissionId
from perdure.extensions.settled import Settled
from perdure.models.messages import AssistantMessage, Attachment, Message, Usage, decode_messages, text_of
from perdure.storage.records import SubmissionStatus


class Answer(msgspec.Struct, frozen=True):
    """The answer to a submission: its text, its entry, the tokens of the response that gave it. A write that is placed
    answers itself."""

    text: str
    entry_id: EntryId
    usage: Usage | None = None
    attachments: tuple[Attachment, ...] = ()
    """Images that the model made, in order; `harness.file` gives their bytes."""


class Submission:
    """One submission. Its state is stored; this is only a way to ask for it."""

    def __init__(self, harness: Any, conversation: ConversationId, id: SubmissionId) -> None:
        self._harness = harness
        self.conversation_id = conversation
        self.id = id

    def __repr__(self) -> str:
        return f"Submission({self.id})"

    async def status(self) -> SubmissionStatus:
        """queued, placed, done or unanswered."""
        status: SubmissionStatus = (await self._record()).status
        return status

    async def settled(self) -> Settled:
        """Wait until it is settled and tell how. Never raises for an unanswered one; cancelling changes nothing."""
        settled: Settled = await self._harness.actions.wait_settled(self.id)
        return settled

    async def wait(self) -> Answer:
        """Wait for the answer. Raises `Unanswered` if the submission ended without one."""
        settled = await self.settled()
        if settled.status != "done":
            raise Unanswered(settled.reason or "unanswered", settled.detail)
        assert settled.answer is not None, "what is done names its answer"
        messages = await self._messages(settled.answer)
        message = messages[0] if messages else None
        if not isinstance(message, AssistantMessage):
            return Answer(text_of(message) if message is not None else "", settled.answer)
        made = tuple(block for block in message.content if isinstance(block, Attachment))
        return Answer(text_of(message), settled.answer, message.usage, made)

    async def abort(self) -> bool:
        """Withdraw it while it is queued; once it is placed, abort its run. False if it was settled already."""
        aborted: bool = await self._harness.actions.abort_submission(self.conversation_id, self.id)
        return aborted

    async def _messages(self, id: EntryId) -> list[Message]:
        """The messages of the answer: from the transcript at work, if it is in memory, else from the store."""
        transcript = self._harness.agent.transcripts.held(self.conversation_id)
        held: list[Message] | None = None if transcript is None else transcript.find(id)
        if held is not None:
            return held
        entry = await self._harness.session.store.entry(id)
        if entry is None:
            raise NotFound(f"entry {id} is gone")
        return decode_messages(entry.messages)

    async def _record(self) -> Any:
        record = await self._harness.session.store.submission(self.id)
        await self._harness.session.store.settled()
        if record is None:
            raise NotFound(f"no submission {self.id}")
        return record


__all__ = ["Answer", "Submission", "settled_of"]
