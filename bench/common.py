"""What every entry of the benchmark shares: the texts of a turn, the sizes, the meters, the result line.

Only the standard library is used, so that the bare engine's process loads nothing of ours.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

now = time.perf_counter

# One turn: a question, one call of a tool, its result, an answer. The same for everybody.
CHUNK = "token "
NOTE = "left the warehouse, handed to the carrier, next scan expected tomorrow"


def user_text(i: int) -> str:
    return f"Turn {i}: please look up where order {i:06d} is right now and tell me in one short sentence, thanks."


def tool_args(i: int) -> dict[str, Any]:
    return {"order_id": i}


def tool_result(i: int) -> str:
    return json.dumps({"order": i, "status": "shipped", "eta": "2026-12-04", "carrier": "post", "note": NOTE})


def answer_text(i: int) -> str:
    return (
        f"Order {i:06d} has been shipped and is with the carrier; it should arrive on 4 December 2026. "
        "The next scan is expected tomorrow, and I can check again whenever you like."
    )


def size(name: str, default: int) -> int:
    """A size, unless the environment says otherwise: BENCH_TURNS=50."""
    return int(os.environ.get(f"BENCH_{name}", default))


STEPS = size("STEPS", 200)
TURNS = size("TURNS", 100)
CONVS = size("CONVS", 50)
CTURNS = size("CTURNS", 10)
LONG = size("LONG", 2000)
CHUNKS = size("CHUNKS", 2000)
MESSAGES = size("MESSAGES", 2000)

DIR = os.environ.get("BENCH_DIR", ".")
VARIANT = os.environ.get("BENCH_VARIANT", "process")


class Meter:
    """Wall and processor seconds of a block."""

    wall = 0.0
    cpu = 0.0

    def __enter__(self) -> Self:
        self._cpu, self._wall = time.process_time(), now()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.wall, self.cpu = now() - self._wall, time.process_time() - self._cpu


def med(values: Sequence[float]) -> float:
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def rss_kb() -> int:
    """Resident memory now."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize() // 1024


def tree_bytes(path: str) -> int:
    """A store's size, its log included."""
    return sum(os.path.getsize(p) for p in (path, path + "-wal") if os.path.exists(p))


def mark(what: str) -> None:
    """Note what happens in a file that outlives a killed process."""
    with open(os.path.join(DIR, "effects.log"), "a") as log:
        log.write(f"{what} {os.getpid()} {now():.6f}\n")


def turn_series(seconds: Sequence[float]) -> dict[str, float]:
    """What the turns of one long conversation took, early and late."""
    width = max(1, min(20, len(seconds) // 10))
    found = {
        f"turn_at_{at}_ms": 1e3 * med(seconds[at - width : at]) for at in (100, 500, 1000, 2000) if at <= len(seconds)
    }
    return {**found, "turn_last_ms": 1e3 * med(seconds[-width:]), "total_s": sum(seconds)}


def emit(**numbers: Any) -> None:
    """The result line, which the runner reads."""
    rounded = {key: round(value, 9) if isinstance(value, float) else value for key, value in numbers.items()}
    print("RESULT " + json.dumps(rounded), flush=True)


def main(workloads: dict[str, Callable[[], None]]) -> None:
    """Run the workload that the command line names."""
    workload = workloads.get(sys.argv[1])
    if workload is None:
        print('RESULT {"na": true}')
    else:
        workload()
