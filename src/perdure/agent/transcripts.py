"""The active transcripts of conversations at work, in memory: fed by commits, read again from storage when needed."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

from perdure.agent.context import Context, ContextBuilder, ContextEntry
from perdure.agent.prompt import PromptState
from perdure.base.errors import NotFound
from perdure.base.ids import ConversationId, EntryId
from perdure.models.messages import AssistantMessage, Message
from perdure.session.publication import Publication
from perdure.session.session import Session
from perdure.storage.records import Entry

PAGE: Final = 500


class Transcript:
    """One conversation's active range."""

    def __init__(self, entries: Iterable[ContextEntry] = ()) -> None:
        held = list(entries)
        self.builder = ContextBuilder(held)
        self.newest: EntryId = held[-1].id if held else EntryId(0)
        self.newest_shown: EntryId = max((entry.id for entry in held if shown(entry)), default=EntryId(0))
        """The newest entry that a model could see; failed attempts are not shown."""
        self.used = 0.0

    def append(self, entry: Entry) -> bool:
        """Take an entry; False if the range has to be read anew."""
        if entry.id <= self.newest:
            return True
        light = ContextEntry.of(entry)
        if not self.builder.covers(light):
            return False
        self.builder.append(light)
        self.newest = entry.id
        if shown(light):
            self.newest_shown = entry.id
        return True

    @property
    def prompt(self) -> PromptState:
        """The prompt that a model reads now."""
        return self.builder.prompt

    def find(self, id: EntryId) -> list[Message] | None:
        """The messages of an entry that is held."""
        return self.builder.find(id)

    def context(self, up_to: EntryId | None = None) -> Context:
        """What a model reads now, or read when `up_to` was the newest entry."""
        if up_to is None or self.newest_shown <= up_to:
            return self.builder.context()
        return self.builder.context_up_to(up_to)


def shown(entry: ContextEntry) -> bool:
    """Whether the entry can change what a model reads."""
    if entry.head is not None or entry.edits is not None:
        return True
    return any(not isinstance(m, AssistantMessage) or m.stop not in ("aborted", "error") for m in entry.messages)


class _Loading:
    """A transcript being read: what is committed meanwhile waits here."""

    def __init__(self) -> None:
        self.arrived: list[Entry] = []
        self.job: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Transcripts:
    """The transcripts that are in memory. Idle ones are let go; asking reads them again."""

    def __init__(self, session: Session[Any]) -> None:
        self._session = session
        self._loaded: dict[ConversationId, Transcript] = {}
        self._loading: dict[ConversationId, _Loading] = {}
        self.on_load: Callable[[], None] = lambda: None
        """Called when a transcript has come into memory."""
        session.adopters.append(self._adopt)

    async def get(self, conversation: ConversationId) -> Transcript:
        """The conversation's transcript as of the newest commit."""
        while (found := self._loaded.get(conversation)) is None:
            loading = self._loading.get(conversation)
            if loading is None:
                loading = self._loading[conversation] = _Loading()
                loading.job = asyncio.ensure_future(self._load(conversation, loading))
            await asyncio.shield(loading.job)
        found.used = self._session.clock.monotonic()
        return found

    def held(self, conversation: ConversationId) -> Transcript | None:
        """The transcript if it is in memory, as of the newest commit."""
        return self._loaded.get(conversation)

    async def context_at(self, conversation: ConversationId, newest: EntryId) -> Context:
        """The context as it was when `newest` was the newest entry, read from storage. Raises `NotFound` if the
        conversation does not see that entry."""
        transcript = await self._read(conversation, newest)
        if transcript.newest != newest:
            if await self._session.conversation(conversation) is None:
                raise NotFound(f"no conversation {conversation}")
            raise NotFound(f"conversation {conversation} has no entry {newest}")
        return transcript.context()

    async def _load(self, conversation: ConversationId, loading: "_Loading") -> None:
        try:
            transcript = await self._read(conversation)
            if all(transcript.append(entry) for entry in loading.arrived):
                transcript.used = self._session.clock.monotonic()
                self._loaded[conversation] = transcript  # else the head moved meanwhile: the reader asks again
                self.on_load()
        finally:
            del self._loading[conversation]

    async def _read(self, conversation: ConversationId, up_to: EntryId | None = None) -> Transcript:
        entries: list[ContextEntry] = []
        storage = await self._session.store.settled()
        head = await storage.latest_head(conversation, up_to)
        before = None if up_to is None else EntryId(up_to + 1)
        after = EntryId(head.head - 1) if head is not None and head.head is not None else None
        while True:
            page = await storage.scan_entries(conversation, after=after, before=before, limit=PAGE)
            entries += map(ContextEntry.of, page)
            if len(page) < PAGE:
                # as one range: a head on the way to the newest may lie before others that it overtakes
                return Transcript(entries)
            after = page[-1].id

    def _adopt(self, publication: Publication) -> None:
        for entry in publication.entries:
            transcript = self._loaded.get(entry.conversation)
            if transcript is not None:
                if not transcript.append(entry):
                    del self._loaded[entry.conversation]
            elif entry.conversation in self._loading:
                self._loading[entry.conversation].arrived.append(entry)

    def forget_idle(self, before: float, busy: set[ConversationId]) -> list[ConversationId]:
        """Let go of transcripts that nobody used after `before`; tells which."""
        idle = [id for id, transcript in self._loaded.items() if transcript.used <= before and id not in busy]
        for id in idle:
            del self._loaded[id]
        return idle

    def oldest_use(self) -> float | None:
        """When the transcript that was used longest ago was used, by the monotonic clock; None if there is none."""
        return min((transcript.used for transcript in self._loaded.values()), default=None)

    def __len__(self) -> int:
        return len(self._loaded)
