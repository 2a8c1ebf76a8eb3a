"""Reading a session without owning it: for programs that only look, also while another process has it open."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from os import PathLike

from perdure.session.committed import CommittedReads
from perdure.storage.open import open_storage
from perdure.storage.protocol import Storage


class SessionReader(CommittedReads):
    """The committed state when it was opened, or later: `snapshot`, `document_keys`, `conversation`. What was read once
    is kept, so open anew to see what came since. Starts nothing and writes nothing."""

    def _poison(self, error: BaseException) -> None:
        raise AssertionError("a reader commits nothing")  # pragma: no cover


@asynccontextmanager
async def read_session(where: str | PathLike[str] | Storage) -> AsyncIterator[SessionReader]:
    """Open a session read-only. Raises `NotFound` where there is none, `TooNew` if newer code wrote it."""
    storage = open_storage(where, read_only=True)
    head = await storage.open()
    try:
        reader = SessionReader(storage)
        reader.store.seq, reader.store.next_id, reader.store.epoch = head.seq, head.next_id, head.epoch
        yield reader
    finally:
        await storage.close()
