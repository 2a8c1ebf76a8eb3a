"""Every read of the SQLite store uses an index, and the one that was meant."""

import re
from pathlib import Path

import apsw
import pytest

from perdure.storage.sqlite.statements import READS, WRITES
from perdure.storage.sqlite.store import SqliteStorage

Explained = dict[str, list[str]]


@pytest.fixture
async def connection(tmp_path: Path) -> apsw.Connection:
    store = SqliteStorage(tmp_path / "session.db", durability="process")
    await store.open()
    await store.close()
    return apsw.Connection(str(tmp_path / "session.db"))


def parameters(statement: str) -> tuple[None, ...]:
    numbers = [int(number) for number in re.findall(r"\?(\d+)", statement)]
    return (None,) * max(numbers, default=0)


def explain(connection: apsw.Connection, statement: str) -> list[str]:
    plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters(statement))
    return [str(row[3]) for row in plan]


def scans(step: str) -> bool:
    """Whether a step reads or sorts more than it answers. The newest row of a table is one step from its end."""
    return "TEMP B-TREE" in step or "AUTOMATIC" in step or (step.startswith("SCAN") and step != "SCAN CONSTANT ROW")


@pytest.mark.parametrize("name", READS)
async def test_no_read_scans_a_table_or_sorts(connection: apsw.Connection, name: str) -> None:
    plan = explain(connection, READS[name])
    assert plan
    assert not [step for step in plan if scans(step)], plan
    connection.close()


async def test_a_member_of_a_family_is_found_without_reading_the_others(connection: apsw.Connection) -> None:
    for name, index in (
        ("document_now", "document_key (scope_id=? AND kind=? AND key=?)"),
        ("document_at", "document_key (scope_id=? AND kind=? AND key=?)"),
        ("members_now", "document_member (scope_id=? AND kind=? AND key>? AND key<?)"),
        ("members_at", "document_key (scope_id=? AND kind=? AND key>? AND key<?)"),
    ):
        assert explain(connection, READS[name]) == [f"SEARCH document USING INDEX {index}"]
    connection.close()


async def test_a_store_from_before_the_later_indexes_gets_them_when_it_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "session.db"
    store = SqliteStorage(path, durability="process")
    await store.open()
    await store.close()
    old = apsw.Connection(str(path))
    old.execute("DROP INDEX document_key; DROP INDEX document_member")
    old.close()
    looking = SqliteStorage(path, read_only=True)
    await looking.open()
    assert await looking.find_document("session", 0, "a", "k") is None
    assert list(await looking.scan_members("session", 0, "a")) == []
    await looking.close()
    store = SqliteStorage(path, durability="process")
    await store.open()
    await store.close()
    again = apsw.Connection(str(path))
    names = [row[0] for row in again.execute("SELECT name FROM sqlite_schema WHERE name LIKE 'document_%'")]
    assert {"document_key", "document_member"} <= set(names)
    again.close()


@pytest.mark.parametrize("name", [name for name in WRITES if WRITES[name].startswith(("UPDATE", "DELETE"))])
async def test_no_write_scans_a_table(connection: apsw.Connection, name: str) -> None:
    plan = explain(connection, WRITES[name])
    assert plan
    assert not [step for step in plan if step.startswith("SCAN")], plan
    connection.close()


async def test_the_check_would_find_a_scan(connection: apsw.Connection) -> None:
    assert explain(connection, "SELECT id FROM task WHERE kind = ?1") == ["SCAN task"]
    connection.close()


async def test_an_ordinary_update_of_a_task_touches_no_index(connection: apsw.Connection) -> None:
    opcodes = [row[1] for row in connection.execute(f"EXPLAIN {WRITES['task_step']}", (None,) * 13)]
    assert "IdxInsert" not in opcodes
    assert "IdxDelete" not in opcodes
    connection.close()


async def test_no_write_of_every_turn_makes_a_table_of_its_own(connection: apsw.Connection) -> None:
    for name in ("entry", "task", "task_step", "task_end", "submission", "submission_end", "revision", "only_revision"):
        opcodes = [row[1] for row in connection.execute(f"EXPLAIN {WRITES[name]}", parameters(WRITES[name]))]
        assert "OpenEphemeral" not in opcodes, name
    connection.close()
