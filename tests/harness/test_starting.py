"""Tasks that a host starts, and waiting until everything is parked."""

import asyncio
from typing import Any

import pytest

from perdure import (
    ROOT,
    Extension,
    InvalidDefinition,
    InvalidValue,
    Next,
    NotFound,
    Registry,
    RequestConflict,
    SessionClosed,
    Signal,
    Sleep,
    Task,
    TaskRun,
    ToolContext,
    phase,
    task,
)
from perdure.harness.harness import Harness
from perdure.storage.memory import MemoryStorage
from perdure.testing.clock import FakeClock, settle
from perdure.testing.scripted_model import call
from tests.agent.kit import agent

Word: Signal[str] = Signal("start.word", schema=str)


@task("start.nap", version=1)
class Nap(Task[str]):
    """Sleeps for some seconds, or until a word."""

    seconds: float
    name: str = ""

    @phase(first=True)
    async def begin(self, run: TaskRun) -> Next[str]:
        """Sleeps."""
        return run.sleep(self.end, [Word.key("w")], run.now() + self.seconds)

    @phase
    async def end(self, run: TaskRun) -> Next[str]:
        """Tells."""
        return run.complete(f"slept {self.name}")


@task("start.unknown", version=1)
class Unknown:
    """Nobody installs it."""

    @phase(first=True)
    async def begin(self, run: TaskRun) -> Next[None]:
        """Ends."""
        return run.complete()


naps = Extension("naps", tasks=[Nap], signals=[Word])


def opening(storage: MemoryStorage, clock: FakeClock) -> Any:
    return Harness.open(storage, registry=Registry([naps]), clock=clock)


async def test_a_task_is_started_from_outside_and_waiting_for_it_is_enough() -> None:
    clock = FakeClock()
    async with opening(MemoryStorage(), clock) as harness:
        id = await harness.start(Nap(5.0, "well"))
        assert await harness.wait_parked() == (False, clock.now() + 5)
        ended = asyncio.ensure_future(harness.tasks.wait(id))
        await clock.advance(5)
        assert (await ended).result(str) == "slept well"
        assert await harness.wait_parked() == (False, None)


async def test_whoever_waits_for_a_task_of_an_earlier_process_sets_it_going() -> None:
    clock, storage = FakeClock(), MemoryStorage()
    async with opening(storage, clock) as harness:
        id = await harness.start(Nap(5.0))
        await harness.wait_parked()
    await clock.advance(5)
    async with opening(storage, clock) as harness:
        assert not harness.inspect()["scheduling"]
        assert (await harness.tasks.wait(id)).completed
    async with opening(storage, clock) as harness:
        assert (await harness.tasks.wait(id)).completed
        assert not harness.inspect()["scheduling"], "it has ended: nothing has to be started to tell how"
        with pytest.raises(NotFound):
            await harness.tasks.wait(4711)


async def test_a_request_id_starts_one_task_for_ever() -> None:
    clock, storage = FakeClock(), MemoryStorage()
    async with opening(storage, clock) as harness:
        ids = await asyncio.gather(*(harness.start(Nap(5.0, "a"), request_id="nightly") for _ in range(5)))
        (id,) = set(ids)
        with pytest.raises(RequestConflict):
            await harness.start(Nap(6.0, "a"), request_id="nightly")
        with pytest.raises(RequestConflict):
            await harness.start(Nap(5.0, "a"), request_id="nightly", background=True)
        assert await harness.start(Nap(5.0, "a"), request_id="other") != id
        assert await harness.start(Nap(5.0, "a")) not in ids
        await clock.advance(5)
        assert (await harness.tasks.wait(id)).completed
    async with opening(storage, clock) as harness:
        assert await harness.start(Nap(5.0, "a"), request_id="nightly") == id
        assert await harness.wait_parked() == (False, None)


@pytest.mark.parametrize("request_id", ["", 1, "\ud800"])
async def test_what_is_no_request_id_is_refused(request_id: Any) -> None:
    async with opening(MemoryStorage(), FakeClock()) as harness:
        with pytest.raises(InvalidValue):
            await harness.start(Nap(5.0), request_id=request_id)


async def test_nothing_is_started_that_could_not_run_or_nowhere() -> None:
    async with opening(MemoryStorage(), FakeClock()) as harness:
        with pytest.raises(InvalidDefinition):
            await harness.start(Unknown())
        with pytest.raises(NotFound):
            await harness.start(Nap(1.0), conversation=77)
        assert harness.inspect()["tasks"] == []


async def test_a_background_task_holds_up_no_idleness() -> None:
    async with opening(MemoryStorage(), FakeClock()) as harness:
        root = await harness.conversation(ROOT)
        await harness.start(Nap(5.0), background=True)
        await root.wait_idle()
        await harness.start(Nap(5.0))
        idle = asyncio.ensure_future(root.wait_idle())
        await settle()
        assert not idle.done()
        await root.abort()
        await idle


async def test_everything_is_parked_once_the_tool_sleeps_and_not_before() -> None:
    going, tools = asyncio.Event(), Extension("tools", signals=[Word])

    @tools.tool(replay="safe")
    async def wait_for_word(ctx: ToolContext) -> Any:
        """Wait for a word."""
        if (state := await ctx.read_signal(Word, "w")) is not None:
            return state.value
        await going.wait()
        return Sleep(signals=[Word.key("w")])

    async with agent([call("wait_for_word"), "done"], tools) as (harness, root):
        submission = await root.submit("go")
        parked = asyncio.ensure_future(harness.wait_parked())
        await settle()
        assert not parked.done()
        going.set()
        assert await parked == (False, None)
        (id,) = (await root.live())["tools"]
        assert await harness.signal(int(id), Word, "w", "x") == "delivered"
        assert harness.wake().active
        assert await harness.wait_parked() == (False, None)
        assert await submission.status() == "done"


async def test_waiting_until_all_is_parked_ends_with_the_session() -> None:
    going, tools = asyncio.Event(), Extension("tools")

    @tools.tool
    async def hang(ctx: ToolContext) -> None:
        """Hang."""
        await going.wait()

    async with agent([call("hang"), "done"], tools) as (harness, root):
        await root.submit("go")
        parked = asyncio.ensure_future(harness.wait_parked())
        await settle()
    with pytest.raises(SessionClosed):
        await parked
