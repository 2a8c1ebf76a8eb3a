"""What people write to name a store."""

import os
from pathlib import Path

import pytest

from perdure.base.errors import InvalidValue, StorageError
from perdure.storage.jsonl.store import JsonlStorage
from perdure.storage.memory import MemoryStorage
from perdure.storage.open import open_storage
from perdure.storage.records import Batch
from perdure.storage.sqlite.store import SqliteStorage


@pytest.mark.parametrize("form", ["{0}/a.db", "sqlite:{0}/a.db", "sqlite://{0}/a.db", "sqlite://localhost{0}/a.db"])
async def test_a_path_and_the_url_forms_name_the_same_file(tmp_path: Path, form: str) -> None:
    store = open_storage(form.format(tmp_path))
    assert isinstance(store, SqliteStorage)
    assert store.location == str(tmp_path / "a.db")
    assert store.pipelined


async def test_a_path_object_is_a_path_whatever_it_looks_like(tmp_path: Path) -> None:
    assert open_storage(tmp_path / "memory:").location == str(tmp_path / "memory:")


async def test_a_relative_url_is_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_storage("sqlite:a%20b.db?durability=process").location == str(tmp_path / "a b.db")
    assert open_storage("plain.db").location == str(tmp_path / "plain.db")


async def test_options_of_the_url_are_used_and_arguments_win(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/a.db?durability=process&busy_timeout=2"
    assert not getattr(open_storage(url), "pipelined", None)
    assert getattr(open_storage(url, durability="power"), "pipelined", None)


@pytest.mark.parametrize("form", ["{0}/a.jsonl", "jsonl:{0}/a.jsonl", "jsonl://{0}/a.jsonl", "jsonl:{0}/a%2ejsonl"])
async def test_a_file_of_lines_is_named_by_its_scheme_or_its_ending(tmp_path: Path, form: str) -> None:
    store = open_storage(form.format(tmp_path))
    assert isinstance(store, JsonlStorage)
    assert store.location == str(tmp_path / "a.jsonl")


@pytest.mark.parametrize(
    ("query", "flushes"), [("", True), ("fsync=1", True), ("fsync=0", False), ("durability=process", False)]
)
async def test_fsync_is_another_word_for_durability(tmp_path: Path, query: str, flushes: bool) -> None:
    store = open_storage(f"jsonl:{tmp_path}/a.log?{query}")
    assert isinstance(store, JsonlStorage)
    await store.open()
    assert store.commit_now(Batch(1, 1)) is not flushes
    await store.close()


async def test_memory_is_a_new_store_each_time() -> None:
    first, second = open_storage("memory:"), open_storage("memory:")
    assert isinstance(first, MemoryStorage)
    assert first is not second


async def test_a_store_is_given_back_as_it_is() -> None:
    store = MemoryStorage()
    assert open_storage(store) is store


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("mysql://host/db", "sqlite:, jsonl:, memory:"),
        ("sqlite:", "no path"),
        ("sqlite://host/path", "another machine"),
        ("sqlite:a.db?colour=red", "colour=red"),
        ("sqlite:a.db?durability=never", "durability=never"),
        ("sqlite:a.db?busy_timeout=soon", "busy_timeout=soon"),
        ("sqlite:a.db?fsync=1", "fsync=1"),
        ("jsonl:", "no path"),
        ("jsonl://host/path", "another machine"),
        ("jsonl:a.jsonl?busy_timeout=1", "busy_timeout=1"),
        ("jsonl:a.jsonl?fsync=perhaps", "fsync=perhaps"),
        ("memory:name", "no place"),
        ("", "no path"),
    ],
)
async def test_what_cannot_be_opened_is_said_clearly(url: str, says: str) -> None:
    with pytest.raises(InvalidValue, match=says.replace("?", r"\?")):
        open_storage(url)


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"no folder .*missing"):
        await open_storage(tmp_path / "missing" / "a.db").open()


async def test_a_folder_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is a folder"):
        await open_storage(tmp_path).open()


async def test_a_read_only_opener_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no store"):
        await open_storage(tmp_path / "a.db", read_only=True).open()
    assert os.listdir(tmp_path) == []
