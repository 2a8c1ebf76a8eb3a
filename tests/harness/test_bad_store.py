"""A store that is locked or full in the middle of a run: a clear error for everybody who waits,
nothing half-stored, and once the cause is mended a reopened run comes to its end without doing anything twice."""

import asyncio
import contextlib
import resource
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure import (
    Harness,
    Registry,
    SessionPoisoned,
    StorageBusy,
    StorageError,
)
from perdure.agent.documents import LiveDoc
from perdure.base.ids import ROOT
from perdure.storage.protocol import Durability
from perdure.storage.sqlite.store import SqliteStorage
from perdure.testing.laws import check_records
from perdure.testing.scripted_model import ScriptedModel, call, say
from tests.agent.kit import MODEL, ask, results, said
from tests.harness.trouble import DURABILITIES, PATIENCE, Shop, Trouble, caught, files_of, mount, unmount


async def poisoned_run(shop: Shop, path: Path, durability: Durability) -> list[SessionPoisoned]:
    """A run into whose tool the trouble comes; what each kind of waiter got, and the next caller."""
    async with shop.harness(path, durability) as harness:
        root = await harness.root(model=MODEL)
        first = await root.submit("pay", request_id="first")
        second = await root.submit("and then?", request_id="second")
        ends = harness.tasks.wait((await root.live())["run"]["generation"])
        waits = (first.wait(), first.settled(), second.wait(), root.wait_idle(), ends)
        async with asyncio.timeout(PATIENCE), harness.watch_document(LiveDoc, ROOT) as watch:
            waiting = asyncio.gather(*map(caught, waits))
            asyncio.get_running_loop().call_later(0.05, shop.go.set)
            got = list(await waiting)
            async for frame in watch:
                assert frame.value["run"] is not None, "nothing is shown that is not stored"
        assert watch.ended is not None
        got.append(await caught(root.submit("later")))
        got.append(await caught(root.configure(instructions="more")))
        got.append(await caught(harness.session.snapshot(LiveDoc, ROOT)))
    assert all(isinstance(error, SessionPoisoned) for error in got), got
    return [error for error in got if isinstance(error, SessionPoisoned)]


async def finishes_once(shop: Shop, path: Path, durability: Durability) -> None:
    """The reopened session holds nothing half-stored, comes to the end of the run, and takes the next input."""
    async with asyncio.timeout(PATIENCE), shop.harness(path, durability) as harness:
        await check_records(harness)
        root = await harness.root()
        assert await said(root) == ["pay"]
        assert [entry.kind for entry in await root.entries()][-1] == "perdure.assistant", "no half of a result"
        assert await ask(root, "pay", request_id="first") == "Paid once."
        assert await ask(root, "and then?", request_id="second") == "Still here."
        found = await results(root)
        assert found[0].startswith("interrupted")
        assert found[1:] == ["paid 1 times"]
        assert shop.paid == 1
        assert harness.inspect()["tasks"] == []


def cause(error: SessionPoisoned) -> str:
    return type(error.__cause__).__name__


# another process holds the lock

HOLD = """
import sqlite3, sys
other = sqlite3.connect(sys.argv[1], isolation_level=None)
other.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
other.execute("ROLLBACK")
"""


class Holder:
    """A process of its own that holds a store's write lock."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._process: subprocess.Popen[bytes] | None = None

    async def hold(self) -> None:
        """Take the lock."""
        assert await asyncio.to_thread(self._start) == b"held\n"

    def _start(self) -> bytes:
        code = [sys.executable, "-c", HOLD, str(self._path)]
        self._process = subprocess.Popen(code, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def release(self) -> None:
        """Give it back."""
        if self._process is not None:
            self._process.communicate(timeout=10)
            self._process = None


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[Holder]:
    found = Holder(tmp_path / "s.db")
    yield found
    found.release()


@pytest.mark.slow
@pytest.mark.parametrize("durability", DURABILITIES)
async def test_a_lock_that_is_held_for_too_long_is_told_and_the_run_goes_on_after_a_reopen(
    tmp_path: Path, holder: Holder, durability: Durability
) -> None:
    shop = Shop(holder.hold)
    errors = await poisoned_run(shop, tmp_path / "s.db", durability)
    assert {cause(error) for error in errors} == {"StorageBusy"}
    assert "another process" in str(errors[0])
    assert errors[0].certain == "not_stored"
    assert "open the session anew" in errors[0].hint
    holder.release()
    await finishes_once(shop, tmp_path / "s.db", durability)


@pytest.mark.slow
async def test_a_lock_that_is_given_back_in_time_is_waited_for(tmp_path: Path, holder: Holder) -> None:
    async def hold_shortly() -> None:
        await holder.hold()
        asyncio.get_running_loop().call_later(0.3, holder.release)

    shop = Shop(hold_shortly)
    shop.go.set()
    model = ScriptedModel([call("pay"), say("Paid.")])
    storage = SqliteStorage(tmp_path / "s.db", busy_timeout=10)
    async with Harness.open(storage, registry=Registry([shop.extension]), models=model) as harness:
        assert await ask(await harness.root(model=MODEL), "pay") == "Paid."


@pytest.mark.slow
async def test_a_store_whose_lock_is_held_is_not_opened(tmp_path: Path, holder: Holder) -> None:
    shop = Shop()
    async with shop.harness(tmp_path / "s.db", "power") as harness:
        await harness.root(model=MODEL)
    await holder.hold()
    assert isinstance(await caught(Harness.open(tmp_path / "s.db")), StorageBusy)
    holder.release()
    async with shop.harness(tmp_path / "s.db", "power") as harness:
        assert (await (await harness.root()).agent()).model == MODEL


# no room


@pytest.fixture
def no_growth(tmp_path: Path) -> Iterator[Callable[[], Awaitable[None]]]:
    """Files may not grow any more once this is called: what a program sees of a disk without room."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    async def stop_growing() -> None:
        largest = max(file.stat().st_size for file in files_of(tmp_path))
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest + 20_000, before[1]))

    yield stop_growing
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_files_that_cannot_grow_end_every_wait_and_the_run_goes_on_when_they_can(
    tmp_path: Path, durability: Durability, no_growth: Trouble
) -> None:
    shop, before = Shop(no_growth), resource.getrlimit(resource.RLIMIT_FSIZE)
    errors = await poisoned_run(shop, tmp_path / "s.db", durability)
    assert {cause(error) for error in errors} == {"StorageFull"}
    assert "no room" in str(errors[0])
    assert errors[0].certain == "not_stored"
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    await finishes_once(shop, tmp_path / "s.db", durability)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount(disk, "-t", "tmpfs", "-o", "size=1200k", "tmpfs")
    yield disk
    unmount(disk)


def fill(ballast: Path) -> None:
    """Take all the room there is."""
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(b"\0" * 4096):
            pass


@pytest.mark.slow
@pytest.mark.parametrize("durability", DURABILITIES)
async def test_a_full_disk_ends_every_wait_and_the_run_goes_on_when_there_is_room(
    small_disk: Path, durability: Durability
) -> None:
    async def fill_up() -> None:
        fill(small_disk / "ballast")

    shop = Shop(fill_up)
    errors = await poisoned_run(shop, small_disk / "s.db", durability)
    assert {cause(error) for error in errors} == {"StorageFull"}
    with pytest.raises(StorageError):
        await Harness.open(small_disk / "s.db")
    (small_disk / "ballast").unlink()
    await finishes_once(shop, small_disk / "s.db", durability)


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_a_disk_that_fills_up_while_an_answer_streams_ends_every_wait(
    tmp_path: Path, durability: Durability, no_growth: Trouble
) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    shop = Shop()

    def opening(turn: Any, chunk: int) -> Any:
        storage = SqliteStorage(tmp_path / "s.db", durability=durability)
        model = ScriptedModel([turn], chunk=chunk)
        return Harness.open(storage, models=model, registry=Registry([shop.extension]))

    go = asyncio.Event()
    async with opening(say("word " * 40_000).held_by(go), 20_000) as harness:
        root = await harness.root(model=MODEL)
        submission = await root.submit("talk", request_id="talk")
        await no_growth()
        go.set()
        error = await caught(submission.wait())
        assert isinstance(error, SessionPoisoned)
        assert cause(error) == "StorageFull"
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    async with opening(say("short"), 8) as harness:
        assert await ask(await harness.root(), "talk", request_id="talk") == "short"


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_a_close_without_room_raises_nothing_and_loses_nothing(
    tmp_path: Path, durability: Durability, no_growth: Trouble
) -> None:
    before, reached = resource.getrlimit(resource.RLIMIT_FSIZE), asyncio.Event()

    async def stand_still() -> None:
        await no_growth()
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, before[1]))
        reached.set()
        await asyncio.Event().wait()

    shop = Shop(stand_still)
    async with asyncio.timeout(PATIENCE):
        harness = await shop.harness(tmp_path / "s.db", durability)
        root = await harness.root(model=MODEL)
        first = await root.submit("pay", request_id="first")
        await root.submit("and then?", request_id="second")
        shop.go.set()
        await reached.wait()
        waiting = asyncio.ensure_future(caught(first.wait()))
        await asyncio.sleep(0)
        assert await harness.close() == []
        assert isinstance(await waiting, SessionPoisoned)
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    await finishes_once(shop, tmp_path / "s.db", durability)
