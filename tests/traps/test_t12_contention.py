"""Contention for the store is waited out within a bound; giving up is an error, and what is stored goes on."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from perdure import Extension, SessionPoisoned, StorageError
from perdure.storage.sqlite.store import SqliteStorage
from perdure.testing.scripted_model import ScriptedModel, call
from tests.agent.kit import agent, ask, results

HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("begin immediate")
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def held(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process holds the write lock of the file until its input ends."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        try:
            yield process
        finally:
            process.kill()


class Start:
    """Sixteen calls that stand ready and go on in the same tick."""

    def __init__(self) -> None:
        self.ready = asyncio.Barrier(17)
        self.go = asyncio.Event()

    def tools(self) -> Extension:
        """The tool that they call."""
        extension = Extension("sixteen")

        @extension.tool(replay="safe")
        async def work(ctx: Any, number: int) -> str:
            """Work."""
            if not self.go.is_set():
                await self.ready.wait()
            await self.go.wait()
            return f"worked {number}"

        return extension


TURNS: list[Any] = [[call("work", {"number": n}) for n in range(16)], "end"]
ALL = [f"worked {n}" for n in range(16)]


async def test_sixteen_calls_that_end_in_the_same_tick_all_have_their_results() -> None:
    start = Start()
    async with agent(TURNS, start.tools()) as (_, root):
        submission = await root.submit("go")
        await start.ready.wait()
        start.go.set()
        assert (await submission.wait()).text == "end"
        assert await results(root) == ALL


@pytest.mark.slow
async def test_a_lock_that_is_let_go_within_the_bound_is_waited_out(tmp_path: Path) -> None:
    start, storage = Start(), SqliteStorage(tmp_path / "a.db", busy_timeout=20)
    async with agent(ScriptedModel(TURNS), start.tools(), storage=storage) as (_, root):
        submission = await root.submit("go")
        await start.ready.wait()
        with held(tmp_path / "a.db"):
            start.go.set()
            await asyncio.sleep(0.3)
            assert (await storage.submission(submission.id)).status == "placed"  # type: ignore[union-attr]
        assert (await submission.wait()).text == "end"
        assert await results(root) == ALL


@pytest.mark.slow
async def test_a_lock_that_is_held_too_long_is_a_clear_error_and_reopening_completes(tmp_path: Path) -> None:
    start, model = Start(), ScriptedModel.by_progress(TURNS)
    async with agent(model, start.tools(), storage=SqliteStorage(tmp_path / "a.db", busy_timeout=0.1)) as (_, root):
        submission = await root.submit("go", request_id="job")
        await start.ready.wait()
        with held(tmp_path / "a.db"):
            start.go.set()
            with pytest.raises((StorageError, SessionPoisoned)) as caught:
                await submission.wait()
    assert "lock" in str(caught.value) or "busy" in str(caught.value)
    async with agent(model, start.tools(), storage=SqliteStorage(tmp_path / "a.db")) as (_, root):
        assert await ask(root, "go", request_id="job") == "end"
        assert await results(root) == ALL
