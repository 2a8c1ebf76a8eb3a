"""The session: owns a storage, runs one transaction after another, publishes what was stored."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Generic, Self, TypeVar

from perdure.base.clock import Clock, SystemClock
from perdure.base.errors import Error, SessionClosed, SessionPoisoned, StorageRejected
from perdure.base.ids import ROOT, ConversationId, EntryId
from perdure.session.commit import Commit, build
from perdure.session.committed import CommittedReads
from perdure.session.documents import Document
from perdure.session.forks import value_at
from perdure.session.line import Line
from perdure.session.publication import Publication
from perdure.session.transaction import Transaction
from perdure.session.watch import Watch, Watches
from perdure.storage.protocol import ImmediateStorage, PipelinedStorage, Storage

X = TypeVar("X", bound=Transaction)
T = TypeVar("T")
Rule = Callable[[Any], Awaitable[None]]
Listener = Callable[[Publication], None]


class Session(CommittedReads, Generic[X]):
    """One session, open for writing. `transaction_type` is what its blocks hand out.

    `rules` run at the end of every block, on the final candidate state, and may add writes or raise to roll back.
    `adopters` learn of a commit when it is the newest state, `listeners` when it is stored; both in commit order.
    """

    def __init__(self, storage: Storage, *, transaction_type: type[X], clock: Clock | None = None) -> None:
        super().__init__(storage)
        self.clock: Clock = clock or SystemClock()
        self.rules: list[Rule] = []
        self.adopters: list[Listener] = []
        self.listeners: list[Listener] = []
        self.on_end: list[Callable[[Error], None]] = []
        """Called once when nothing more will be published: the session was closed, or is poisoned."""
        self.line = Line()
        self.watches = Watches(self)
        self.tasks: Any = None
        """What schedules the session's tasks; the room above sets it."""
        self._transaction_type = transaction_type
        self._pipeline = storage if isinstance(storage, PipelinedStorage) and storage.pipelined else None
        self._immediate = storage if isinstance(storage, ImmediateStorage) else None
        self._storing: asyncio.Future[None] | None = None

    # opening and closing

    async def open(self) -> Self:
        """Take the storage, read what is live. A new session gets its root conversation."""
        head = await self.storage.open()
        try:
            self.store.next_id, self.store.seq, self.store.epoch = head.next_id, head.seq, head.epoch
            self.flushed = head.seq
            await self._load_live()
        except BaseException:
            await self.storage.close()
            raise
        if head.next_id <= ROOT:
            async with self.transaction() as tx:
                tx.put_conversation(owner=None)
        return self

    async def _load_live(self) -> None:
        working = self.store.working
        cursor = 0
        while page := await self.storage.scan_live(cursor=cursor, limit=1000):
            for task in page:
                working.tasks[task.id] = task
            cursor = page[-1].id
        cursor = 0
        while batch := await self.storage.scan_submissions(live=True, cursor=cursor, limit=1000):
            for submission in batch:
                working.submissions[submission.id] = submission
                if submission.request_id is not None:
                    working.by_request[(submission.conversation, submission.request_id)] = submission.id
            cursor = batch[-1].id

    async def close(self) -> None:
        """Wait for what is on its way to storage, end all watches, release the storage. May be called twice."""
        if self._closed:
            return
        self._closed = True
        self.line.close(SessionClosed("the session was closed"))
        if self._storing is not None:
            await asyncio.wait([self._storing])
        with contextlib.suppress(Error):
            await self._wait_flushed()
        # what was flushed is published in the next rounds of the loop
        while self._pipeline is not None and self._failed is None and self.flushed < self.store.seq:  # noqa: ASYNC110
            await asyncio.sleep(0)
        self.watches.close()
        self._tell_end(SessionClosed("the session was closed"))
        await self.storage.close()

    def _tell_end(self, error: Error) -> None:
        listeners, self.on_end = self.on_end, []
        for listener in listeners:
            listener(error)

    @property
    def epoch(self) -> int:
        return self.store.epoch

    @property
    def seq(self) -> int:
        """The newest commit, flushed or not."""
        return self.store.seq

    # transactions

    def transaction(self, *, progress: bool = False) -> X:
        """A block on the line. Waits for its turn in the order of asking.

        A `progress` block holds nothing but patches to existing documents: it is published at once and becomes
        durable with the next other commit.
        """
        return self._transaction_type(self, self.store, progress=progress)

    async def begin(self, tx: Transaction) -> None:
        """The turn of a transaction has come (called by its block)."""
        self.check_usable()
        await self.line.acquire()
        if self._failed is not None or self._closed:
            self.line.release()
            self.check_usable()

    def cut_off(self, tx: Transaction) -> None:
        """Take an open block back, whatever its code still does, and give the line to the next."""
        if tx.is_open:
            tx.end()
            self.line.release()

    async def finish(self, tx: Transaction) -> None:
        """The end of a block: rules, seal, store, adopt, publish (called by its block)."""
        try:
            self.line.check_hold()
            await tx.check_places()
            for rule in self.rules:
                await rule(tx)
            self.check_usable()
            tx.check_open()
            commit = build(tx, self.store, progress=tx.progress)
        except BaseException:
            self.cut_off(tx)
            raise
        tx.end()
        if commit is None:
            self.line.release()
        elif self._pipeline is not None:
            await self._commit_pipelined(self._pipeline, commit)
        else:
            await self._commit_in_turn(commit)

    async def _commit_in_turn(self, commit: Commit) -> None:
        """Store first, then adopt and publish; the line is held until then, also if the caller is cancelled."""
        if self._immediate is not None:
            try:
                stored = self._immediate.commit_now(commit.batch)
            except BaseException as error:
                self._not_stored(error)
                self.line.release()
                raise
            if stored:
                self._take_over(commit)
                return
        self._storing = asyncio.ensure_future(self._store_and_adopt(commit))
        await asyncio.shield(self._storing)

    async def _store_and_adopt(self, commit: Commit) -> None:
        try:
            await self.storage.commit(commit.batch)
        except BaseException as error:
            self._not_stored(error)
            self.line.release()
            raise
        self._take_over(commit)

    def _take_over(self, commit: Commit) -> None:
        try:
            self._adopt(commit)
            self.flushed = commit.batch.seq
            self._publish(commit.publication)
        finally:
            self.line.release()

    def _not_stored(self, error: BaseException) -> None:
        if not isinstance(error, StorageRejected):
            self._poison(error)

    async def _commit_pipelined(self, pipeline: PipelinedStorage, commit: Commit) -> None:
        """Adopt at once and free the line; publish when storage has flushed, which it may have done on the spot."""
        try:
            flush = pipeline.enqueue(commit.batch)
        except BaseException as error:
            self._not_stored(error)
            self.line.release()
            raise
        if _is_stored(flush) and self.flushed == commit.batch.seq - 1:
            self._last_flush = None  # nothing is on its way any more
            self._take_over(commit)
            return
        try:
            self._last_flush = flush
            self._adopt(commit)
        except BaseException as error:
            self._not_stored(error)
            raise
        finally:
            self.line.release()
        flush.add_done_callback(lambda done: self._flushed(commit, done))
        try:
            await asyncio.shield(flush)
        except Error as error:
            self._poison(error)  # a flush that was done at once: its callback comes a round later
            raise

    def _flushed(self, commit: Commit, flush: asyncio.Future[int]) -> None:
        error = asyncio.CancelledError() if flush.cancelled() else flush.exception()
        if error is not None:
            self._poison(error)
            return
        self.flushed = commit.batch.seq
        self._publish(commit.publication)

    def _adopt(self, commit: Commit) -> None:
        self.store.next_id = commit.batch.next_id
        self.store.seq = commit.batch.seq
        self.store.working.adopt(commit.publication, commit.documents)
        for adopt in self.adopters:
            adopt(commit.publication)
        self.store.working.trim(self.flushed, self.watches.watched)

    def _publish(self, publication: Publication) -> None:
        for listener in tuple(self.listeners):
            listener(publication)
        self.watches.publish(publication)

    def _poison(self, error: BaseException) -> None:
        if self._failed is None:
            self._failed = error if isinstance(error, Error) else SessionPoisoned(f"a commit failed: {error!r}")
            self._failed.__cause__ = error if self._failed is not error else None
            self.line.close(self._poisoned())
            self.watches.close()
            self._tell_end(self._poisoned())

    async def snapshot_at(
        self, kind: Document[T], conversation: ConversationId, entry_id: EntryId, *, key: str | None = None
    ) -> T | None:
        """The value a rewindable document had at an entry's commit; through forks, at the ancestor that wrote it."""
        async with self.transaction() as tx:
            value = self._shared(await value_at(tx, kind, conversation, entry_id, key=key))
        return None if value is None else kind.codec.from_json(value)

    @contextlib.asynccontextmanager
    async def watch_document(
        self, kind: Document[T], scope_id: int | None = None, *, key: str | None = None
    ) -> AsyncIterator[Watch]:
        """Watch a document: its value now, then a frame for every commit that changes it, without gaps."""
        watch = await self.watches.attach(kind, self.store.key_of(kind, scope_id, key))
        try:
            yield watch
        finally:
            watch.stop()


def _is_stored(flush: asyncio.Future[int]) -> bool:
    return flush.done() and not flush.cancelled() and flush.exception() is None
