"""A client that lost its connection goes on from its cursor or begins anew: never a gap, nothing twice, never the data
of another."""

import random
from typing import Any

import pytest

from perdure import Harness
from perdure.base import delta
from perdure.harness.feed import LINGER_SECONDS, VALUE_EVERY
from perdure.session.watch import FRAMES_KEPT, Watch
from perdure.storage.memory import MemoryStorage
from perdure.testing.clock import FakeClock, settle
from perdure.testing.scripted_model import say
from tests.agent.kit import agent, ask
from tests.harness.viewers import fresh_view, over_the_wire


class Connection:
    """A client behind a line that is cut at any moment: it keeps its state, its cursor, and what it applied."""

    def __init__(self, conversation: Any) -> None:
        self.conversation = conversation
        self.value: Any = None
        self.cursor: str | None = None
        self.applied: list[int] = []
        self.snapshots = 0

    async def connect(self, frames: int) -> None:
        """Take up the cursor, apply at most so many frames, and drop without a word."""
        async with self.conversation.watch(after=self.cursor) as watch:
            if not watch.resumed:
                self.value, self.cursor = over_the_wire(watch.value), watch.cursor
                self.snapshots += 1
            await settle()
            for _ in range(min(frames, len(watch._frames))):
                frame = await anext(watch)
                self.value = delta.apply(self.value, over_the_wire(frame.ops))
                self.cursor = frame.cursor
                self.applied.append(frame.seq)


async def write(harness: Harness, conversation: Any, number: int) -> None:
    await conversation.configure(instructions=f"number {number}")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
async def test_a_client_that_is_cut_off_at_random_ends_up_where_one_is_that_never_was(seed: int) -> None:
    chance = random.Random(seed)
    clock = FakeClock()
    async with agent([], clock=clock) as (harness, root):
        client = Connection(root)
        async with root.watch() as steady:
            for number in range(500):
                await write(harness, root, number)
                if len(steady._frames) > 50:
                    while steady._frames:
                        await anext(steady)
                if chance.random() < 0.3:
                    await client.connect(chance.choice([0, 0, 1, 3, 200]))  # also twice in a row without a frame
            await client.connect(200)
            while steady._frames:
                await anext(steady)
            assert over_the_wire(steady.value) == client.value == await fresh_view(harness, root)
            assert client.snapshots == 1
            assert len(set(client.applied)) == len(client.applied)
            assert sorted(client.applied) == client.applied


async def ends_at_a_snapshot(conversation: Any, cursor: str | None) -> Watch:
    """A cursor that cannot be served gives everything there is now, and nothing of what came before."""
    async with conversation.watch(after=cursor) as watch:
        found: Watch = watch
        assert not found.resumed
        assert found._frames.__len__() == 0
        async with conversation.watch() as other:
            assert found.value == other.value
            assert found.cursor == other.cursor
    return found


async def test_a_cursor_of_another_conversation_view_or_session_gets_a_snapshot() -> None:
    async with agent([say("x")] * 2) as (harness, root), agent([say("y")]) as (_, stranger):
        await ask(root)
        await ask(stranger, "the stranger's secret")
        answer = (await root.entries())[-1]
        fork = await root.fork(answer.id)
        async with root.watch() as watch, stranger.watch() as foreign, harness.watch_tasks() as graph:
            assert watch.cursor != foreign.cursor
            for conversation in (fork, stranger):
                await ends_at_a_snapshot(conversation, watch.cursor)
            assert "secret" not in str((await ends_at_a_snapshot(root, foreign.cursor)).value)
            await ends_at_a_snapshot(root, graph.cursor)
            async with harness.watch_tasks(after=watch.cursor) as other:
                assert not other.resumed


async def test_a_cursor_of_an_earlier_opening_gets_a_snapshot() -> None:
    storage = MemoryStorage()
    async with agent([say("x")], storage=storage) as (_, root):
        await ask(root)
        async with root.watch() as watch:
            cursor = watch.cursor
    async with agent([], storage=storage) as (_, root):
        await ends_at_a_snapshot(root, cursor)
        async with root.watch() as watch:
            token, name, epoch, seq = watch.cursor.split(".")
        await ends_at_a_snapshot(root, f"{token}.{name}.{int(epoch) - 1}.{seq}")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda place, seq: f"{place}.{seq + 1}",  # the future
        lambda place, seq: f"{place}.{seq + 10**30}",
        lambda place, seq: f"{place}.-1",
        lambda place, seq: f"{place}.²",
        lambda place, seq: f"{place}.",
        lambda place, seq: place,
        lambda place, seq: "",
        lambda place, seq: "....",
        lambda place, seq: f"{place}.{seq}.{seq}",
        lambda place, seq: "x" * 100_000,
    ],
)
async def test_a_cursor_of_the_future_or_none_at_all_gets_a_snapshot(spoil: Any) -> None:
    async with agent([say("x")]) as (_, root):
        await ask(root)
        async with root.watch() as watch:
            place, _, seq = watch.cursor.rpartition(".")
            await ends_at_a_snapshot(root, spoil(place, int(seq)))


async def test_a_cursor_whose_frames_are_let_go_gets_a_snapshot() -> None:
    async with agent([]) as (harness, root), root.watch() as watch:
        cursors = [watch.cursor]
        for number in range(FRAMES_KEPT + 2 * VALUE_EVERY):
            await write(harness, root, number)
            async with root.watch() as now:
                cursors.append(now.cursor)
        await ends_at_a_snapshot(root, cursors[0])
        served = 0
        for cursor in cursors:
            async with root.watch(after=cursor) as again:
                served += again.resumed
        assert FRAMES_KEPT <= served <= FRAMES_KEPT + VALUE_EVERY


async def test_a_view_that_nobody_watches_is_let_go_after_a_while() -> None:
    clock = FakeClock()
    async with agent([], clock=clock) as (harness, root):
        async with root.watch() as watch:
            cursor = watch.cursor
        await write(harness, root, 1)
        await clock.advance(LINGER_SECONDS - 1)
        async with root.watch(after=cursor) as watch:
            assert watch.resumed
            assert (await anext(watch)).ops[-1]["value"] == "number 1"
        await clock.advance(LINGER_SECONDS + 1)
        assert harness.views._feeds._feeds == {}
        await ends_at_a_snapshot(root, cursor)


async def test_events_go_on_behind_the_newest_commit_that_was_told_whole() -> None:
    async with agent([say("one"), say("two")]) as (_, root):
        async with root.events() as events:
            first = await anext(events)
            await ask(root)
            await anext(events)
            cursor = events.cursor
        assert cursor == first.cursor, "the commit's other events were not handed out yet"
        told = []
        async with root.events(after=cursor) as events:
            assert events.resumed
            await settle()
            while events._ready or events._watch._frames:
                told.append(await anext(events))
        assert [type(event).__name__ for event in told][:2] == ["SubmissionChanged", "RunStart"]
        assert type(told[-1]).__name__ == "SubmissionChanged"
