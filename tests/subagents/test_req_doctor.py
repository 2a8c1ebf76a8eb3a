"""What the orchestrator costs, and what doctor does not take for a finding."""

import asyncio
import os
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from perdure.subagents import doctor, starter
from perdure.subagents.client import reading
from perdure.subagents.cost import bytes_read, cost, open_stores, processor_seconds
from perdure.subagents.doctor import examine
from perdure.subagents.orchestrator import Orchestrator
from perdure.subagents.spool import Outbox, Sent
from tests.subagents.place import Place
from tests.subagents.test_at_scale import fill

pytestmark = pytest.mark.slow
Make = Callable[..., Place]
SECONDS = 4.0


async def figures(at: Place) -> dict[str, Any] | None:
    async with reading(at.root) as reader:
        return await cost(reader, at.root)


async def test_r473_b005_the_orchestrators_cost_is_its_own_and_only_while_it_lives(place: Make) -> None:
    at = place({"*": [{"say": "ok"}]}, k={"idleExitMs": 60_000})
    assert await figures(at) is None
    await at.single("one")
    await at.sealed("one")
    found = await figures(at)
    card = starter.running(at.root)
    assert found is not None
    assert card is not None
    assert (found["pid"], found["workflows"], found["live"], found["openStores"]) == (card.pid, 1, 0, 1)
    assert found["bytesRead"] > 0
    assert found["cpuSeconds"] > 0
    assert found["passesPerSecond"] > 0
    assert (await examine(at.root))["cost"]["pid"] == card.pid
    at.kill_orchestrator()
    await at.gone()
    assert await figures(at) is None
    assert (await examine(at.root))["cost"] is None


def test_r473_b005_what_an_ended_child_read_is_not_counted() -> None:
    before = bytes_read(os.getpid())
    subprocess.run(["dd", "if=/dev/zero", "of=/dev/null", "bs=1M", "count=200"], check=True, capture_output=True)
    assert bytes_read(os.getpid()) - before < 10_000_000
    with open("/dev/zero", "rb") as file:
        file.read(20_000_000)
    assert bytes_read(os.getpid()) - before >= 20_000_000


async def test_r474_b009_finished_workflows_cost_an_idle_orchestrator_nothing(place: Make) -> None:
    at = place({"*": [{"say": "ok"}]}, k={"idleExitMs": 60_000})
    async with Orchestrator(at.root) as orchestrator:
        await fill(orchestrator, at, 300, time.time() - 86_400)
    await starter.ensure(at.root)
    card = starter.running(at.root)
    assert card is not None
    await asyncio.sleep(1.5)
    before, read = processor_seconds(card.pid), bytes_read(card.pid)
    await asyncio.sleep(SECONDS)
    assert processor_seconds(card.pid) - before <= 0.01 * SECONDS
    assert bytes_read(card.pid) - read < 10_000
    assert open_stores(card.pid) == 1


async def test_r474_r475_what_live_calls_have_behind_them_does_not_slow_their_orchestrator(place: Make) -> None:
    long, step = "x" * 1_000_000, {"call": "bash", "args": {"command": "sleep 0.1"}}
    rounds = [*[step] * 5, {"say": "never", "hold": 60}]
    at = place({"short": [{"say": "ok"}, *rounds], "*": [{"say": long}, *rounds]}, k={"idleExitMs": 60_000})
    keys = ("short", "k1", "k2", "k3")
    wids = [await at.single(key, key=key) for key in keys]
    for key in keys:
        await at.sealed(key)
    card = starter.running(at.root)
    assert card is not None
    took = []
    for number, wid in enumerate(wids):
        await at.client.ask("follow-up", {"to": wid, "message": "Go on"}, wait=30)
        await at.asked(len(keys) + 6 * number + 2)
        before = bytes_read(card.pid)
        await at.asked(len(keys) + 6 * number + 6)
        took.append(bytes_read(card.pid) - before)
    assert min(took[1:]) - took[0] < len(long) // 2, took
    await asyncio.sleep(1.0)
    spent = processor_seconds(card.pid)
    await asyncio.sleep(SECONDS)
    assert processor_seconds(card.pid) - spent <= 0.05 * SECONDS
    assert open_stores(card.pid) == 1
    for wid in wids:
        await at.client.ask("stop", {"to": wid}, wait=30)


def record(at: Place, request: str) -> None:
    """As a sender that is killed before it starts an orchestrator."""
    body = {"agent": "worker", "task": "x", "key": "a", "cwd": str(at.work)}
    Outbox(at.root, "cli:me@here").record(Sent(request=request, kind="run", body=body, sender="cli:me@here"))


async def test_r472_what_is_decided_while_doctor_looks_is_no_finding(
    place: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = place({"*": [{"say": "ok", "hold": 1.0}]})
    record(at, "job")
    looks, look = [], doctor._look

    async def looked(*given: Any) -> dict[str, Any]:
        found = await look(*given)
        looks.append(found["findings"])
        if len(looks) == 1:
            await starter.ensure(at.root)  # as whoever recorded it does
            await at.asked(1)
        return found

    monkeypatch.setattr(doctor, "_look", looked)
    assert (await examine(at.root))["findings"] == []
    assert [one["what"] for one in looks[0]] == ["requests wait and no orchestrator runs"]
    await at.sealed("job")
    at.kill_orchestrator()
    await at.gone()
    record(at, "stays")
    found = await examine(at.root)
    assert [one["command"] for one in found["findings"]] == ["perdure agents start"], "nobody decides this one"
