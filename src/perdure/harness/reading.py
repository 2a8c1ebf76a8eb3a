"""What a handle on a conversation reads: its transcript, what a model gets of it, what it cost."""

from typing import Any

from perdure.agent.context import Context
from perdure.agent.documents import LiveDoc, UsageDoc
from perdure.agent.estimate import tokens_in_use
from perdure.agent.usage import total
from perdure.base.errors import NotFound
from perdure.base.ids import ConversationId, EntryId
from perdure.models.messages import Message
from perdure.storage.records import Entry


class ConversationReads:
    """Reads of committed state. They change nothing and start nothing."""

    def __init__(self, harness: Any, id: ConversationId) -> None:
        self._harness = harness
        self.id = id

    def __repr__(self) -> str:
        return f"Conversation({self.id})"

    async def messages(self) -> list[Message]:
        """What a model would read now: the active range, paired and in order."""
        transcript = await self._harness.agent.transcripts.get(self.id)
        await self._harness.session.store.settled()
        found: list[Message] = transcript.context().messages
        return found

    async def context(self, at: EntryId | None = None) -> Context:
        """What a model would read now, or read when `at` was the newest entry: `messages`, and the prompt behind them.

        `at` may be any entry that the conversation sees; later heads, edits and results do not show. Raises `NotFound`
        if it sees no such entry.
        """
        if at is not None:
            await self._harness.session.store.settled()
            earlier: Context = await self._harness.agent.transcripts.context_at(self.id, at)
            return earlier
        transcript = await self._harness.agent.transcripts.get(self.id)
        await self._harness.session.store.settled()
        found: Context = transcript.context()
        return found

    async def entries(
        self,
        *,
        after: EntryId | None = None,
        before: EntryId | None = None,
        newest_first: bool = False,
        limit: int = 100,
    ) -> list[Entry]:
        """A page of the stored transcript, ancestors included."""
        storage = await self._harness.session.store.settled()
        order = "newest" if newest_first else "oldest"
        if await self._harness.session.conversation(self.id) is None:
            raise NotFound(f"no conversation {self.id}")
        return list(await storage.scan_entries(self.id, after=after, before=before, order=order, limit=limit))

    async def live(self) -> Any:
        """What happens now: the run, the streaming answer, tool calls. Shared JSON, not for changing."""
        return await self._harness.session.value_of(LiveDoc, self.id)

    async def context_tokens(self) -> int:
        """Tokens that the next request takes before its answer: counted by the provider up to the newest answer,
        estimated after it."""
        transcript = await self._harness.agent.transcripts.get(self.id)
        return tokens_in_use(transcript.context())

    async def usage(self) -> dict[str, Any]:
        """What this conversation's own requests and tools used."""
        value = await self._harness.session.value_of(UsageDoc, self.id)
        return total([value] if value is not None else [])

    async def total_usage(self) -> dict[str, Any]:
        """What this conversation used (`own`), and what the conversations did that its tasks own, at any depth
        (`owned`). Each attempt counts once, where it was made; a fork that no task owns stands for itself."""
        session = self._harness.session
        storage = await session.store.settled()
        within: dict[ConversationId, ConversationId] = {}
        cursor = 0
        while page := await storage.scan_conversations(cursor=cursor, limit=500):
            for record in page:
                task = None if record.owner is None else await session.store.task(record.owner)
                if task is not None:
                    within[record.id] = task.conversation
            cursor = page[-1].id
        values = [await session.value_of(UsageDoc, id) for id in within if self._is_within(id, within)]
        return {"own": await self.usage(), "owned": total([value for value in values if value is not None])}

    def _is_within(self, id: ConversationId, within: dict[ConversationId, ConversationId]) -> bool:
        while (above := within.get(id)) is not None:
            if above == self.id:
                return True
            id = above
        return False
