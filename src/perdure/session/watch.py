"""Bounded, ordered delivery of commits to one consumer each: frames of a document, or of a view."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Self

from perdure.base.delta import Operation, root_replacement
from perdure.base.errors import InvalidValue
from perdure.base.frozen import debugging, frozen
from perdure.base.jsonvalue import Json, encode
from perdure.session.documents import Document
from perdure.session.publication import DocumentKey, Publication

FRAMES_KEPT: Final = 100
"""Frames kept for a slow consumer; beyond it they are replaced by one frame with the whole value."""


class Frame:
    """One commit's step: the operations, and the value after them. Shared by all consumers: not for changing.

    `epoch` and `seq` say which commit it was. `cursor` names the place in the watch, where it can be resumed.
    """

    __slots__ = ("_encoded", "cursor", "epoch", "ops", "seq", "value")

    def __init__(self, epoch: int, seq: int, value: Json, ops: list[Operation], cursor: str = "") -> None:
        self.epoch = epoch
        self.seq = seq
        self.value = value
        self.ops = ops
        self.cursor = cursor
        self._encoded: bytes | None = None

    def whole(self) -> "Frame":
        """The same moment with one operation that replaces the root: what a consumer gets that lags."""
        return Frame(self.epoch, self.seq, self.value, root_replacement(self.value), self.cursor)

    def encode(self) -> bytes:
        """`{"seq": …, "ops": […]}` as JSON, made once for all consumers. What goes over a wire."""
        if self._encoded is None:
            self._encoded = encode({"seq": self.seq, "ops": self.ops})
        return self._encoded


class Watch:
    """One consumer. `value` is that of the frame delivered last (at first: of the attachment), `cursor` its place.

    Iterating ends when the watch is stopped, what is watched retires, or the session closes; `ended` tells which:
    "stopped", "retired", "closed". A consumer that lags gets one frame whose operation replaces the root. `since` is
    the commit that `value` showed at first. `resumed` says that a cursor was taken up: the frames after it follow;
    otherwise `value` is to be taken anew.
    """

    def __init__(
        self, value: Json, since: int, left: Callable[["Watch"], None], *, cursor: str = "", resumed: bool = False
    ) -> None:
        self.value = value
        self.cursor = cursor
        self.resumed = resumed
        self.ended: str | None = None
        self.since = since
        self._left = left
        self._frames: deque[Frame] = deque()
        self._waiter: asyncio.Future[None] | None = None

    def push(self, frame: Frame) -> None:
        """Take a frame (called by the session, never waits)."""
        if frame.seq <= self.since or self.ended is not None:
            return
        if len(self._frames) >= FRAMES_KEPT:
            self._frames.clear()
            frame = frame.whole()
        self._frames.append(frame)
        self._wake()

    def stop(self, how: str = "stopped") -> None:
        """End the watch; frames that came before stay readable unless the consumer stops it itself."""
        if self.ended is None:
            self.ended = how
            if how == "stopped":
                self._frames.clear()
            self._left(self)
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Frame:
        while not self._frames:
            if self.ended is not None:
                if self.ended == "retired":
                    self.value = None
                raise StopAsyncIteration
            if self._waiter is not None:
                raise InvalidValue("a watch has one consumer at a time", hint="open another watch")
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        frame = self._frames.popleft()
        self.value = frame.value
        self.cursor = frame.cursor
        return frame


class Watches:
    """All watches of a session, by document."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._by_key: dict[DocumentKey, list[Watch]] = {}
        self._freeze = debugging()

    def watched(self, key: DocumentKey) -> bool:
        return key in self._by_key

    async def attach(self, kind: Document[Any], key: DocumentKey) -> Watch:
        """Begin a watch, atomically with the line: the value of one commit, then every later frame."""
        async with self._session.transaction() as tx:
            value = await tx.value_of(kind, key[2], key=key[3])
            watch = Watch(self._shared(value), tx.seq - 1, lambda watch: self._detach(key, watch))
            self._by_key.setdefault(key, []).append(watch)
        try:
            await self._session.store.settled()
        except BaseException:
            watch.stop()
            raise
        return watch

    def _detach(self, key: DocumentKey, watch: Watch) -> None:
        remaining = [other for other in self._by_key.get(key, []) if other is not watch]
        if remaining:
            self._by_key[key] = remaining
        else:
            self._by_key.pop(key, None)

    def publish(self, publication: Publication) -> None:
        """Hand each changed document to those who watch it."""
        if not self._by_key:
            return
        for change in publication.documents:
            for watch in self._by_key.get(change.key, ()):
                if change.retired:
                    watch.stop("retired")
                else:
                    watch.push(Frame(publication.epoch, publication.seq, self._shared(change.value), change.ops))

    def close(self) -> None:
        """The session ends: so do all watches, after what was delivered."""
        for watches in list(self._by_key.values()):
            for watch in list(watches):
                watch.stop("closed")

    def _shared(self, value: Json) -> Json:
        return frozen(value) if self._freeze else value
