"""Many calls on few slots, many ended workflows, and the disk after they are removed."""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.subagents import rows
from perdure.subagents.client import reading
from perdure.subagents.engine import admission
from perdure.subagents.orchestrator import Orchestrator
from perdure.subagents.state import Call, CallDoc, EndedDoc, Pins, PinsDoc, Result, ResultDoc, Workflow, recent_key
from perdure.subagents.status import status
from tests.subagents.place import Place


class Watched:
    """What was held at each commit of an orchestrator."""

    def __init__(self, orchestrator: Orchestrator) -> None:
        self.most: Counter[str] = Counter()
        self.commits = 0
        self._known: dict[str, Any] = {}
        self._session = orchestrator.harness.session
        self._session.listeners.append(self._published)
        self._looks: list[asyncio.Task[None]] = []

    def _published(self, publication: Any) -> None:
        if any(change.key[0] == "agents.execution" for change in publication.documents):
            self._looks.append(asyncio.ensure_future(self._look()))

    async def _look(self) -> None:
        found = await admission.executions(self._session)
        self.commits += 1
        for provider in ("test", "other"):
            self.most[provider] = max(self.most[provider], admission.held(found, provider))


async def many(place: Callable[..., Place], count: int, slots: int) -> None:
    at = place(
        {
            "*": [
                {"call": "bash", "args": {"command": "echo $PERDURE_CALL >> marks; sleep 0.2"}},
                {"say": "done", "hold": 0.3},
            ]
        },
        providers={"test": {"slots": slots}, "other": {"slots": 2}},
    )
    async with Orchestrator(at.root) as orchestrator:
        watched = Watched(orchestrator)
        steps = [{"agent": "worker", "task": f"Step {number}"} for number in range(count)]
        outcome = await at.run(tasks=steps)
        assert outcome.state == "applied"
        wid = outcome.reply["wid"]
        switching = asyncio.create_task(switch_some(at, wid, count))
        found = await at.until(wid, lambda found: found["state"] == "sealed", seconds=300.0)
        switched = await switching
    assert Counter(call["status"] for call in found["calls"]) == {"ok": count}
    assert Counter((at.work / "marks").read_text().split()) == {f"{wid}/tasks:{number}": 1 for number in range(count)}
    assert watched.most["test"] == slots, watched.most
    assert 1 <= watched.most["other"] <= 2, (watched.most, switched)
    assert switched["applied"] >= 1
    assert watched.commits >= 2 * count
    asked = Counter(one["provider"] for one in at.requests)
    assert asked["test"] + asked["other"] == 2 * count
    assert asked["other"] >= 1


async def switch_some(at: Place, wid: str, count: int) -> Counter[str]:
    """Send calls to another provider while they run."""
    told: Counter[str] = Counter()
    for number in range(0, count, 2):
        key = f"tasks:{number}"
        async with asyncio.timeout(240):
            while (await at.call(wid, key)).phase not in ("running", "sealed"):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        outcome = await at.client.ask("model", {"to": f"{wid}/{key}", "model": "other/two"}, wait=60.0)
        while outcome.reply.get("reason") == "call-starting":
            await asyncio.sleep(0.02)
            outcome = await at.client.ask("model", {"to": f"{wid}/{key}", "model": "other/two"}, wait=60.0)
        told[outcome.state if outcome.state == "applied" else str(outcome.reply)] += 1
    return told


async def test_t13_r140_eight_calls_never_hold_more_slots_than_there_are(place: Callable[..., Place]) -> None:
    await many(place, 8, 3)


@pytest.mark.long
async def test_t13_r140_a_hundred_calls_on_four_slots(place: Callable[..., Place]) -> None:
    await many(place, 100, 4)


async def fill(orchestrator: Orchestrator, at: Place, count: int, since: float) -> None:
    """Ended workflows with one call each, with all that such a workflow leaves."""
    for batch in range(0, count, 250):
        async with orchestrator.harness.session.transaction() as tx:
            for number in range(batch, min(batch + 250, count)):
                wid, ended = f"01old{number:011}", since + number / 10
                await rows.put_workflow(
                    tx,
                    Workflow(
                        wid=wid, request=wid, sender="s", digest="", form="single", cwd="/", created=ended, calls=["a"],
                        status="done", ended=ended,
                    ),
                )  # fmt: skip
                call = Call(wid=wid, key="a", agent="worker", spec={"task": "x" * 200}, fingerprint="f", created=ended)
                call.phase, call.status = "sealed", "ok"
                await rows.write(tx, CallDoc, f"{wid}/a", call)
                result = Result(key="a", gen=1, status="ok", output="y" * 500)
                await rows.write(tx, ResultDoc, f"{wid}/a@1", result)
                await rows.write(tx, PinsDoc, f"{wid}@1", Pins())
                await rows.write(tx, EndedDoc, recent_key(ended, wid), {"wid": wid})
    for number in range(count):
        store = at.root.call_store(f"01old{number:011}", "a")
        store.parent.mkdir(parents=True)
        store.write_bytes(b"z" * 20_000)


def size(folder: Path) -> int:
    """What a folder takes on disk, in bytes."""
    return sum(os.lstat(os.path.join(at, name)).st_blocks * 512 for at, _, names in os.walk(folder) for name in names)


async def test_r413_status_and_prune_with_five_hundred_ended_workflows(place: Callable[..., Place]) -> None:
    await ended(place, 500)


@pytest.mark.long
async def test_r413_status_and_prune_with_five_thousand_ended_workflows(place: Callable[..., Place]) -> None:
    await ended(place, 5000)


async def ended(place: Callable[..., Place], count: int) -> None:
    """Status does not grow with what has ended, and prune gives the disk back, also while the orchestrator runs on."""
    at = place({"*": [{"say": "done"}]}, k={"idleExitMs": 60_000})
    async with Orchestrator(at.root) as orchestrator:
        empty = size(at.root.path)
        await fill(orchestrator, at, count, time.time() - 10 * 86_400)
        full = size(at.root.path)
        assert full > empty + count * 20_000
        took = []
        for _ in range(5):
            before = time.perf_counter()
            async with reading(at.root) as reader:
                found = await status(reader, at.root)
            took.append(time.perf_counter() - before)
        assert len(found["recent"]) == 5
        assert sorted(took)[2] < 0.1, took
        before = time.perf_counter()
        outcome = await at.client.ask("prune", {"olderThanDays": 1}, wait=240.0)
        assert outcome.state == "applied", outcome
        assert len(outcome.reply["pruned"]) == count
        async with asyncio.timeout(240):
            while list((at.root.path / "workflows").iterdir()):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        seconds = time.perf_counter() - before
        async with asyncio.timeout(120):
            while size(at.root.path) > 0.15 * full:  # noqa: ASYNC110 - also while the orchestrator runs on
                await asyncio.sleep(0.05)
    left = size(at.root.path)
    measured = f"status {sorted(took)[2] * 1000:.1f} ms; pruned in {seconds:.1f} s; disk {empty}, {full}, {left} bytes"
    (at.root.path.parent / "measured").write_text(measured)
    assert left < empty + 0.1 * (full - empty), (empty, full, left)
