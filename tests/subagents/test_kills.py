"""Kill -9 of everything, at moments that nobody chose: what is done is done once, and what was begun ends."""

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from perdure import ROOT, AssistantMessage, ToolCall, ToolResultMessage
from perdure.models.messages import decode_messages
from perdure.session.reader import read_session
from perdure.subagents import rows
from perdure.subagents.client import reading
from perdure.subagents.host.documents import MarkerDoc
from perdure.subagents.state import ExecutionDoc
from perdure.testing.chaos_world import World

KEYS = ("writer", "reviewer", "integrator")
KILLS_EACH = 5
TARGETS = ("orchestrator", "host", "parent", "all")


def leaves(label: str, seconds: float) -> dict[str, Any]:
    """A tool call that nobody may repeat: it adds a line, works, and adds another one."""
    return {"call": "bash", "args": {"command": f"echo {label}+ >> marks; sleep {seconds}; echo {label}- >> marks"}}


SCRIPT = {
    "writer": [leaves("w1", 0.15), leaves("w2", 0.0), {"say": "The page.", "hold": 0.2}],
    "reviewer": [leaves("r1", 0.2), {"say": "Approved: the page.", "hold": 0.15}],
    "integrator": [leaves("i1", 0.0), leaves("i2", 0.15), {"say": "Integrated.", "hold": 0.1}],
}


class Storm:
    """One workflow, and what was killed in it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = World(SCRIPT, lossBound=50)
        self.hosts_killed: Counter[str] = Counter()
        self.said: list[str] = []

    async def kill(self, target: str) -> None:
        """SIGKILL to what there is of that kind. A person opens a parent that died again, sooner or later."""
        self.said.append(target)
        if target in ("host", "all"):
            self._kill_hosts()
        if target in ("orchestrator", "all"):
            self.world.kill_orchestrator()
        if target in ("parent", "all"):
            self.world.kill_parent()
            await asyncio.sleep(self.random.uniform(0.0, 0.3))
            self.world.start_parent()

    def _kill_hosts(self) -> None:
        for pid, environment in self._processes():
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                is_host = b"perdure.subagents.host" in file.read()
            if is_host:
                self.hosts_killed[environment["PERDURE_CALL"].partition("/")[2]] += 1
                os.kill(pid, signal.SIGKILL)

    def _processes(self) -> Iterator[tuple[int, dict[str, str]]]:
        for entry in os.listdir("/proc"):
            if not entry.isdigit() or int(entry) == os.getpid():
                continue
            try:
                raw = Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            found = dict(line.decode("utf-8", "replace").partition("=")[::2] for line in raw if line)
            if found.get("PERDURE_HOME") == str(self.world.root.path) and "PERDURE_CALL" in found:
                yield int(entry), found

    async def play(self) -> None:
        self.world.start_parent()
        await asyncio.sleep(self.random.uniform(0.2, 1.5))
        for _ in range(KILLS_EACH):
            await self.kill(self.random.choice(TARGETS))
            await asyncio.sleep(self.random.uniform(0.0, 1.5))
        found = await self.world.sealed()
        assert found["status"] == "done", found
        assert found["result"] == {"ended": "integrator", "status": "ok", "output": "Integrated."}
        await self.world.check()
        marks = Counter((self.world.work / "marks").read_text().split())
        assert max(marks.values()) == 1, f"done twice: {marks}"
        for key in KEYS:
            await self._nothing_is_lost(found["wid"], key, marks)
        left = [pid for pid, _ in self._processes()]
        assert not left, f"these run on: {left}"

    async def _nothing_is_lost(self, wid: str, key: str, marks: Counter[str]) -> None:
        """Each tool call has one result; one that says it is done is done; no host was started anew without need."""
        calls: list[str] = []
        results: dict[str, ToolResultMessage] = {}
        async with read_session(self.world.root.call_store(wid, key)) as reader:
            entries = await (await reader.store.settled()).scan_entries(ROOT, limit=1000)
            for entry in entries:
                for message in decode_messages(entry.messages):
                    if isinstance(message, AssistantMessage):
                        calls += [block.id for block in message.content if isinstance(block, ToolCall)]
                    elif isinstance(message, ToolResultMessage):
                        assert message.call_id not in results, "two results of one call"
                        results[message.call_id] = message
            markers = await reader.document_keys(MarkerDoc, limit=100)
        assert list(results) == calls
        done = sum(not result.is_error for result in results.values())
        assert sum(count for label, count in marks.items() if label[0] == key[0] and label.endswith("-")) >= done
        assert len(markers) <= 1 + self.hosts_killed[key], f"{len(markers)} executions, {self.hosts_killed[key]} killed"


@contextmanager
def environment(world: World) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(world.environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


async def storm(seed: int) -> Storm:
    found = Storm(seed)
    kept = True
    with environment(found.world):
        try:
            await found.play()
            kept = False
        except Exception as error:
            raise AssertionError(f"seed {seed}, killed {found.said}, kept in {found.world.folder}: {error}") from error
        finally:
            found.world.end(kept)
    return found


@pytest.mark.parametrize("seed", range(1))
async def test_r201_killed_at_random_moments_nothing_is_done_twice_lost_or_begun_anew(seed: int) -> None:
    await storm(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 140))
async def test_r201_two_hundred_kills(seed: int) -> None:
    """40 workflows with 5 kills each."""
    await storm(seed)


async def test_r201_a_host_that_outlives_its_orchestrator_is_adopted() -> None:
    found = Storm(7)
    with environment(found.world):
        try:
            found.world.start_parent()
            await found.world.until("a host works", lambda _: bool(found.world.requests))
            async with reading(found.world.root) as reader:
                assert reader is not None
                before = [one.exec for one in await rows.rows(reader, ExecutionDoc)]
            found.world.kill_orchestrator()
            await found.world.sealed()
            assert [one["exec"] for one in found.world.requests if one["key"] == "writer"] == before * 3
        finally:
            found.world.end(False)
