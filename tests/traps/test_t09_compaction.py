"""Summaries sit on turn boundaries only, one at most is read, and pairing holds, whatever happens around them."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest

from perdure import Extension, Harness, Registry
from perdure.agent.context import Place
from perdure.agent.cut import choose_cut
from perdure.agent.entries import UserEntry
from perdure.agent.pairing import FAILED, NO_RESULT, check_pairing
from perdure.base.ids import EntryId
from perdure.harness.conversation import Conversation
from perdure.models.errors import ContextTooLong, Overloaded
from perdure.models.messages import AssistantMessage, ToolCall, ToolResultMessage, UserMessage, decode_messages
from perdure.models.protocol import ModelRequest
from perdure.storage.memory import MemoryStorage
from perdure.storage.records import Entry
from perdure.testing.clock import FakeClock, settle
from perdure.testing.laws import check_records
from perdure.testing.scripted_model import Turn, call, fail, say
from tests.agent.compacting import Counting, small, summaries

STEPS = 18


class World:
    """One random history: conversations, their talk, and everything that cuts in."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.storage = MemoryStorage()
        self.clock = FakeClock()
        self.keep = self.dice.choice((1, 40, 150, 300))
        self.automatic = self.dice.random() < 0.7
        self.requests: list[ModelRequest] = []
        self.placed = 0
        self.harness: Harness
        self.held: list[asyncio.Event] = []
        self.torn: set[int] = set()
        """Forks that begin in the middle of a round."""

    async def live(self) -> None:
        """Take the steps, with a restart here and there, then look at everything."""
        left = STEPS
        while left > 0:
            left -= await self._process(self.dice.randint(1, left))
        await self._process(0, finish=True)

    async def _process(self, steps: int, *, finish: bool = False) -> int:
        settings = small(keep_tokens=self.keep, automatic=self.automatic)
        model = Counting(self._answer, self._summary, clock=self.clock, context_window=1_500)
        self.gate = asyncio.Event()
        async with Harness.open(
            self.storage, registry=Registry([self._tools()]), models=model, settings=settings, clock=self.clock
        ) as harness:
            self.harness = harness
            await harness.root(model="scripted:model")
            await harness.resume()
            for _ in range(steps):
                await self._step()
                self._check(model.requests)
            if finish or self.dice.random() < 0.5:  # else the process ends in the middle of whatever goes on
                await self._calm_down(harness)
                await check_records(harness)
            if finish:
                await self._look(harness)
        self._check(model.requests)
        self.requests += model.requests
        return max(steps, 1)

    def _tools(self) -> Extension:
        tools = Extension("tools")

        @tools.tool(replay="safe")
        async def quick(ctx: Any, size: int) -> str:
            """Answer at once, and leave a note in the middle of the round."""
            if size % 3 == 0:
                async with ctx.transaction() as tx:
                    tx.append_entry(ctx.conversation_id, UserEntry(UserMessage("n" * size)))
            return "x" * size

        @tools.tool
        async def slow(ctx: Any, size: int) -> str:
            """Answer when the gate opens."""
            await self.gate.wait()
            return "y" * size

        return tools

    def _answer(self, request: ModelRequest) -> Any:
        luck = self.dice.random()
        if luck < 0.05:
            return fail(self.dice.choice((Overloaded("busy"), ContextTooLong("too long"))))
        if luck < 0.45 and not isinstance(request.messages[-1], ToolResultMessage):
            id = self.dice.choice(("", "same", f"id{self.dice.randrange(4)}"))
            kinds = self.dice.choices(("quick", "slow", "gone"), (5, 3, 1), k=self.dice.randint(1, 3))
            return [call(kind, {"size": self.dice.randint(1, 400)}, id=id) for kind in kinds]
        return "z" * self.dice.randint(1, 300)

    def _summary(self, request: ModelRequest) -> Any:
        luck = self.dice.random()
        if luck < 0.1:
            return fail(Overloaded("busy"))
        if luck < 0.2:
            return self.dice.choice((call("quick", {"size": 1}), Turn(), say("w " * 2_000)))
        turn = say("notes")
        if luck < 0.5:
            self.held.append(asyncio.Event())
            return turn.held_by(self.held[-1])
        return turn

    async def _step(self) -> None:
        conversation = await self._any_conversation()
        match self.dice.choices(
            ("say", "steer", "compact", "fork", "open", "abort", "reset", "let", "time", "settle"),
            (8, 4, 5, 2, 3, 1, 1, 4, 1, 3),
        )[0]:
            case "say":
                await conversation.submit("s" * self.dice.randint(1, 400))
            case "steer":
                await conversation.submit("faster", when_busy="steer")
            case "compact":
                await conversation.compact(self.dice.choice((None, None, "keep it")))
            case "fork":
                entries = await conversation.entries(limit=1000)
                if entries:
                    fork = await conversation.fork(self.dice.choice(entries).id)
                    if any(invented(message) for message in await fork.messages()):
                        self.torn.add(fork.id)
            case "open":
                self.gate.set()
                await settle()
                self.gate.clear()
            case "abort":
                await conversation.abort(background=self.dice.random() < 0.3)
            case "reset":
                await conversation.reset(self.dice.choice((None, "from here")))
            case "let" if self.held:
                self.held.pop(self.dice.randrange(len(self.held))).set()
            case "time":
                await self.clock.advance(20)
            case _:
                await settle()

    async def _any_conversation(self) -> Conversation:
        records = await self.harness.session.storage.scan_conversations(cursor=0, limit=100)
        return await self.harness.conversation(self.dice.choice(records).id)

    async def _calm_down(self, harness: Harness) -> None:
        for _ in range(200):
            self.gate.set()
            while self.held:
                self.held.pop().set()
            await settle()
            if not harness.wake().active and harness.wake().at is None:
                return
            await self.clock.advance(30)
        raise AssertionError(f"it never came to rest: {harness.inspect()}")

    def _check(self, requests: Sequence[ModelRequest]) -> None:
        for request in requests:
            check_pairing(list(request.messages))
            assert summaries(request) <= 1
            if int(str(request.session_id).rsplit("-")[-1]) not in self.torn:
                assert not any(map(invented, request.messages))

    async def _look(self, harness: Harness) -> None:
        for record in await harness.session.storage.scan_conversations(cursor=0, limit=100):
            conversation = await harness.conversation(record.id)
            messages = await conversation.messages()
            check_pairing(messages)
            assert summaries(ModelRequest(messages)) <= 1
            entries = await conversation.entries(limit=1000)
            heads = [entry.head for entry in entries if entry.head is not None]
            stored = [e for e in entries if e.kind == "perdure.tool_result" and e.id >= (heads[-1] if heads else 0)]
            read = [message for message in messages if isinstance(message, ToolResultMessage)]
            assert len(stored) == sum(not invented(message) for message in read)
            assert len(stored) == len(read) or record.id in self.torn
            self.placed += boundaries_only(entries)


def boundaries_only(entries: Sequence[Entry]) -> int:
    """Count the summaries; none stands between a call and its result."""
    summaries_ = 0
    open_since: dict[str, int] = {}
    for entry in entries:
        summaries_ += entry.kind == "perdure.summary"
        for message in decode_messages(entry.messages):
            if isinstance(message, AssistantMessage) and message.stop not in FAILED:
                open_since = {block.id: summaries_ for block in message.content if isinstance(block, ToolCall)}
            elif isinstance(message, ToolResultMessage) and message.call_id in open_since:
                assert open_since[message.call_id] == summaries_, f"a summary before entry {entry.id}, inside a round"
    return summaries_


def invented(message: Any) -> bool:
    """A result that stands where none is stored: none may be, in place of one that lies behind a cut."""
    return isinstance(message, ToolResultMessage) and message.content == NO_RESULT


async def run(seeds: range) -> int:
    placed = 0
    for seed in seeds:
        world = World(seed)
        try:
            async with asyncio.timeout(60):
                await world.live()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        placed += world.placed
    return placed


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(10))
async def test_pairing_holds_and_one_summary_at_most_is_read(batch: int) -> None:
    assert await run(range(batch * 10, batch * 10 + 10)) > 0


@pytest.mark.long
@pytest.mark.parametrize("batch", range(50))
async def test_pairing_holds_and_one_summary_at_most_is_read_in_two_thousand_histories(batch: int) -> None:
    assert await run(range(batch * 40, batch * 40 + 40)) > 40


def test_the_kept_part_begins_at_a_boundary_whatever_is_kept() -> None:
    """The trap itself, on the cut: no amount of kept tokens splits a call from its result."""
    from_calls: list[Any] = []
    dice = random.Random(9)
    for _ in range(300):
        places, open_calls = [], 0
        for id in range(1, dice.randint(2, 30)):
            if open_calls:
                message: Any = ToolResultMessage(f"c{open_calls}", "t", "r" * dice.randint(1, 200))
                open_calls -= 1
            elif dice.random() < 0.4:
                open_calls = dice.randint(1, 3)
                message = AssistantMessage([call("t", id=f"c{n + 1}").content[0] for n in range(open_calls)])
            else:
                message = UserMessage("u" * dice.randint(1, 200))
            places.append(place(id, message))
        cut = choose_cut(places, dice.randint(0, 400), dice.choice((None, 100)))
        if cut is not None:
            kept = [p.messages[0] for p in places if p.id >= cut.at]
            from_calls.append(kept)
            assert not isinstance(kept[0], ToolResultMessage)
    assert len(from_calls) > 100


def place(id: int, message: Any) -> Place:
    return Place(EntryId(id), [message], False)
