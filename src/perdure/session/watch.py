"""Bounded, ordered delivery of a document's commits to one consumer each."""

import asyncio
from collections import deque
from typing import Any, Final, Self

import msgspec

from perdure.base.delta import Operation
from perdure.base.frozen import debugging, frozen
from perdure.base.jsonvalue import Json
from perdure.session.documents import Document
from perdure.session.publication import DocumentKey, Publication

FRAMES_KEPT: Final = 100
"""Frames kept for a slow consumer; beyond it they are replaced by one frame with the whole value."""


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One commit's step of a document: the operations, and the value after them. Shared: not for changing."""

    epoch: int
    seq: int
    value: Json
    ops: list[Operation]


class DocumentWatch:
    """One consumer of a document. `value` is that of the frame delivered last (at first: of the attachment).

    Iterating ends when the watch is stopped, the document retires, or the session closes; `ended` tells which:
    "stopped", "retired", "closed". A consumer that lags gets one frame whose operation replaces the root.
    """

    def __init__(self, watches: "Watches", kind: Document[Any], key: DocumentKey, value: Json, since: int) -> None:
        self.value = value
        self.ended: str | None = None
        self._watches = watches
        self._kind = kind
        self._key = key
        self._since = since
        self._frames: deque[Frame] = deque()
        self._wake: asyncio.Event = asyncio.Event()

    def push(self, frame: Frame) -> None:
        """Take a frame (called by the session, never waits)."""
        if frame.seq <= self._since or self.ended is not None:
            return
        if len(self._frames) >= FRAMES_KEPT:
            self._frames.clear()
            frame = Frame(frame.epoch, frame.seq, frame.value, [{"op": "replace", "path": "", "value": frame.value}])
        self._frames.append(frame)
        self._wake.set()

    def stop(self, how: str = "stopped") -> None:
        """End the watch; frames that came before stay readable unless the consumer stops it itself."""
        if self.ended is None:
            self.ended = how
            if how == "stopped":
                self._frames.clear()
            self._watches.detach(self._key, self)
            self._wake.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Frame:
        while not self._frames:
            if self.ended is not None:
                if self.ended == "retired":
                    self.value = None
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()
        frame = self._frames.popleft()
        self.value = frame.value
        return frame


class Watches:
    """All watches of a session, by document."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._by_key: dict[DocumentKey, list[DocumentWatch]] = {}
        self._freeze = debugging()

    def watched(self, key: DocumentKey) -> bool:
        return key in self._by_key

    async def attach(self, kind: Document[Any], key: DocumentKey) -> DocumentWatch:
        """Begin a watch, atomically with the line: the value of one commit, then every later frame."""
        async with self._session.transaction() as tx:
            value = await tx.value_of(kind, key[2], key=key[3])
            watch = DocumentWatch(self, kind, key, self._shared(value), tx.seq - 1)
            self._by_key.setdefault(key, []).append(watch)
        try:
            await self._session.store.settled()
        except BaseException:
            watch.stop()
            raise
        return watch

    def detach(self, key: DocumentKey, watch: DocumentWatch) -> None:
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
