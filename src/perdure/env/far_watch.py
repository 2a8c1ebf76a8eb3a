"""Changes below a folder on the far side."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from perdure.env.errors import ConnectionLost
from perdure.env.far import Service, raise_told
from perdure.env.protocol import Change


class FarWatching:
    """Changes since it began. Use it in `async with`. What is not fetched is joined by path, so it stays small."""

    def __init__(self, service: Service, path: str, cwd: str) -> None:
        self._service = service
        self._path = path
        self._changes: dict[str, str] = {}
        self._news = asyncio.Event()
        self._begun = False
        self._end: dict[str, Any] | None = None
        self._broken = False
        self._number = service.ask("watch", self._listen, path=path, cwd=cwd)

    @classmethod
    async def begun(cls, service: Service, path: str, cwd: str) -> "FarWatching":
        """One that has looked for the first time. Raises what stands in its way."""
        made = cls(service, path, cwd)
        try:
            while not made._begun:
                await made._news.wait()
                made._news.clear()
                made._raise_end()
        except BaseException:
            made._leave()
            raise
        return made

    def __aiter__(self) -> AsyncIterator[tuple[Change, ...]]:
        return self

    async def __anext__(self) -> tuple[Change, ...]:
        """The next batch. Raises `ConnectionLost`: what changed meanwhile is not known, so look anew."""
        while not self._changes:
            self._raise_end()
            await self._news.wait()
            self._news.clear()
        changes, self._changes = self._changes, {}
        return tuple(Change(kind, path) for path, kind in sorted(changes.items()))  # type: ignore[arg-type]

    async def __aenter__(self) -> "FarWatching":
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._leave()

    def _leave(self) -> None:
        self._service.forget(self._number)
        self._service.ask("unwatch", lambda head, data: None, watch=self._number)

    def _listen(self, head: dict[str, Any] | None, data: bytes) -> None:
        if head is None:
            self._broken = True
        elif "changes" in head:
            self._begun = True
            for kind, path in head["changes"]:
                self._changes[path] = _joined(self._changes.get(path), kind)
        else:
            self._end = head
        self._news.set()

    def _raise_end(self) -> None:
        if self._broken:
            raise self._service.broken or ConnectionLost("the connection broke while watching")
        if self._end is not None:
            raise_told(self._end, self._path)
            raise ConnectionLost("the watch has ended there")


def _joined(before: str | None, now: str) -> str:
    """Two changes of one file as one, by what is there in the end."""
    if before == "added" and now == "modified":
        return "added"
    return "modified" if before == "deleted" and now == "added" else now
