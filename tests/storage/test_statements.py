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


def explain(connection: apsw.Connection, statement: str) -> list[str]:
    numbers = [int(number) for number in re.findall(r"\?(\d+)", statement)]
    values = (None,) * max(numbers, default=0)
    return [str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)]


def scans(step: str) -> bool:
    """Whether a step reads or sorts more than it answers. The newest row of a table is one step from its end."""
    return "TEMP B-TREE" in step or "AUTOMATIC" in step or (step.startswith("SCAN") and step != "SCAN CONSTANT ROW")


@pytest.mark.parametrize("name", READS)
async def test_no_read_scans_a_table_or_sorts(connection: apsw.Connection, name: str) -> None:
    plan = explain(connection, READS[name])
    assert plan
    assert not [step for step in plan if scans(step)], plan
    connection.close()


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
