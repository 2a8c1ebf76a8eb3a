"""Every store of ours passes the public suite, as it is and reopened after every commit."""

from pathlib import Path

from perdure.storage.jsonl.store import JsonlStorage
from perdure.storage.memory import MemoryStorage
from perdure.storage.protocol import Storage
from perdure.storage.sqlite.store import SqliteStorage
from perdure.testing.storage_conformance import StorageConformance

MEMORY: dict[Path, MemoryStorage] = {}


class TestMemory(StorageConformance):
    def make_storage(self, folder: Path) -> Storage:
        return MEMORY.setdefault(folder, MemoryStorage())


class TestMemoryReopened(TestMemory):
    reopen = True


class TestSqlitePower(StorageConformance):
    def make_storage(self, folder: Path) -> Storage:
        return SqliteStorage(folder / "session.db")


class TestSqlitePowerReopened(TestSqlitePower):
    reopen = True


class TestSqliteProcess(StorageConformance):
    def make_storage(self, folder: Path) -> Storage:
        return SqliteStorage(folder / "session.db", durability="process")


class TestSqliteProcessReopened(TestSqliteProcess):
    reopen = True


class TestJsonlPower(StorageConformance):
    def make_storage(self, folder: Path) -> Storage:
        return JsonlStorage(folder / "session.jsonl")


class TestJsonlPowerReopened(TestJsonlPower):
    reopen = True


class TestJsonlProcess(StorageConformance):
    def make_storage(self, folder: Path) -> Storage:
        return JsonlStorage(folder / "session.jsonl", durability="process")


class TestJsonlProcessReopened(TestJsonlProcess):
    reopen = True
