"""What waiting costs: ten thousand parked calls in one SQLite session.

    .venv/bin/python bench/waiting.py [count]

Prints disk bytes of each parked task above its own input, the time to open again and go on, how long a signal takes
until the woken code runs, how many signals come in a second beside bare commits, and what a commit does for tasks that
are parked.
"""

import asyncio
import os
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from perdure import ROOT, Extension, Harness, Next, Registry, Signal, TaskId, TaskRun, phase, task
from perdure.storage.open import open_storage
from perdure.storage.records import LiveTask

BATCH = 500
ONE_BY_ONE = 500
BURST = 2_000
INPUT_BYTES = 100
Done: Signal[int] = Signal("bench.done", schema=int)
woken: dict[int, float] = {}


@task("bench.park", version=1)
class Park:
    """Sleeps until it is told something."""

    text: str

    @phase(first=True)
    async def begin(self, run: TaskRun) -> Next[int]:
        return run.sleep(self.told, [Done.key("done")])

    @phase
    async def told(self, run: TaskRun) -> Next[int]:
        woken[run.task_id] = time.perf_counter()
        return run.complete(1)


def opened(path: Path, durability: str) -> Any:
    registry = Registry([Extension("bench", tasks=[Park], signals=[Done])])
    return Harness.open(open_storage(path, durability=durability), registry=registry)  # type: ignore[arg-type]


async def park(path: Path, durability: str, count: int) -> list[TaskId]:
    ids: list[TaskId] = []
    async with opened(path, durability) as harness:
        for start in range(0, count, BATCH):
            async with harness.session.transaction() as tx:
                for number in range(start, min(count, start + BATCH)):
                    text = f"{number:0{INPUT_BYTES}d}"
                    ids.append(tx.create_task(Park(text), conversation=ROOT, background=True))
        await harness.wait_parked()
    return ids


def size(path: Path) -> int:
    """Bytes of the store, its free pages left out."""
    connection = apsw.Connection(str(path))
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        pages, free, page = (
            connection.execute(f"PRAGMA {what}").get for what in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * page)
    finally:
        connection.close()


async def signalled(harness: Any, ids: list[TaskId]) -> list[float]:
    """From `signal()` to the first line of the woken code, one after the other, in milliseconds."""
    took = []
    for id in ids:
        began = time.perf_counter()
        assert await harness.signal(id, Done, "done", 1) == "delivered"
        while id not in woken:  # noqa: ASYNC110
            await asyncio.sleep(0)
        took.append((woken[id] - began) * 1e3)
    return sorted(took)


class Measured(NamedTuple):
    """What parked tasks cost."""

    bytes_each: float
    """On disk, above their own input."""
    memory_each: float
    reopened: float
    """Milliseconds to open the session and start scheduling."""
    loaded: int
    """Tasks of which more than the index was read by then."""
    p50: float
    """Milliseconds from `signal()` to the first line of the woken code."""
    p99: float
    kept: float
    """Signals a second that were delivered when all were sent at once, for keys on which nobody slept."""
    burst: float
    """The same where each wakes its task, which ends at once: two commits each."""
    all_ran: float
    bare: float
    """Commits a second of the bare engine."""
    wake: float
    """Microseconds of `wake()`."""


async def measure(folder: Path, durability: str, count: int) -> Measured:
    path = folder / f"{durability}.db"
    async with opened(path, durability):
        pass
    empty = size(path)
    ids = await park(path, durability, count)
    each = (size(path) - empty) / count - INPUT_BYTES
    tracemalloc.start()
    harness = await opened(path, durability)
    await harness.resume()
    memory, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    await harness.close()
    began = time.perf_counter()
    harness = await opened(path, durability)
    await harness.resume()
    reopened = (time.perf_counter() - began) * 1e3
    loaded = sum(type(known) is not LiveTask for known in harness.tasks.index.tasks.values())
    took = await signalled(harness, ids[:ONE_BY_ONE])
    rest = ids[ONE_BY_ONE : ONE_BY_ONE + BURST]
    began = time.perf_counter()
    await asyncio.gather(*(harness.signal(id, Done, "later", 1) for id in rest))
    kept = len(rest) / (time.perf_counter() - began)
    began = time.perf_counter()
    await asyncio.gather(*(harness.signal(id, Done, "done", 1) for id in rest))
    burst = len(rest) / (time.perf_counter() - began)
    while any(id not in woken for id in rest):  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    all_ran = len(rest) / (time.perf_counter() - began)
    await harness.wait_parked()
    began = time.perf_counter()
    for _ in range(1000):
        harness.wake()
    wake = (time.perf_counter() - began) * 1e3
    await harness.close()
    bare = bare_commits(folder / f"bare-{durability}.db", durability, count)
    p50, p99 = took[len(took) // 2], took[int(len(took) * 0.99)]
    return Measured(each, memory / count, reopened, loaded, p50, p99, kept, burst, all_ran, bare, wake)


def show(durability: str, count: int, found: Measured) -> None:
    print(f"{durability}: {count:,} parked: {found.bytes_each:.0f} bytes each above an input of {INPUT_BYTES}")
    print(f"  open and resume {found.reopened:.0f} ms, {found.loaded} loaded; index {found.memory_each:.0f} bytes each")
    print(f"  signal to woken code p50 {found.p50:.2f} ms, p99 {found.p99:.2f} ms")
    print(f"  {found.kept:,.0f} signals/s stored")
    print(f"  {found.burst:,.0f} signals/s that each wake a task, {found.all_ran:,.0f}/s until all had run")
    print(f"  bare commits {found.bare:,.0f}/s: {found.bare / found.kept:.1f} times as many")
    print(f"  wake() {found.wake:.1f} us")


def bare_commits(path: Path, durability: str, count: int) -> float:
    """Commits a second of the bare engine: one updated row and one inserted row each."""
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(f"PRAGMA synchronous={'FULL' if durability == 'power' else 'OFF'}")
    connection.execute(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, state TEXT); CREATE TABLE s(id INTEGER PRIMARY KEY, v TEXT)"
    )
    connection.execute("BEGIN")
    for number in range(count):
        connection.execute("INSERT INTO t VALUES (?, 'sleeping')", (number,))
    connection.execute("COMMIT")
    began = time.perf_counter()
    for number in range(BURST):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE t SET state = 'pending' WHERE id = ?", (number,))
        connection.execute("INSERT INTO s(v) VALUES ('1')")
        connection.execute("COMMIT")
    return BURST / (time.perf_counter() - began)


async def main(count: int) -> None:
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder:
        for durability in ("process", "power"):
            woken.clear()
            show(durability, count, await measure(Path(folder), durability, count))


if __name__ == "__main__":
    asyncio.run(main(max(ONE_BY_ONE + BURST, int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)))
