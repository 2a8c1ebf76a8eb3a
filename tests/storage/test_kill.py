"""Killed in the middle of commits: what was acknowledged is there, nothing is torn, the next owner goes on."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import apsw
import pytest

from perdure.base.ids import ConversationId
from perdure.storage.sqlite.store import SqliteStorage
from perdure.testing.storage_conformance import Script

WRITE = """
    import asyncio, sys
    from perdure.storage.sqlite.store import SqliteStorage
    from perdure.testing.storage_conformance import Script, created

    async def main(path, durability):
        store = SqliteStorage(path, durability=durability)
        head = await store.open()
        script = Script(store, seq=head.seq, next_id=head.next_id)
        if head.seq == 0:
            await script.commit(conversations=[script.conversation()])
        while True:
            entries = [script.entry(1, data=b'"' + b"x" * 2000 + b'"') for _ in range(3)]
            await script.commit(entries=entries, tasks=created(script.task(1)))
            print(script.seq, flush=True)

    asyncio.run(main(*sys.argv[1:]))
"""


def killed_after(commits: int, path: Path, durability: str) -> int:
    """Let a process commit, kill it at no particular moment, and give the last commit that it acknowledged."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WRITE), str(path), durability],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)},
    )
    assert process.stdout is not None
    said = [process.stdout.readline() for _ in range(commits)]
    process.kill()
    rest, _ = process.communicate()
    return max(int(line) for line in [*said, *rest.split("\n")[:-1]])


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["power", "process"])
async def test_acknowledged_commits_survive_kill_9(tmp_path: Path, durability: str) -> None:
    path = tmp_path / "s.db"
    for commits in (1, 40, 300):
        acknowledged = killed_after(commits, path, durability)
        store = SqliteStorage(path)
        head = await store.open()
        assert acknowledged <= head.seq <= acknowledged + 1
        entries = await store.scan_entries(ConversationId(1), limit=100_000)
        tasks = await store.scan_live(limit=100_000)
        assert len(entries) == 3 * len(tasks)
        assert {entry.seq for entry in entries}.issubset(range(2, head.seq + 1))
        script = Script(store, seq=head.seq, next_id=head.next_id)
        await script.commit()
        await store.close()
        assert apsw.Connection(str(path)).pragma("integrity_check") == "ok"
