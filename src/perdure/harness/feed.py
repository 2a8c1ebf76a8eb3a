"""Views of a session: each is kept current by commits once, for everyone who watches it."""

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from perdure.base import delta
from perdure.base.delta import Operation, root_replacement
from perdure.base.errors import Error
from perdure.base.frozen import debugging, frozen
from perdure.base.jsonvalue import Json
from perdure.session.publication import Publication
from perdure.session.session import Session
from perdure.session.watch import FRAMES_KEPT, Frame, Watch
from perdure.storage.protocol import Storage
from perdure.storage.records import Submission
from perdure.tasks.transaction import TaskTransaction

VALUE_EVERY: Final = 25
"""Of the steps that are kept for those who come back, every so many-th has its whole value; the others are applied."""
LINGER_SECONDS: Final = 60.0
"""How long a view that nobody watches is kept current: who lost the connection is mostly back within a minute."""


class Step(NamedTuple):
    """What one commit changed in a view. `entries` and `submissions` are for those who tell events from it."""

    value: Json
    ops: list[Operation]
    entries: list[Json]
    submissions: list[Submission]


MOVED: Final = Step(None, [], [], [])
"""A commit needs what is not in memory: the view is read from the store anew."""


class Source(Protocol):
    """What a view is made of."""

    name: str
    """Names the view within its session."""

    async def begin(self, tx: TaskTransaction) -> None:
        """Fix the moment that `load` reads: the one before this transaction."""
        ...

    async def load(self, storage: Storage) -> Json:
        """The value at the fixed moment. The store holds that commit, and perhaps later ones."""
        ...

    def step(self, value: Json, publication: Publication) -> Step | None:
        """The next value, None if the commit changes nothing here. `MOVED` if it cannot tell: `load` then reads the
        moment of this commit."""
        ...


class ViewFrame(Frame):
    """A frame of a view, with what events are told from. `derived` holds the events once somebody asked for them."""

    __slots__ = ("before", "derived", "entries", "is_whole", "submissions")

    def __init__(self, epoch: int, seq: int, step: Step, cursor: str, before: Json) -> None:
        super().__init__(epoch, seq, step.value, step.ops, cursor)
        self.before = before
        self.entries = step.entries
        self.submissions = step.submissions
        self.is_whole = False
        self.derived: list[Any] | None = None

    def whole(self) -> "ViewFrame":
        """The same moment with one operation that replaces the root."""
        if self.is_whole:
            return self
        whole = ViewFrame(
            self.epoch, self.seq, Step(self.value, root_replacement(self.value), [], []), self.cursor, None
        )
        whole.is_whole = True
        return whole


class ViewWatch(Watch):
    """A consumer of a view. `every_commit`: also of commits that change nothing in it but a submission."""

    every_commit = False


class _Kept(NamedTuple):
    seq: int
    step: Step
    value: Json
    """The value after the step; None where it is had by applying the steps since one that has it."""


class Feed:
    """One view, its newest value, and its newest steps for those who come back."""

    def __init__(self, source: Source, address: str, epoch: int, *, freeze: bool) -> None:
        self.source = source
        self.users = 0
        """Those who watch, and those who are about to."""
        self.loaded = False
        self.lock = asyncio.Lock()
        self.cancel_linger: Callable[[], None] | None = None
        self.watches: list[ViewWatch] = []
        self._address = address
        self._epoch = epoch
        self._freeze = freeze
        self._value: Json = None
        self._moment = 0
        self._arrived: list[Publication] = []
        self._kept: deque[_Kept] = deque()

    async def begin(self, tx: TaskTransaction) -> None:
        """Take the commits after this moment."""
        await self.source.begin(tx)
        self._moment = tx.seq - 1

    async def load(self, storage: Storage) -> None:
        """Read the view at the moment fixed, then follow what was committed meanwhile. Called under `lock`."""
        value = await self.source.load(storage)
        self._begin_with(value)
        arrived, self._arrived = self._arrived, []
        self.loaded = True
        for publication in arrived:
            self.take(publication)

    def _begin_with(self, value: Json) -> None:
        value = frozen(value) if self._freeze else value
        whole = Step(value, root_replacement(value), [], [])
        self._kept.clear()
        self._kept.append(_Kept(self._moment, whole, value))
        frame = ViewFrame(self._epoch, self._moment, whole, self._cursor(self._moment), self._value)
        frame.is_whole = True
        self._value = value
        for watch in self.watches:
            watch.push(frame)

    def take(self, publication: Publication) -> bool:
        """Follow one commit; False if the view has to be loaded anew first."""
        if not self.loaded:
            if publication.seq > self._moment:
                self._arrived.append(publication)
            return True
        if publication.seq <= self._moment:
            return True
        step = self.source.step(self._value, publication)
        if step is MOVED:
            self._moment = publication.seq
            self.loaded = False
            return False
        if step is not None:
            self._push(step, publication.seq)
        return True

    def _push(self, step: Step, seq: int) -> None:
        if self._freeze:
            step = step._replace(value=frozen(step.value))
        before, self._value = self._value, step.value
        frame = ViewFrame(self._epoch, seq, step, self._cursor(seq), before)
        self._keep(step, seq)
        for watch in self.watches:
            if step.ops or watch.every_commit:
                watch.push(frame)

    def _keep(self, step: Step, seq: int) -> None:
        whole = len(self._kept) % VALUE_EVERY == 0
        self._kept.append(_Kept(seq, step._replace(value=None), step.value if whole else None))
        if len(self._kept) > FRAMES_KEPT + VALUE_EVERY:
            for _ in range(VALUE_EVERY):
                self._kept.popleft()

    def _cursor(self, seq: int) -> str:
        return f"{self._address}.{self._epoch}.{seq}"

    def attach(
        self, watch_type: type[ViewWatch], after: str | None, now: int, left: Callable[[Watch], None]
    ) -> ViewWatch:
        """A watch from the cursor on, or from now on where there is none, or none that can be served."""
        since = None if after is None else self._served(after, now)
        if since is None:
            watch = watch_type(self._value, now, left, cursor=self._cursor(now))
        else:
            watch = self._resumed(watch_type, since, left)
        self.watches.append(watch)
        return watch

    def _served(self, cursor: str, now: int) -> int | None:
        """The commit that a cursor names, if everything after it is at hand; a cursor of another session, view or
        opening, of the future, or from too long ago is not served."""
        address, _, seq = cursor.rpartition(".")
        if address != f"{self._address}.{self._epoch}" or not seq.isascii() or not seq.isdigit() or len(seq) > 18:
            return None
        return int(seq) if self._kept[0].seq <= int(seq) <= now else None

    def _resumed(self, watch_type: type[ViewWatch], since: int, left: Callable[[Watch], None]) -> ViewWatch:
        value = self._kept[0].value
        later: list[ViewFrame] = []
        for kept in list(self._kept)[1:]:
            before, value = value, delta.apply(value, kept.step.ops) if kept.value is None else kept.value
            if kept.seq <= since:
                continue
            step = kept.step._replace(value=frozen(value) if self._freeze else value)
            later.append(ViewFrame(self._epoch, kept.seq, step, self._cursor(kept.seq), before))
        begin = later[0].before if later else value
        watch = watch_type(begin, since, left, cursor=self._cursor(since), resumed=True)
        for frame in later:
            if frame.ops or watch.every_commit:
                watch.push(frame)
        return watch


class Stoppable(Protocol):
    """What somebody watches with."""

    def stop(self) -> None:
        """End it."""
        ...


T = TypeVar("T", bound=Stoppable)


class Watching(Generic[T]):
    """A watch for the time of a block: begun when it is entered, stopped when it is left."""

    def __init__(self, begin: Callable[[], Awaitable[T]]) -> None:
        self._begin = begin
        self._begun: T | None = None

    async def __aenter__(self) -> T:
        self._begun = await self._begin()
        return self._begun

    async def __aexit__(self, *exc: object) -> None:
        if self._begun is not None:
            self._begun.stop()


class Feeds:
    """The views of a session that somebody watches, or watched a moment ago."""

    def __init__(self, session: Session[TaskTransaction]) -> None:
        self._session = session
        self._feeds: dict[str, Feed] = {}
        self._token = os.urandom(6).hex()
        """Part of every cursor, so that no other opening of any session, in whatever process, takes it for its own."""
        self._freeze = debugging()
        self._seq = session.flushed
        self._reached: list[tuple[int, asyncio.Future[None]]] = []
        self._reloads: set[asyncio.Task[None]] = set()
        session.listeners.append(self._published)
        session.on_end.append(self._ended)

    async def attach(self, source: Source, watch_type: type[ViewWatch], after: str | None) -> ViewWatch:
        """Begin a watch, atomically with the line: it has everything committed before, and a frame for each change
        after. Only the documents are read on the line; entries and tasks are read beside it."""
        async with self._session.transaction() as tx:
            feed = self._feeds.get(source.name)
            if feed is None:
                feed = Feed(source, f"{self._token}.{source.name}", self._session.epoch, freeze=self._freeze)
                await feed.begin(tx)
                self._feeds[source.name] = feed
            feed.users += 1
            since = tx.seq - 1
        if feed.cancel_linger is not None:
            feed.cancel_linger()
            feed.cancel_linger = None
        held = feed
        try:
            await self._wait_published(since)
            async with feed.lock:
                await self._load(feed)
                return feed.attach(watch_type, after, self._seq, lambda watch: self._left(held, watch))
        except BaseException:
            self._leave(feed)
            raise

    async def _load(self, feed: Feed) -> None:
        while not feed.loaded:
            self._session.check_usable()
            await feed.load(await self._session.store.settled())

    def _left(self, feed: Feed, watch: Watch) -> None:
        feed.watches = [other for other in feed.watches if other is not watch]
        self._leave(feed)

    def _leave(self, feed: Feed) -> None:
        feed.users -= 1
        if feed.users or self._feeds.get(feed.source.name) is not feed:
            return
        if not feed.loaded or not self._session.usable:
            del self._feeds[feed.source.name]
            return
        clock = self._session.clock
        feed.cancel_linger = clock.call_at(clock.now() + LINGER_SECONDS, lambda: self._drop(feed))

    def _drop(self, feed: Feed) -> None:
        feed.cancel_linger = None
        if not feed.users and self._feeds.get(feed.source.name) is feed:
            del self._feeds[feed.source.name]

    # following commits

    def _published(self, publication: Publication) -> None:
        self._seq = publication.seq
        if self._feeds:
            for name in concerned(publication):
                feed = self._feeds.get(name)
                if feed is not None and not feed.take(publication):
                    self._reload(feed)
        if self._reached:
            for seq, future in self._reached:
                if seq <= self._seq and not future.done():
                    future.set_result(None)
            self._reached = [waiting for waiting in self._reached if not waiting[1].done()]

    def _reload(self, feed: Feed) -> None:
        job = asyncio.ensure_future(self._reloaded(feed))
        self._reloads.add(job)
        job.add_done_callback(self._reloads.discard)

    async def _reloaded(self, feed: Feed) -> None:
        try:
            async with feed.lock:
                await self._load(feed)
        except Exception:  # the store cannot be read: whoever asks again is told why
            self._feeds.pop(feed.source.name, None)
            for watch in list(feed.watches):
                watch.stop("closed")

    async def _wait_published(self, seq: int) -> None:
        if self._seq >= seq:
            return
        self._session.check_usable()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reached.append((seq, future))
        await future

    def _ended(self, error: Error) -> None:
        """The session is closed or lost: so is every view, after what was delivered."""
        feeds, self._feeds = self._feeds, {}
        for feed in feeds.values():
            if feed.cancel_linger is not None:
                feed.cancel_linger()
            for watch in list(feed.watches):
                watch.stop("closed")
        for _, future in self._reached:
            if not future.done():
                future.set_exception(error)
        for job in self._reloads:
            job.cancel()


def concerned(publication: Publication) -> set[str]:
    """The names of the views that a commit may change."""
    names = {f"c{change.key[2]}" for change in publication.documents if change.key[1] == "conversation"}
    names.update(f"c{entry.conversation}" for entry in publication.entries)
    names.update(f"c{submission.conversation}" for submission in publication.submissions)
    if publication.tasks or publication.conversations:
        names.add("tasks")
    return names
