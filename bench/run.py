"""Measures speed and size beside the bare engine, and fails where a promise is broken.

    python bench/run.py [--reps 5] [--only W2,W3] [--variants process,power,jsonl-process,jsonl]

Both sides run one after the other in every repetition, each in a process and a store of its own, so that a ratio
divides what was measured in the same moments; the median of the ratios counts. Where it may, the kit runs under a
real-time policy: on a machine that is shared every flush otherwise pays for the scheduler's next tick.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
RAW, OURS, FORKED = "raw_sqlite.py", "peer_perdure.py", "forks.py"
SECONDS = 120
"""A process of the kit may take this long."""
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""As users run it: with compiled files kept."""
SIZES = {"BENCH_STEPS": "1000", "BENCH_TURNS": "200"}

Numbers = dict[str, Any]


class Promise(NamedTuple):
    """One line of the table: what is measured, and what it may come to."""

    what: str
    got: list[float]
    limit: float | None
    unit: str
    aim: bool = False

    @property
    def kept(self) -> bool:
        return self.limit is None or med(self.got) <= self.limit


def med(values: list[float]) -> float:
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


class Kit:
    """Starts the processes of the kit."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._stores = 0
        self.raw: dict[tuple[str, str], list[Numbers]] = {}
        self.ours: dict[tuple[str, str], list[Numbers]] = {}

    def store(self) -> Path:
        """A fresh folder for one store."""
        self._stores += 1
        folder = self._place / str(self._stores)
        folder.mkdir()
        return folder

    def environment(self, folder: Path, variant: str, more: dict[str, str]) -> dict[str, str]:
        path = os.pathsep.join([str(HERE.parent / "src"), os.environ.get("PYTHONPATH", "")])
        own = {"BENCH_DIR": str(folder), "BENCH_VARIANT": variant, "PYTHONPATH": path}
        return {**ENVIRONMENT, **own, **more}

    def run(self, script: str, workload: str, variant: str, folder: Path | None = None, **more: str) -> Numbers:
        """One process, to its end; what it measured."""
        where = folder or self.store()
        command = [sys.executable, str(HERE / script), workload]
        done = subprocess.run(
            command,
            env=self.environment(where, variant, {**SIZES, **more}),
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        if folder is None:
            shutil.rmtree(where)
        for line in done.stdout.splitlines():
            if line.startswith("RESULT "):
                numbers: Numbers = json.loads(line.removeprefix("RESULT "))
                return numbers
        if done.returncode != 0:
            raise SystemExit(f"{script} {workload} {variant} failed:\n{done.stderr[-2000:]}")
        return {}

    def both(self, workload: str, variant: str) -> None:
        """The bare engine, then ours. The bare engine takes more turns, so that both are measured for about as long."""
        bare = self.run(RAW, workload, variant, BENCH_TURNS="1000")
        self.raw.setdefault((workload, variant), []).append(bare)
        self.ours.setdefault((workload, variant), []).append(self.run(OURS, workload, variant))

    def killed(self, script: str, workload: str, last: str, variant: str, folder: Path) -> None:
        """One process, killed as soon as it notes that it has come to `last`."""
        environment = self.environment(folder, variant, {"BENCH_HANG": "1"})
        with subprocess.Popen([sys.executable, str(HERE / script), workload], env=environment) as process:
            end = time.monotonic() + SECONDS
            while not marks(folder, last, process.pid) and process.poll() is None and time.monotonic() < end:
                time.sleep(0.002)
            process.send_signal(signal.SIGKILL)
        if not marks(folder, last, process.pid):
            raise SystemExit(f"{script} {workload} {variant} never came to {last}")

    def between(self, script: str, workload: str, first: str, last: str, variant: str, folder: Path) -> float:
        """Milliseconds of a process from one of its notes to another."""
        (folder / "effects.log").unlink()
        self.run(script, workload, variant, folder)
        return 1e3 * (marks(folder, last)[0] - marks(folder, first)[0])


def marks(folder: Path, what: str, pid: int | None = None) -> list[float]:
    """When something was noted."""
    log = folder / "effects.log"
    lines = log.read_text().splitlines() if log.exists() else []
    noted = [line.split() for line in lines if line.count(" ") == 2]
    return [float(at) for word, who, at in noted if word == what and pid in (None, int(who))]


def measure(kit: Kit, reps: int, variants: list[str], only: set[str]) -> list[Promise]:
    """Run everything and say what came out."""
    wanted = [name for name in ("W1", "W2", "W2C", "W3", "W6", "THREE") if not only or name in only]
    for _ in range(reps):
        for workload in wanted:
            for variant in variants if workload != "W3" else variants[:1]:
                kit.both(workload, variant)
    found = ratios(kit)
    for name, work in (
        ("W7", forks),
        ("DISK", disk),
        ("W5", crash),
        ("REOPEN", reopen),
        ("OPEN", opening),
        ("START", starting),
    ):
        if not only or name in only:
            found += work(kit, reps)
    return found


def ratio(kit: Kit, workload: str, variant: str, field: str) -> list[float]:
    """Ours over the bare engine's, repetition by repetition."""
    raw, ours = kit.raw.get((workload, variant), []), kit.ours.get((workload, variant), [])
    return [mine[field] / bare[field] for bare, mine in zip(raw, ours, strict=True)]


def ratios(kit: Kit) -> list[Promise]:
    """The lines that compare with the bare engine."""
    lines: list[tuple[str, str, str, dict[str, float | None]]] = [
        ("W1", "us_per_step", "a durable step", {"process": 5.0, "power": None}),
        ("W2", "ms_per_turn", "an agent turn with one tool call", {"process": 8.0, "power": 3.0}),
        ("W2C", "ms_per_turn", "a turn, 50 conversations at once", {"process": None, "power": None}),
        ("THREE", "us_per_commit", "a transaction of three records", {"process": 3.0, "power": 2.0}),
    ]
    found = []
    for workload, field, what, limits in lines:
        for variant, limit in {**limits, "jsonl-process": None, "jsonl": None}.items():
            got = ratio(kit, workload, variant, field)
            if got:
                found.append(Promise(f"{workload} {what} ({variant})", got, limit, "x raw", aim=limit is None))
    for (workload, variant), runs in kit.ours.items():
        if workload == "W6":
            found.append(
                Promise(f"W6 a streamed chunk ({variant})", [r["us_per_chunk"] for r in runs], 20.0, "us", aim=True)
            )
        if workload == "W3":
            grown = [r["turn_at_2000_ms"] / r["turn_at_100_ms"] for r in runs]
            found.append(Promise("W3 turn 2,000 over turn 100", grown, 1.2, "x"))
            found.append(Promise("W3 bytes a turn", [r["bytes_per_turn"] for r in runs], None, "B", aim=True))
            found.append(Promise("W3 memory a turn", [r["rss_kb_per_turn"] for r in runs], None, "KB", aim=True))
    return found


def forks(kit: Kit, reps: int) -> list[Promise]:
    """A fork of a conversation of 2,000 messages at message 1,000, and 1,000 conversations of which 50 are at work."""
    found = []
    for variant in ("process", "power"):
        pairs = [(kit.run(FORKED, "RAW", variant), kit.run(FORKED, "OURS", variant)) for _ in range(reps)]
        times = [mine["fork_ms"] for _, mine in pairs]
        found += [
            Promise(f"W7 a fork at message 1,000 of 2,000 ({variant})", times, 2.0, "ms"),
            Promise(
                f"W7 the first one after an open ({variant})",
                [mine["first_ms"] for _, mine in pairs],
                2.0,
                "ms",
                aim=True,
            ),
            Promise(f"W7 the same, bare ({variant})", [bare["fork_ms"] for bare, _ in pairs], None, "ms", aim=True),
            Promise(
                f"W7 a fork over one row ({variant})",
                [mine["fork_ms"] / bare["fork_ms"] for bare, mine in pairs],
                None,
                "x raw",
                aim=True,
            ),
        ]
    found.append(Promise("W7 a fork on disk", [mine["fork_bytes"] for _, mine in pairs], 2048.0, "B"))
    found.append(Promise("W7 one row on disk", [bare["fork_bytes"] for bare, _ in pairs], None, "B", aim=True))
    got = kit.run(FORKED, "MANY", "process")
    found.append(Promise("memory of an idle conversation, 950 of 1,000", [got["idle_bytes"]], 2048.0, "B"))
    found.append(Promise("memory of one that worked and was let go", [got["rested_bytes"]], 2048.0, "B"))
    return found


def disk(kit: Kit, reps: int) -> list[Promise]:
    """What a conversation takes on disk."""
    got = kit.run(OURS, "DISK", "process")
    return [Promise("1,000 messages of 1 KB on disk", [got["bytes"] / 1e6], 3.0, "MB")]


def crash(kit: Kit, reps: int) -> list[Promise]:
    """kill -9 inside a tool; how long a new process takes from its start to the tool."""
    got: dict[str, list[float]] = {RAW: [], OURS: []}
    for _ in range(reps):
        for script, first in ((RAW, "start"), (OURS, "open")):
            folder = kit.store()
            kit.killed(script, "W5run", "tool", "process", folder)
            got[script].append(kit.between(script, "W5resume", first, "tool", "process", folder))
    return [
        Promise("W5 from the open to the interrupted tool", got[OURS], 20.0, "ms", aim=True),
        Promise("W5 the same, the bare engine", got[RAW], None, "ms", aim=True),
    ]


def reopen(kit: Kit, reps: int) -> list[Promise]:
    """kill -9 after 2,000 finished steps; how long the next process takes to the step that was interrupted."""
    folder = kit.store()
    kit.killed(OURS, "STEPS", "runnable", "process", folder)
    saved = kit.store()
    got = []
    for _ in range(reps):
        shutil.rmtree(saved)
        shutil.copytree(folder, saved)
        got.append(kit.between(OURS, "REOPEN", "open", "runnable", "process", saved))
    return [Promise("reopening after 2,000 finished steps, to the next step", got, 100.0, "ms")]


def opening(kit: Kit, reps: int) -> list[Promise]:
    """A conversation of 100,000 entries beside one of four."""
    long, short = kit.store(), kit.store()
    kit.run(OURS, "LONG", "process", long)
    kit.run(OURS, "SHORT", "process", short)
    times, memory = [], []
    for _ in range(reps):
        few, many = (kit.run(OURS, "OPEN", "process", folder) for folder in (short, long))
        times.append(many["open_ms"] / few["open_ms"])
        memory.append((many["rss_kb"] - few["rss_kb"]) / 1024)
    return [
        Promise("opening 100,000 entries over opening a new conversation", times, 1.5, "x"),
        Promise("memory of 100,000 entries over that of a new conversation, after a turn", memory, 2.0, "MB"),
    ]


def cpu_ms(*arguments: str) -> float:
    """User and system time of one interpreter, in milliseconds."""
    environment = {**ENVIRONMENT, "PYTHONPATH": str(HERE.parent / "src")}
    quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    pid = os.posix_spawn(sys.executable, [sys.executable, *arguments], environment, file_actions=quiet)
    _, status, usage = os.wait4(pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit(f"python {' '.join(arguments)} failed")
    return 1e3 * (usage.ru_utime + usage.ru_stime)


def starting(kit: Kit, reps: int) -> list[Promise]:
    """Processor time of an import, over a bare interpreter, and of the command's help."""
    imports, helps = [], []
    for _ in range(2 * reps):
        bare = cpu_ms("-c", "pass")
        imports.append(cpu_ms("-c", "from perdure import Harness") - bare)
        helps.append(cpu_ms("-c", "from perdure.cli.main import main; main()", "--help"))
    return [
        Promise("from perdure import Harness", [min(imports)], 150.0, "ms"),
        Promise("perdure --help", [min(helps)], 300.0, "ms"),
    ]


def show(promises: list[Promise]) -> bool:
    """The table; whether every promise is kept."""
    kept = True
    print(f"{'':<72}{'median':>9}{'least':>9}{'most':>9}  {'limit':>12}")
    for promise in promises:
        limit = "" if promise.limit is None else f"<= {promise.limit:g} {promise.unit}"
        verdict = "" if promise.limit is None else ("pass" if promise.kept else "MISS")
        if promise.aim and promise.limit is not None:
            verdict = f"aim: {verdict.lower()}"
        numbers = f"{med(promise.got):>9.2f}{min(promise.got):>9.2f}{max(promise.got):>9.2f}"
        print(f"{promise.what:<72}{numbers}  {limit or promise.unit:>12}  {verdict}")
        kept = kept and (promise.kept or promise.aim)
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed and size beside the bare engine.")
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--only", default="", help="W1,W2,W2C,W3,W6,W7,THREE,DISK,W5,REOPEN,OPEN,START")
    parser.add_argument("--variants", default="process,power")
    options = parser.parse_args()
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(10))
    except OSError:
        print("no real-time policy here: on a busy machine expect noise", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as place:
        only = set(filter(None, options.only.split(",")))
        promises = measure(Kit(Path(place)), options.reps, options.variants.split(","), only)
    raise SystemExit(0 if show(promises) else 1)


if __name__ == "__main__":
    main()
