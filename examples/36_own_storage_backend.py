"""A storage backend of one's own: a session in pairs of key and value, and the suite that says that it is right.

The pairs are a table of two columns in a file here; Redis, DynamoDB or LMDB do as well. All that is asked of them is to
write some pairs together or not at all, and to give all of them back at an open. The tables that answer questions are
those of the memory store; blobs show how to leave what is large in the other place.
"""

import asyncio
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from perdure import Harness
from perdure.base.errors import StorageError, StorageFull, StorageUncertain
from perdure.storage.contents import Changes, Contents, apply
from perdure.storage.lock import OwnerLock
from perdure.storage.memory import MemoryReads
from perdure.storage.records import Batch, Blob, Conversation, Document, Entry, Revision, StorageHead, Submission, Task
from perdure.testing.scripted_model import ScriptedModel
from perdure.testing.storage_conformance import StorageConformance

ROWS: dict[str, Any] = {
    "conversations": Conversation,
    "entries": Entry,
    "tasks": Task,
    "submissions": Submission,
    "documents": Document,
    "revisions": Revision,
    "blobs": Blob,
    "head": StorageHead,
}


class Pairs:
    """The other place: what is to be replaced by one's own."""

    def __init__(self, path: str, flush: bool) -> None:
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute(f"PRAGMA synchronous = {'FULL' if flush else 'OFF'}")
        self.db.execute("CREATE TABLE IF NOT EXISTS pair(key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID")

    def get(self, key: bytes) -> bytes | None:
        row = self.db.execute("SELECT value FROM pair WHERE key = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def all(self) -> Iterator[tuple[bytes, bytes]]:
        yield from self.db.execute("SELECT key, value FROM pair ORDER BY key")

    def write(self, pairs: dict[bytes, bytes | None]) -> None:
        """All of them or none; None takes a pair away. Returns once that is as durable as promised."""
        self.db.execute("BEGIN IMMEDIATE")
        try:
            for key, value in pairs.items():
                if value is None:
                    self.db.execute("DELETE FROM pair WHERE key = ?", (key,))
                else:
                    self.db.execute("INSERT OR REPLACE INTO pair VALUES (?, ?)", (key, value))
            self.db.execute("COMMIT")
        except BaseException:
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")
            raise


class PairStorage(MemoryReads):
    """A session in pairs. Everything that a store promises is in `open`, `commit` and `close`."""

    def __init__(self, path: str | os.PathLike[str], *, flush: bool = True) -> None:
        super().__init__()
        self.flush = flush
        self.lock = OwnerLock(path)  # two owners at a time would ruin any store: the first promise is that there is one
        self.pairs: Any = None

    @property
    def location(self) -> str:
        return f"pairs:{self.lock.store}"

    async def open(self) -> StorageHead:
        self.lock.acquire()  # raises StorageInUse with whoever has it, at once
        try:
            self.pairs = Pairs(self.lock.store, self.flush)
            self._stored = stored = Contents()
            for key, value in self.pairs.all():
                load(stored, key, value)
            stored.epoch += 1
            head = StorageHead(stored.next_id, stored.seq, stored.epoch, schema_version=1)
            self.pairs.write(pair("head", 0, head))
        except BaseException:
            await self.close()
            raise
        self._open = True
        return head

    async def commit(self, batch: Batch) -> int:
        stored = self._now()
        changes = Changes(stored)
        try:
            apply(changes, batch)  # raises StorageRejected for a batch that does not fit
            written = dict(part for row in changes.rows() for part in as_pairs(*row).items())
            head = StorageHead(batch.next_id, batch.seq, stored.epoch, schema_version=1)
            self.pairs.write(written | pair("head", 0, head))
        except BaseException as error:
            changes.take_back()  # a commit that failed is not seen, whether or not it is stored
            if isinstance(error, sqlite3.Error):
                raise meaning_of(error, self.location) from error
            raise
        stored.seq, stored.next_id = batch.seq, batch.next_id
        for blob in batch.blobs:
            stored.blobs[blob.digest] = msgspec.structs.replace(stored.blobs[blob.digest], content=b"")
        return batch.seq

    async def close(self) -> None:
        self._open = False
        if self.pairs is not None:
            self.pairs.db.close()
        self.lock.release()

    async def blob(self, digest: str) -> Blob | None:
        value = self.pairs.get(key_of("blobs", digest)) if digest in self._now().blobs else None
        return None if value is None else msgspec.msgpack.decode(value, type=Blob)


def key_of(*parts: Any) -> bytes:
    """A key: the parts as JSON, so that any text may stand in it."""
    return msgspec.json.encode(parts)


def pair(table: str, key: Any, row: Any) -> dict[bytes, bytes | None]:
    return {key_of(table, key): None if row is None else msgspec.msgpack.encode(row)}


def as_pairs(table: str, key: Any, before: Any, now: Any) -> dict[bytes, bytes | None]:
    """What is written for a changed row. Request ids are found again in the submissions that hold them."""
    if table == "requests":
        return {}
    if table != "revisions":
        return pair(table, key, now)
    old, new = set(before or ()), set(now or ())  # of a long history only what is new
    gone = {key_of(table, [key, one.seq]): None for one in old - new}
    return gone | {key_of(table, [key, one.seq]): msgspec.msgpack.encode(one) for one in new - old}


def load(stored: Contents, key: bytes, value: bytes) -> None:
    """Put a pair back into the tables."""
    table, id = msgspec.json.decode(key)
    row = msgspec.msgpack.decode(value, type=ROWS[table])
    if table == "head":
        stored.seq, stored.next_id, stored.epoch = row.seq, row.next_id, row.epoch
    elif table == "revisions":
        history = (*stored.revisions.get(id[0], ()), row)
        stored.revisions[id[0]] = tuple(sorted(history, key=lambda one: one.seq))
    elif table == "blobs":
        stored.blobs[id] = msgspec.structs.replace(row, content=b"")
    else:
        getattr(stored, table)[id] = row
        if table == "submissions" and row.request_id is not None:
            stored.requests[row.conversation, row.request_id] = id


def meaning_of(error: sqlite3.Error, where: str) -> StorageError:
    """Say what is certain: only `StorageRejected`, `StorageFull` and `StorageBusy` mean that nothing was stored."""
    if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
        return StorageFull(f"no room for {where}")
    return StorageUncertain(f"a commit to {where} failed: {error}")


class TestPairs(StorageConformance):
    def make_storage(self, folder: Path) -> PairStorage:
        return PairStorage(folder / "session.pairs", flush=False)  # the suite cuts no power


class TestPairsReopened(TestPairs):
    reopen = True


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for question in ("Who are you?", "And who was I?"):
            store = PairStorage(f"{folder}/talk")
            async with Harness.open(store, models=ScriptedModel(["Somebody in pairs."])) as harness:
                root = await harness.root(model="scripted:model")
                answer = await (await root.submit(question)).wait()
                print(len(await root.entries()), "entries:", answer.text)


if __name__ == "__main__":
    asyncio.run(main())
    suite = subprocess.run(
        [sys.executable, "-m", "pytest", __file__, "-q", "-p", "no:cacheprovider"], capture_output=True, text=True
    )
    print(suite.stdout if suite.returncode else "the suite passes, also with the store reopened after every commit")
    sys.exit(suite.returncode)
