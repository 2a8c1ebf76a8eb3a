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
from typing import Any

import apsw

from perdure import ROOT, Extension, Harness, Next, Registry, Signal, TaskId, TaskRun, phase, task
from perdure.storage.open import open_storage

COUNT = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
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


async def park(path: Path, durability: str) -> list[TaskId]:
    ids: list[TaskId] = []
    async with opened(path, durability) as harness:
        await harness.resume()
        for start in range(0, COUNT, BATCH):
            async with harness.session.transaction() as tx:
                for number in range(start, min(COUNT, start + BATCH)):
                    text = f"{number:0{INPUT_BYTES}d}"
                    ids.append(tx.create_task(Park(text), conversation=ROOT, background=True))
        while harness.wake().active:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)
    return ids


def size(path: Path) -> int:
    """Bytes of the store, its free pages left out."""
    with apsw.Connection(str(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        pages, free, page = (
            connection.execute(f"PRAGMA {what}").get for what in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * page)


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


async def measure(folder: Path, durability: str) -> None:
    path = folder / f"{durability}.db"
    async with opened(path, durability):
        pass
    empty = size(path)
    ids = await park(path, durability)
    each = (size(path) - empty) / COUNT - INPUT_BYTES
    tracemalloc.start()
    began = time.perf_counter()
    harness = await opened(path, durability)
    await harness.resume()
    reopened = time.perf_counter() - began
    memory, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    await harness.close()
    began = time.perf_counter()
    harness = await opened(path, durability)
    await harness.resume()
    reopened = time.perf_counter() - began
    took = await signalled(harness, ids[:ONE_BY_ONE])
    rest = ids[ONE_BY_ONE : ONE_BY_ONE + BURST]
    began = time.perf_counter()
    await asyncio.gather(*(harness.signal(id, Done, "done", 1) for id in rest))
    burst = len(rest) / (time.perf_counter() - began)
    while any(id not in woken for id in rest):  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    all_ran = len(rest) / (time.perf_counter() - began)
    looked = len(harness.tasks.index.tasks)
    began = time.perf_counter()
    for _ in range(1000):
        harness.wake()
    wake = (time.perf_counter() - began) * 1e3
    await harness.close()
    bare = bare_commits(folder / f"bare-{durability}.db", durability)
    p50, p99 = took[len(took) // 2], took[int(len(took) * 0.99)]
    print(f"{durability}: {COUNT:,} parked: {each:.0f} bytes each above an input of {INPUT_BYTES}")
    print(
        f"  open and resume {reopened * 1e3:.0f} ms; the index takes {memory / COUNT:.0f} bytes each; left {looked:,}"
    )
    print(f"  signal to woken code p50 {p50:.2f} ms, p99 {p99:.2f} ms")
    print(f"  {burst:,.0f} signals/s stored, {all_ran:,.0f}/s until all had run")
    print(f"  bare commits {bare:,.0f}/s: {bare / burst:.1f} times as many")
    print(f"  wake() {wake:.1f} us")


def bare_commits(path: Path, durability: str) -> float:
    """Commits a second of the bare engine: one updated row and one inserted row each."""
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(f"PRAGMA synchronous={'FULL' if durability == 'power' else 'OFF'}")
    connection.execute(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, state TEXT); CREATE TABLE s(id INTEGER PRIMARY KEY, v TEXT)"
    )
    connection.execute("BEGIN")
    for number in range(COUNT):
        connection.execute("INSERT INTO t VALUES (?, 'sleeping')", (number,))
    connection.execute("COMMIT")
    began = time.perf_counter()
    for number in range(BURST):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE t SET state = 'pending' WHERE id = ?", (number,))
        connection.execute("INSERT INTO s(v) VALUES ('1')")
        connection.execute("COMMIT")
    return BURST / (time.perf_counter() - began)


async def main() -> None:
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder:
        for durability in ("process", "power"):
            woken.clear()
            await measure(Path(folder), durability)


if __name__ == "__main__":
    asyncio.run(main())
