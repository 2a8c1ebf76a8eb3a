"""Real processes, killed with SIGKILL in the middle of a round of three tools, until one of them comes to the end."""

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure import Settled
from perdure.base.errors import StorageError
from perdure.base.ids import ROOT, SubmissionId
from perdure.models.messages import decode_messages
from perdure.models.protocol import ModelRequest
from perdure.storage.sqlite.store import SqliteStorage
from perdure.testing.laws import Acknowledged, check_effects, check_laws
from perdure.testing.ledger import FileLedger
from tests.crash import victim

QUICK = 25
LONG = 400
MOST_KILLS = 3


class Nursery:
    """The process that forks lives (see `victim`)."""

    def __init__(self) -> None:
        path = os.pathsep.join(["src", os.curdir])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.victim"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            cwd=Path(__file__).parents[2],
        )

    def live(self, folder: Path, number: int, kill_after: float | None) -> int:
        """One life, killed after so many seconds; returns its exit code (-9: killed)."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{folder} {number} {kill_after}\n".encode())
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """No more lives."""
        self._process.communicate(timeout=10)


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    process = Nursery()
    yield process
    process.close()


@pytest.fixture(scope="module")
def lifetime(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> float:
    """How long a life takes that nobody ends."""
    folder = tmp_path_factory.mktemp("untouched")
    nursery.live(folder, 1, None)
    began = time.perf_counter()
    assert nursery.live(tmp_path_factory.mktemp("timed"), 1, None) == 0
    return time.perf_counter() - began


def lines(path: Path) -> list[Any]:
    return [msgspec.json.decode(line) for line in FileLedger(path).lines()]


async def check(folder: Path, kills: int) -> None:
    """The laws, on what the last life left and what the world saw."""
    told = lines(folder / victim.TOLD)
    acknowledged = {
        (line["request_id"], line["id"]): Acknowledged(ROOT, line["request_id"], SubmissionId(line["id"]))
        for line in told
        if "request_id" in line
    }
    assert len({request for request, _ in acknowledged}) == len(acknowledged), "one request id, two submissions"
    settled: dict[SubmissionId, Settled] = {}
    for line in told:
        if "settled" in line:
            found = msgspec.convert(line["settled"], Settled)
            assert found.status == "done", found
            assert settled.setdefault(SubmissionId(line["id"]), found) == found, "told twice, differently"
    asked = [line["messages"] for line in lines(folder / victim.ASKED)]
    assert sum(Counter(asked).values()) - len(Counter(asked)) <= kills, "more than one request again after one crash"
    effects = FileLedger(folder / victim.EFFECTS).effects()
    opening, _ = victim.open_harness(folder, kills + 2, FileLedger(folder / victim.EFFECTS, kills + 2))
    async with opening as harness:
        await check_laws(
            harness,
            acknowledged=acknowledged.values(),
            told=settled,
            effects=effects,
            requests=[ModelRequest(messages=decode_messages(messages.encode())) for messages in asked],
        )
        assert harness.inspect()["tasks"] == []
    counts = Counter(effect.name for effect in effects)
    assert counts["ship"] <= 1
    assert counts["pay"] <= 2


async def ended_tasks(folder: Path, number: int) -> dict[Any, int]:
    """The calls that a killed process left ended, as a reader sees them that changes nothing."""
    if not (folder / victim.STORE).exists():
        return {}
    store = SqliteStorage(folder / victim.STORE, read_only=True)
    try:
        await store.open()
        found = await store.scan_tasks(conversation=ROOT, kind="perdure.tool", limit=1000)
        return {task.id: number for task in found if task.status == "terminal"}
    except StorageError:
        return {}  # killed before there was a session in the file
    finally:
        await store.close()


async def die_and_live(nursery: Nursery, folder: Path, lifetime: float, seed: int) -> int:
    """Some lives that are killed, and a last one; how many were killed."""
    chance = random.Random(seed)
    kills = 0
    ended: dict[Any, int] = {}
    for number in range(1, chance.randint(1, MOST_KILLS) + 1):
        if nursery.live(folder, number, chance.random() * lifetime) == 0:
            break
        kills += 1
        for task, seen in (await ended_tasks(folder, number + 1)).items():
            ended.setdefault(task, seen)
    assert nursery.live(folder, kills + 1, None) == 0
    check_effects(FileLedger(folder / victim.EFFECTS).effects(), ended)
    await check(folder, kills)
    return kills


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(QUICK))
async def test_a_kill_in_a_round_of_three_tools_loses_and_repeats_nothing(
    seed: int, nursery: Nursery, lifetime: float, tmp_path: Path
) -> None:
    await die_and_live(nursery, tmp_path, lifetime, seed)


@pytest.mark.long
async def test_hundreds_of_kills_lose_and_repeat_nothing(
    nursery: Nursery, lifetime: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    killed = 0
    for seed in range(QUICK, QUICK + LONG):
        killed += await die_and_live(nursery, tmp_path_factory.mktemp(f"seed{seed}"), lifetime, seed)
    assert killed > LONG // 2
