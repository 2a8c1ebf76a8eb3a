"""A file gets smaller once most of it was retired, and says the same as before."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from perdure import Document, Harness
from perdure.extensions.documents import document_family
from perdure.storage.sqlite.store import SqliteStorage

Note: Document[Any] = document_family("test.note", dict, scope="session")


@pytest.mark.parametrize("durability", ["process", "power"])
async def test_what_was_retired_is_given_back_while_commits_go_on(tmp_path: Path, durability: Any) -> None:
    storage = SqliteStorage(tmp_path / "s.db", durability=durability)
    async with Harness.open(storage) as harness:
        session = harness.session
        async with session.transaction() as tx:
            for number in range(3000):
                await tx.set(Note, None, {"n": number, "text": "x" * 2000}, key=f"{number}")
        async with session.transaction() as tx:
            for number in range(2990):
                await tx.retire(Note, key=f"{number}")
        before = total(tmp_path)

        async def writing() -> None:
            for number in range(50):
                async with session.transaction() as tx:
                    await tx.set(Note, None, {"n": number}, key=f"new {number}")

        await asyncio.gather(storage.shrink(), writing(), storage.shrink())
        after = total(tmp_path)
        keys = await session.document_keys(Note, limit=1000)
        assert len(keys) == 60
    assert after < before / 4, (before, after)
    async with Harness.open(str(tmp_path / "s.db")) as harness:
        assert await harness.session.document_keys(Note, limit=1000) == keys
        assert await harness.session.snapshot(Note, key="2999") == {"n": 2999, "text": "x" * 2000}
        assert await harness.session.snapshot(Note, key="17") is None
        async with harness.session.transaction() as tx:
            await tx.set(Note, None, {"again": True}, key="17")
        assert await harness.session.snapshot(Note, key="17") == {"again": True}


def total(folder: Path) -> int:
    return sum(os.path.getsize(path) for path in folder.iterdir())
