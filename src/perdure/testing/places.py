"""Where a session's store lies between two processes, and what a crash at a moment would leave there."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol, Self

import apsw

from perdure.storage.jsonl.store import JsonlStorage
from perdure.storage.memory import MemoryStorage
from perdure.storage.protocol import Durability, Storage
from perdure.storage.sqlite.store import CHECKPOINT_PAGES, SqliteStorage

IN_MEMORY: Final = Path("/dev/shm")
"""Files here outlive a process, which is all that a simulated crash asks of them, and a flush costs nothing."""
STORE: Final = "session.perdure"
PAGE_BYTES: Final = 4096


class Place(Protocol):
    """Where one session's store lies: outlives the processes that open it."""

    def store(self) -> Storage:
        """A closed store on what is there now."""
        ...

    def copy(self) -> Self:
        """What a process that dies now leaves behind, beside the one that goes on."""
        ...

    def remove(self) -> None:
        """Leave nothing behind."""
        ...


class MemoryPlace:
    """A store in memory."""

    def __init__(self) -> None:
        self._storage = MemoryStorage()

    def store(self) -> Storage:
        """A copy of what the last process left."""
        self._storage = self._storage.copy()
        return self._storage

    def copy(self) -> Self:
        """Another one with what is stored now."""
        other = type(self)()
        other._storage = self._storage.copy()
        return other

    def remove(self) -> None:
        """Forget it."""
        self._storage = MemoryStorage()


class SqlitePlace:
    """A SQLite file in a folder of its own."""

    def __init__(self, durability: Durability) -> None:
        where = IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else None
        self._folder = tempfile.TemporaryDirectory(prefix="perdure-crash-", dir=where)
        self._durability: Durability = durability

    def store(self) -> Storage:
        """A new store on the same file."""
        return SqliteStorage(self._path, durability=self._durability)

    def copy(self) -> Self:
        """The file and its log as they are. Between two checkpoints only the log changes, and only at its end: what a
        thread writes meanwhile is in the copy whole, or is a torn end that the engine leaves out."""
        other = type(self)(self._durability)
        log = Path(f"{self._path}-wal")
        if self._path.exists():
            other._path.write_bytes(_content(self._path))
        if log.exists():
            content = log.read_bytes()
            if len(content) >= CHECKPOINT_PAGES * PAGE_BYTES:
                raise ValueError(f"a checkpoint of {self._path} may be under way: explore without snapshots")
            Path(f"{other._path}-wal").write_bytes(content)
        return other

    def remove(self) -> None:
        """Remove the folder."""
        self._folder.cleanup()

    @property
    def _path(self) -> Path:
        return Path(self._folder.name) / STORE


class JsonlPlace:
    """A file of lines in a folder of its own, with its blobs."""

    def __init__(self, durability: Durability) -> None:
        where = IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else None
        self._folder = tempfile.TemporaryDirectory(prefix="perdure-crash-", dir=where)
        self._durability: Durability = durability

    def store(self) -> Storage:
        """A new store on the same file."""
        return JsonlStorage(self._path, durability=self._durability)

    def copy(self) -> Self:
        """The files as they are: a blob is there before the line that names it, and lines only come at the end."""
        other = type(self)(self._durability)
        if self._path.exists():
            shutil.copy(self._path, other._path)
        blobs = Path(f"{self._path}.blobs")
        if blobs.exists():
            shutil.copytree(blobs, f"{other._path}.blobs")
        return other

    def remove(self) -> None:
        """Remove the folder."""
        self._folder.cleanup()

    @property
    def _path(self) -> Path:
        return Path(self._folder.name) / STORE


def _content(path: Path) -> bytes:
    """The engine reads its file: closing any other descriptor of it would drop the locks of this process."""
    file = apsw.VFSFile("", os.fspath(path), [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0])
    try:
        return file.xRead(file.xFileSize(), 0)
    finally:
        file.xClose()


PLACES: dict[str, Callable[[], Place]] = {
    "memory": MemoryPlace,
    "process": lambda: SqlitePlace("process"),
    "power": lambda: SqlitePlace("power"),
    "jsonl": lambda: JsonlPlace("power"),
    "jsonl-process": lambda: JsonlPlace("process"),
}
"""The kinds of stores by name: memory, SQLite by what its commits survive, and files of lines."""
