"""The law of views: whatever happens, the frames applied to the first value give the view that a newcomer gets; and
events fold to the same transcript."""

import asyncio
import contextlib
import random
from typing import Any

import pytest

from perdure import Conversation, Extension, Harness, Registry, ResetEntry, ToolContext, ToolError, entry
from perdure.base.errors import Error
from perdure.harness.views import Views
from perdure.models.errors import CutOff
from perdure.storage.memory import MemoryStorage
from perdure.testing.clock import FakeClock, settle
from perdure.testing.scripted_model import ScriptedModel, call, cut, say, think
from tests.harness.viewers import Client, Listener, fresh_graph
from tests.session.kit import FailingStorage

ACTIONS = (
    *("submit", "steer", "note", "reset", "back", "configure", "fork", "abort", "later", "later", "much later"),
    *(
        "view",
        "events",
        "graph",
        "read",
        "read",
        "leave",
        "come again",
        "spawn",
        "busy",
        "compare",
        "reopen",
        "crash",
        "cut",
    ),
)
LONG = "It is a long answer, and it streams for a while before it ends. " * 3


@entry("app.note")
class Note:
    """An entry of an application."""

    text: str


class Unhurried(FailingStorage):
    """Reads take a while, so that others commit meanwhile."""

    async def _pause(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    async def latest_head(self, *args: Any, **options: Any) -> Any:
        """Read, later."""
        await self._pause()
        return await super().latest_head(*args, **options)

    async def scan_entries(self, *args: Any, **options: Any) -> Any:
        """Read, later."""
        await self._pause()
        return await super().scan_entries(*args, **options)

    async def scan_conversations(self, *args: Any, **options: Any) -> Any:
        """Read, later."""
        await self._pause()
        return await super().scan_conversations(*args, **options)


class World:
    """A session whose process comes and goes, with clients that come and go too."""

    def __init__(self, pick: Any) -> None:
        self.pick = pick
        self.store = MemoryStorage()
        self.clock = FakeClock()
        self.conversations = [1]
        self.clients: list[tuple[Client | Listener, Any]] = []
        self.cursors: list[tuple[Any, str]] = []

    async def open(self) -> None:
        """A new process."""
        self.storage = Unhurried(self.store)
        self.harness: Harness = await Harness.open(
            self.storage,
            registry=Registry([self.tools()]),
            models=ScriptedModel(self.turn, clock=self.clock, strict=False),
            clock=self.clock,
        )
        await self.harness.root(model="scripted:model")
        await self.harness.resume()

    def tools(self) -> Extension:
        """A tool that shows what it does, and fails now and then."""
        extension = Extension("world")

        @extension.tool(replay="safe")
        async def work(ctx: ToolContext, number: int) -> str:
            """Work."""
            ctx.output(f"working on {number}\n" * (number + 1))
            await self.clock.sleep(0.15 * number)
            await ctx.details({"number": number})
            ctx.diagnostic("it went well")
            if number == 3:
                raise ToolError("three is too many")
            return f"done {number}"

        return extension

    def turn(self, request: Any) -> Any:
        """What the model says next."""
        kind = self.pick(range(7))
        if kind == 0:
            return call("work", {"number": self.pick(range(4))})
        if kind == 1:
            return [say("Two at once."), call("work", {"number": 1}), call("work", {"number": 2}), call("gone", {})]
        if kind == 2:
            return cut(3, say(LONG).after(0.0, between=0.05), CutOff("the line broke"))
        if kind == 3:
            return [think("Hm. " * 30), say("Thought.")]
        return say(LONG).after(0.0, between=0.02)

    async def conversation(self) -> Conversation:
        """One of the conversations."""
        return await self.harness.conversation(self.pick(self.conversations))

    async def act(self, action: str) -> None:
        """One thing happens. What a lost session refuses is refused."""
        try:
            await getattr(self, action.replace(" ", "_"))()
        except (Error, OSError):
            if self.harness.session.usable:
                raise
            await self.end()

    async def submit(self) -> None:
        await (await self.conversation()).submit("go on")

    async def steer(self) -> None:
        await (await self.conversation()).submit("rather that way", when_busy="steer")

    async def note(self) -> None:
        await (await self.conversation()).write(Note("noted"))

    async def reset(self) -> None:
        await (await self.conversation()).write(ResetEntry(None), head=True)

    async def back(self) -> None:
        """The head moves to any entry, also an older one than it is at."""
        conversation = await self.conversation()
        known = await conversation.entries(limit=500)
        if known:
            async with self.harness.session.transaction() as tx:
                tx.append_entry(conversation.id, Note("from here"), head=self.pick(known).id)

    async def configure(self) -> None:
        await (await self.conversation()).configure(instructions=self.pick([None, "be brief", "be kind"]))

    async def fork(self) -> None:
        conversation = await self.conversation()
        known = await conversation.entries(limit=500)
        if known and len(self.conversations) < 4:
            self.conversations.append((await conversation.fork(self.pick(known).id)).id)

    async def abort(self) -> None:
        conversation = await self.conversation()
        stopping = asyncio.ensure_future(conversation.abort())
        await settle()
        await self.clock.advance(1)
        await asyncio.wait_for(stopping, 5)

    async def spawn(self) -> None:
        """A conversation that a task owns."""
        graph = await fresh_graph(self.harness)
        if graph["tasks"]:
            owner = self.pick(list(graph["tasks"].values()))
            with contextlib.suppress(Error):  # an owner that is about to end takes no more
                async with self.harness.session.transaction() as tx:
                    tx.put_conversation(owner=owner["id"])

    async def busy(self) -> None:
        """More commits than a slow client's frames are kept for."""
        conversation = await self.conversation()
        for number in range(105):
            await conversation.configure(instructions=f"number {number}")

    async def later(self) -> None:
        await self.clock.advance(0.1)

    async def much_later(self) -> None:
        await self.clock.advance(20)

    # clients

    async def view(self) -> None:
        conversation = await self.conversation()
        await self.join(Client(conversation.watch()), conversation)

    async def events(self) -> None:
        conversation = await self.conversation()
        await self.join(Listener(conversation.events()), conversation)

    async def graph(self) -> None:
        await self.join(Client(self.harness.watch_tasks()), None)

    async def join(self, client: Client | Listener, conversation: Any) -> None:
        joining = asyncio.ensure_future(self.open_client(client))
        if self.pick([True, False]):  # amid everything else
            await asyncio.sleep(0)
            await self.clock.advance(0.3)
        self.clients.append((await joining, conversation))

    async def open_client(self, client: Client | Listener) -> Client | Listener:
        return await client.__aenter__()

    async def read(self) -> None:
        for client, _ in self.clients:
            if self.pick([True, False]):
                await client.drain()

    async def leave(self) -> None:
        """A client goes, and what it knew is known."""
        if self.clients:
            client, conversation = self.clients.pop()
            if isinstance(client, Client):
                await client.drain()
                self.cursors.append((client.value, client.watch.cursor))
                if conversation is not None:
                    await self.come_back(client, conversation)
            await client.__aexit__(None, None, None)

    async def come_back(self, old: Client, conversation: Any) -> None:
        """Another connection of the same client: it goes on where the old one is."""
        client = Client(conversation.watch(after=old.watch.cursor))
        value = old.value
        await self.join(client, conversation)
        assert client.watch.resumed
        assert client.value == value

    async def come_again(self) -> None:
        """A client with any older cursor: either it goes on from there, or it gets everything anew."""
        conversation = await self.conversation()
        if not self.cursors:
            return
        value, cursor = self.pick(self.cursors)
        client = Client(conversation.watch(after=cursor))
        await self.join(client, conversation)
        if client.watch.resumed:
            assert client.value == value

    async def compare(self) -> None:
        """Every client knows what a newcomer gets."""
        for client, conversation in self.clients:
            views = Views(self.harness.session)
            opening = views.tasks(None) if conversation is None else views.conversation(conversation.id, None)
            async with Client(opening) as newcomer:
                await client.drain()  # work may go on: what is compared is one moment
                fresh, known = await newcomer.take_ready(), await client.take_ready()
                assert known == (fresh if isinstance(client, Client) else fresh["entries"])

    # processes

    async def reopen(self) -> None:
        await self.compare()
        await self.end()

    async def crash(self) -> None:
        """The process dies at the next commit, which may or may not be stored."""
        if self.pick([True, False]):
            self.storage.before = OSError("the process died")
        else:
            self.storage.after = OSError("the process died")
        await (await self.conversation()).configure(instructions="unheard")

    async def cut(self) -> None:
        """The process dies at some commit of the work that goes on."""
        self.storage.after = OSError("the process died")
        await self.clock.advance(1)
        if not self.harness.session.usable:
            await self.end()
        self.storage.after = None

    async def end(self) -> None:
        clients, self.clients = self.clients, []
        for client, _ in clients:
            await client.__aexit__(None, None, None)
        with contextlib.suppress(Error, OSError):
            await self.harness.close()
        await self.open()


async def live(seed: int) -> None:
    """One world from beginning to end."""
    chance = random.Random(seed)
    world = World(lambda of: chance.choice(list(of)))
    await world.open()
    for _ in range(chance.randint(10, 40)):
        await world.act(chance.choice(ACTIONS))
    for action in ("view", "events", "graph", "later", "compare"):
        await world.act(action)
    await world.end()
    await world.harness.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
async def test_frames_give_the_view_of_a_newcomer_whatever_happens(seed: int) -> None:
    async with asyncio.timeout(60):
        await live(seed)
