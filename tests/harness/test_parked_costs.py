"""What work costs that is parked: a row in the store and one in the index, and nothing at any commit."""

import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from bench import waiting
from perdure import ROOT, Extension, Harness, Next, Registry, Signal, TaskRun, open_storage, phase, task
from perdure.storage.memory import MemoryStorage
from perdure.storage.records import LiveTask
from perdure.testing.clock import FakeClock, settle

Word: Signal[str] = Signal("cost.word", schema=str)
TRIES = 5
woken: list[int] = []


@task("cost.nap", version=1)
class Nap:
    """Sleeps for so many seconds, or until a word."""

    seconds: int | None

    @phase(first=True)
    async def begin(self, run: TaskRun) -> Next[Any]:
        """Sleeps."""
        return run.sleep(self.end, [Word.key("w")], None if self.seconds is None else run.now() + self.seconds)

    @phase
    async def end(self, run: TaskRun) -> Next[Any]:
        """Notes that it woke."""
        woken.append(run.task_id)
        return run.complete()


def opening(storage: Any, clock: FakeClock | None = None) -> Any:
    return Harness.open(storage, registry=Registry([Extension("naps", tasks=[Nap], signals=[Word])]), clock=clock)


async def start(harness: Harness, naps: list[int | None]) -> list[int]:
    async with harness.session.transaction() as tx:
        ids = [tx.create_task(Nap(seconds), conversation=ROOT, background=True) for seconds in naps]
    await harness.wait_parked()
    return [int(id) for id in ids]


async def calls_of_a_wake(parked: int) -> Counter[str]:
    """The Python functions that run from a signal to the end of the task that it wakes, beside other parked tasks."""
    clock = FakeClock()
    async with opening(MemoryStorage(), clock) as harness:
        (first, one) = await start(harness, [None, None])
        await start(harness, [100 + n for n in range(parked // 2)])
        await start(harness, [None] * (parked // 2))
        await harness.signal(first, Word, "w", "loads what the first use loads")
        await harness.wait_parked()
        found: Counter[str] = Counter()

        def count(frame: FrameType, event: str, arg: Any) -> None:
            if event in ("call", "c_call") and "perdure" in frame.f_code.co_filename:
                found[f"{event} {frame.f_code.co_qualname}"] += 1

        sys.setprofile(count)
        try:
            assert await harness.signal(one, Word, "w", "x") == "delivered"
            await settle()
        finally:
            sys.setprofile(None)
        assert harness.wake() == (False, clock.now() + 100 if parked else None)
        return found


@pytest.mark.slow
async def test_no_commit_does_any_work_for_tasks_that_are_parked() -> None:
    few, many = await calls_of_a_wake(4), await calls_of_a_wake(4_000)
    assert sum(few.values()) > 200, "it counts what runs"
    assert many - few == Counter()
    assert few - many == Counter()


async def test_an_open_loads_an_index_and_a_wake_the_one_task(tmp_path: Path) -> None:
    woken.clear()
    path = tmp_path / "naps.db"
    async with opening(open_storage(path, durability="process")) as harness:
        ids = await start(harness, [None] * 300)
    async with opening(open_storage(path, durability="process")) as harness:
        await harness.resume()
        known = harness.tasks.index.tasks
        assert {type(task) for task in known.values()} == {LiveTask}
        assert await harness.signal(ids[7], Word, "w", "x") == "delivered"
        await harness.wait_parked()
        assert {type(task) for task in known.values()} == {LiveTask}
        assert sorted(known) == [id for id in ids if id != ids[7]]
    assert woken == [ids[7]]


async def test_the_next_process_wakes_exactly_what_is_due(tmp_path: Path) -> None:
    woken.clear()
    clock = FakeClock()
    path = tmp_path / "naps.db"
    async with opening(open_storage(path, durability="process"), clock) as harness:
        ids = await start(harness, [*range(1, 51), *([None] * 10)])
        assert harness.wake() == (False, clock.now() + 1)
    await clock.advance(20)
    async with opening(open_storage(path, durability="process"), clock) as harness:
        assert harness.wake().active, "what is due counts as active before anything is scheduled"
        assert await harness.wait_parked() == (False, clock.now() + 1)
        assert sorted(woken) == ids[:20]
        await clock.advance(1)
        assert sorted(woken) == ids[:21]


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["process", "power"])
async def test_ten_thousand_parked_tasks_cost_little_and_wake_fast(durability: str, tmp_path: Path) -> None:
    for attempt in range(TRIES):
        waiting.woken.clear()
        folder = tmp_path / str(attempt)
        folder.mkdir()
        found = await waiting.measure(folder, durability, 10_000)
        assert found.bytes_each < 600
        assert found.memory_each < 600
        assert found.loaded == 0
        fast = found.reopened <= 300 and found.p50 <= 5 and found.p99 <= 20
        if fast and (found.kept >= 2_000 or found.kept >= found.bare / 4):
            return
    raise AssertionError(f"too slow at each of {TRIES} tries: {found}")
