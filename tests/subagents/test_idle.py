"""An orchestrator that waits costs nothing: it is woken by what happens, and by nothing else."""

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path

from perdure.subagents import starter
from perdure.testing.chaos_world import World
from tests.subagents.place import Place
from tests.subagents.test_kills import environment

SECONDS = 4.0


def switches(pid: int) -> int:
    """How often threads of a process gave up the processor by themselves: each wakeup ends with one. proc(5)."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        text = Path(f"/proc/{pid}/task/{thread}/status").read_text()
        total += int(text.split("\nvoluntary_ctxt_switches:")[1].split()[0])
    return total


async def test_r531_an_orchestrator_whose_calls_wait_for_models_is_not_woken(place: Callable[..., Place]) -> None:
    at = place({"*": [{"say": "done", "hold": 60}]}, k={"idleExitMs": 60_000})
    wid = await at.single()
    await at.asked(1)
    card = starter.running(at.root)
    assert card is not None
    await asyncio.sleep(1.5)
    before = switches(card.pid)
    await asyncio.sleep(SECONDS)
    assert switches(card.pid) - before <= 2
    await at.client.ask("stop", {"to": wid}, wait=30.0)


async def test_r531_a_setting_is_in_effect_at_once_though_nothing_is_polled(place: Callable[..., Place]) -> None:
    at = place({"*": [{"say": "done", "hold": 30}]}, providers={"test": {"slots": 1}})
    first, second = await at.single(key="a"), await at.single(key="b")
    await at.asked(1)
    await at.until(second, lambda found: found["calls"][0].get("waiting", {}).get("reason") == "slot")
    elsewhere = at.work / "config.json"
    settings = json.loads(at.root.config.read_text())
    elsewhere.write_text(json.dumps(settings))
    at.root.config.unlink()
    at.root.config.symlink_to(elsewhere)  # as people keep their settings in a repository
    await asyncio.sleep(0.3)
    elsewhere.write_text(json.dumps({**settings, "providers": {"test": {"slots": 2}}}))
    await at.asked(2)
    for wid in (first, second):
        await at.client.ask("stop", {"to": wid}, wait=30.0)


async def test_a_parent_whose_orchestrator_has_ended_is_not_woken() -> None:
    world = World({"*": [{"say": "Done."}]}, idleExitMs=200)
    with environment(world):
        try:
            world.start_parent()
            await world.sealed()
            async with asyncio.timeout(20):
                while starter.running(world.root) is not None:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            assert world.parent is not None
            await asyncio.sleep(1.5)
            before = switches(world.parent.pid)
            await asyncio.sleep(SECONDS)
            assert switches(world.parent.pid) - before <= 4  # it looks once in half a minute
        finally:
            world.end(False)
