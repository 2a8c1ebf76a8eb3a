"""What the tests of this room share: documents, an entry, and stores that fail or wait when told to."""

import asyncio
import contextlib
from collections import deque
from typing import Any, TypedDict

import msgspec

from perdure.base.ids import ROOT, ConversationId, EntryId
from perdure.session.documents import Document
from perdure.session.entries import entry
from perdure.session.publication import Publication
from perdure.session.session import Session
from perdure.session.transaction import Transaction
from perdure.storage.memory import MemoryStorage
from perdure.storage.protocol import Storage
from perdure.storage.records import Batch, StorageHead
from perdure.testing.reopening import ForwardedReads

Plain = Session[Transaction]


class Plan(TypedDict):
    """The value of most documents here."""

    stops: list[str]


@entry("app.note")
class Note:
    """An entry of an application."""

    text: str


class Place(msgspec.Struct):
    """A value that no draft can edit."""

    name: str
    size: int = 1


def empty_plan() -> Plan:
    """A plan without stops."""
    return {"stops": []}


Trip: Document[Plan] = Document("trip.plan", Plan, history="rewindable", fork="as_of", initial=empty_plan)
Current: Document[Plan] = Document("trip.current", Plan, fork="current", initial=empty_plan)
Fresh: Document[Plan] = Document("trip.fresh", Plan, initial=empty_plan)
Global: Document[Plan] = Document("trip.global", Plan, scope="session", initial=empty_plan)
Here: Document[Place] = Document("trip.here", Place)
Loose: Document[Any] = Document("trip.loose", dict[str, Any], initial=dict)
Member: Document[Plan] = Document("trip.member", Plan, family=True, fork="current")


async def opened(storage: Storage | None = None) -> Plain:
    """An open session, by default in memory."""
    return await Session(storage or MemoryStorage(), transaction_type=Transaction).open()


async def note(session: Plain, text: str = "x", conversation: ConversationId = ROOT) -> EntryId:
    """Append one entry in a commit of its own."""
    async with session.transaction() as tx:
        return tx.append_entry(conversation, Note(text))


async def add_stop(session: Plain, kind: Document[Plan], stop: str, conversation: int | None = ROOT) -> None:
    """Edit a plan in a commit of its own."""
    async with session.transaction() as tx:
        plan = await tx.doc(kind, conversation)
        plan["stops"].append(stop)


def publications(session: Plain) -> list[Publication]:
    """Everything that the session publishes from now on."""
    seen: list[Publication] = []
    session.listeners.append(seen.append)
    return seen


class FailingStorage(ForwardedReads):
    """Raises what it is told to, before or after the commit is stored."""

    def __init__(self, inner: Storage | None = None) -> None:
        super().__init__(inner or MemoryStorage())
        self.before: BaseException | None = None
        self.after: BaseException | None = None
        self.gate: asyncio.Event | None = None
        self.commits = 0

    @property
    def location(self) -> str:
        """Where the store lies, for people."""
        return self.inner.location

    async def open(self) -> StorageHead:
        """Open the store."""
        return await self.inner.open()

    async def commit(self, batch: Batch) -> int:
        """Commit, unless told otherwise."""
        self.commits += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.before is not None:
            raise self.before
        seq = await self.inner.commit(batch)
        if self.after is not None:
            raise self.after
        return seq

    async def close(self) -> None:
        """Close the store."""
        await self.inner.close()


class FlushingStorage(FailingStorage):
    """A pipelined store that flushes when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.at_once = True
        self.on_the_spot = False
        """Flush before `enqueue` returns, as a store does whose disk is quick."""
        self.waiting: deque[tuple[Batch, asyncio.Future[int]]] = deque()
        self.broken: BaseException | None = None

    @property
    def pipelined(self) -> bool:
        """Always."""
        return True

    def enqueue(self, batch: Batch) -> "asyncio.Future[int]":
        """Take a batch."""
        flush: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.waiting.append((batch, flush))
        if self.on_the_spot:
            self.flush()
        elif self.at_once:
            asyncio.get_running_loop().call_soon(self.flush)
        return flush

    def flush(self, count: int = 1000) -> None:
        """Store the oldest batches, in order."""
        for _ in range(min(count, len(self.waiting))):
            batch, flush = self.waiting.popleft()
            if self.broken is not None:
                flush.set_exception(self.broken)
                continue
            with contextlib.suppress(StopIteration):
                self.inner.commit(batch).send(None)  # memory never waits
            flush.set_result(batch.seq)


async def ready(rounds: int = 20) -> None:
    """Let everything that can run now run."""
    for _ in range(rounds):
        await asyncio.sleep(0)
