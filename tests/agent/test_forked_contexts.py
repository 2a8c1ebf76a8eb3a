"""Whatever forks, heads, edits, crashes and careless providers leave behind: the context that a model reads is valid,
and what it read at any entry can be replayed from storage."""

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.agent.context import Context, ContextEntry, for_model
from perdure.agent.entries import (
    AssistantEntry,
    ResetEntry,
    SummaryEntry,
    SystemEntry,
    ToolResultEntry,
    UserEntry,
    put,
)
from perdure.agent.pairing import check_pairing
from perdure.agent.prompt import KEEP, PromptState, Rendered, change
from perdure.agent.transcripts import Transcripts
from perdure.base.errors import NotFound
from perdure.base.ids import ConversationId, EntryId
from perdure.models.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolOffer,
    ToolResultMessage,
    encode_messages,
)
from perdure.session.forks import fork
from perdure.session.session import Session
from perdure.session.transaction import Transaction
from perdure.storage.memory import MemoryStorage
from perdure.storage.sqlite.store import SqliteStorage
from tests.agent.transcripts import result, slowly, told_without_ids, turn, user

IDS = ("x", "y", "x-2", "")
SECTIONS = ("A", "B", "C", "D")


class World:
    """Random work on one session, and what was shown at each entry when it was the newest."""

    def __init__(self, seed: int, storage: Any) -> None:
        self.dice = random.Random(seed)
        self.storage = storage
        self.shown: dict[tuple[ConversationId, EntryId], Context] = {}
        self.prompts: dict[tuple[ConversationId, EntryId], PromptState] = {}

    async def open(self) -> None:
        self.session = await Session(self.storage, transaction_type=Transaction).open()
        self.transcripts = Transcripts(self.session)

    async def crash(self) -> None:
        """The process dies: what is in memory is lost, what is stored stays."""
        if isinstance(self.storage, MemoryStorage):
            self.storage = self.storage.copy()
        else:
            await self.session.close()
        await self.open()

    async def conversations(self) -> list[ConversationId]:
        return [one.id for one in await self.session.storage.scan_conversations(limit=1000)]

    async def visible(self, conversation: ConversationId) -> list[EntryId]:
        return [entry.id for entry in await self.session.storage.scan_entries(conversation, limit=1000)]

    async def step(self) -> None:
        """One commit of random content, or a fork, or a crash."""
        dice = self.dice
        conversation = dice.choice(await self.conversations())
        visible = await self.visible(conversation)
        match dice.randrange(12):
            case 0 if visible:
                async with self.session.transaction() as tx:
                    await fork(tx, conversation, dice.choice(visible), owner=None)
            case 1:
                await self.crash()
            case 2:
                self.transcripts.forget_idle(float("inf"), set())
            case _:
                await self.append(conversation, visible)
        await self.look(conversation)

    async def append(self, conversation: ConversationId, visible: list[EntryId]) -> None:
        prompt = (await self.transcripts.get(conversation)).prompt
        async with self.session.transaction() as tx:
            for _ in range(self.dice.choice((1, 1, 1, 2, 3))):
                self.put_one(tx, conversation, visible, prompt)
                if any(entry.messages.startswith(b'[{"role":"system"') for entry in tx.changes.entries.values()):
                    break  # a change of the prompt is told against what stands before it

    def put_one(
        self, tx: Transaction, conversation: ConversationId, visible: list[EntryId], prompt: PromptState
    ) -> None:
        dice, number = self.dice, tx.next_id
        match dice.randrange(14):
            case 0 | 1:
                put(tx, conversation, UserEntry, user(f"u{number}"))
            case 2 | 3 | 4:
                stop = dice.choice(("stop", "tool_calls", "length", "aborted", "error"))
                said = turn(f"a{number}", *dice.choices(IDS, k=dice.randrange(4)), stop=stop)
                put(tx, conversation, AssistantEntry, said)
            case 5 | 6 | 7:
                put(tx, conversation, ToolResultEntry, result(dice.choice(IDS), f"r{number}"))
            case 8 | 9:
                message = change(prompt, self.rendered(), self.offers())
                if message is not None:
                    put(tx, conversation, SystemEntry, message)
            case 10 if visible:  # a summary stands in front of what it kept, with the prompt of now
                head = dice.choice(visible[-6:])
                put(tx, conversation, SummaryEntry, user(f"summary{number}"), head=head)
            case 11 if visible:
                told: list[Message] = [user(f"edit{number}")] if dice.random() < 0.6 else []
                tx.put_entry(conversation, "app.edit", messages=encode_messages(told), edits=dice.choice(visible[-8:]))
            case 12 if dice.random() < 0.5:
                put(tx, conversation, ResetEntry, user(f"begin{number}"), head=True)
            case _:
                tx.put_entry(conversation, "app.note", data=b'{"text":"no message"}')

    def rendered(self) -> list[Rendered]:
        """The sections now: some left out, some that failed, in any order."""
        names = self.dice.sample(SECTIONS, self.dice.randrange(len(SECTIONS) + 1))
        return [(name, self.dice.choice((f"{name}1", f"{name}2", KEEP, None))) for name in names]

    def offers(self) -> list[ToolOffer]:
        names = self.dice.sample(("read", "bash"), self.dice.randrange(3))
        return [ToolOffer(name, f"The tool {name}.", {"type": "object"}) for name in names]

    async def look(self, conversation: ConversationId) -> None:
        """What a model would read now: valid for every provider, and by the plain words of the rules."""
        transcript = await self.transcripts.get(conversation)
        context = transcript.context()
        check_calls(context.messages)
        for system_updates in (False, True):
            check_pairing(for_model(context, system_updates).messages)
        entries = await self.session.storage.scan_entries(conversation, limit=1000)
        if entries:
            light = [ContextEntry.of(entry) for entry in entries]
            assert told_without_ids(context.messages) == slowly(light)
            assert context.prompt == replayed(context.messages)
            self.shown[conversation, entries[-1].id] = context

    async def replay(self) -> None:
        """Every moment again, from what is stored alone."""
        for (conversation, entry), context in self.shown.items():
            again = await self.transcripts.context_at(conversation, entry)
            assert again == context
            for system_updates in (False, True):
                assert for_model(again, system_updates) == for_model(context, system_updates)
        for conversation in await self.conversations():
            hidden = max(await self.visible(conversation), default=0) + 1
            with pytest.raises(NotFound):
                await self.transcripts.context_at(conversation, EntryId(hidden))


def replayed(messages: list[Message]) -> PromptState:
    """The prompt that the system messages among them tell, one after the other, written down once more."""
    sections: dict[str, str] = {}
    tools: tuple[ToolOffer, ...] = ()
    for message in messages:
        if not isinstance(message, SystemMessage):
            continue
        for name, text in message.sections.items():
            if text is None:
                sections.pop(name, None)
            else:
                sections[name] = text
        if message.order is not None:
            named = [name for name in message.order if name in sections]
            sections = {name: sections[name] for name in [*named, *(n for n in sections if n not in named)]}
        tools = tools if message.tools is None else tuple(message.tools)
    return PromptState(sections, tools)


def check_calls(messages: list[Message]) -> None:
    """I1: each call has exactly one result, directly behind its turn, in call order; there are no others."""
    expected: list[str] = []
    for message in messages:
        if isinstance(message, ToolResultMessage):
            assert expected, "a result without a call"
            assert message.call_id == expected.pop(0)
            continue
        assert not expected, f"no result of {expected}"
        if isinstance(message, AssistantMessage):
            expected = [block.id for block in message.content if isinstance(block, ToolCall)]
    assert not expected


async def explore(seed: int, steps: int, storage: Any) -> None:
    world = World(seed, storage)
    await world.open()
    for _ in range(steps):
        await world.step()
    await world.replay()
    await world.crash()
    await world.replay()
    await world.session.close()


@pytest.mark.slow
@settings(max_examples=100)
@given(st.integers(0, 2**32), st.integers(1, 40))
async def test_any_history_of_forks_heads_edits_and_crashes_gives_valid_contexts_that_replay(
    seed: int, steps: int
) -> None:
    await explore(seed, steps, MemoryStorage())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
async def test_the_same_holds_on_sqlite(seed: int, tmp_path: Path) -> None:
    await explore(seed, 60, SqliteStorage(tmp_path / "s.db", durability="process"))


@pytest.mark.long
@settings(max_examples=2_000)
@given(st.integers(0, 2**32), st.integers(1, 80))
async def test_the_same_holds_for_thousands_of_histories(seed: int, steps: int) -> None:
    await explore(seed, steps, MemoryStorage())
