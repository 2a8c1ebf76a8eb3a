"""A durable function: straight code whose steps are stored. The process ends twice; nothing that ended is repeated."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from perdure import Extension, Harness, Registry, Signal, Steps, durable
from perdure.testing.clock import FakeClock
from perdure.testing.scripted_model import ScriptedModel

Approved: Signal[bool] = Signal("ops.approved", schema=bool)
world: list[str] = []


async def build(version: str) -> str:
    world.append(f"build {version}")
    return f"app:{version}"


async def deploy(image: str, place: str) -> str:
    world.append(f"deploy {image} to {place}")
    return place


@durable("ops.rollout", version=1)
async def rollout(run: Steps, version: str, places: list[str]) -> str:
    image = await run.step("build", build, version)
    if not await run.signal(Approved, "go", timeout=24 * 3600):
        return "refused"
    for place in places:
        await run.step("deploy", deploy, image, place, replay="safe")
        await run.sleep(600)  # watch it for ten minutes before the next one
    return f"{image} runs in {len(places)} places"


def opening(path: Path, clock: FakeClock) -> Any:
    registry = Registry([Extension("ops", tasks=[rollout], signals=[Approved])])
    return Harness.open(path, registry=registry, models=ScriptedModel([]), clock=clock)


async def main() -> None:
    clock = FakeClock()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ops.db"
        async with opening(path, clock) as harness:
            id = await harness.start(rollout("1.2", ["fra", "sfo"]))
            wake = await harness.wait_parked()
            print("first process:", world, "active:", wake.active)
        async with opening(path, clock) as harness:
            print("approval:", await harness.signal(id, Approved, "go", True))
            await harness.wait_parked()
            print("second process:", world)
        async with opening(path, clock) as harness:
            for _ in range(2):
                await harness.wait_parked()
                await clock.advance(600)
            outcome = await harness.tasks.wait(id)
            print("third process:", outcome.result(str))
            print("in all:", world)


asyncio.run(main())
