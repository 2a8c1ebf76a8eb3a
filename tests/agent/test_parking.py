"""Tools that park: they return a sleep or a wait, nothing runs, and they go on when it is over."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from perdure import (
    ROOT,
    Extension,
    Harness,
    Registry,
    Signal,
    Sleep,
    TaskId,
    Wait,
    open_storage,
)
from perdure.storage.memory import MemoryStorage
from perdure.testing.clock import FakeClock, settle
from perdure.testing.scripted_model import ScriptedModel, call
from tests.agent.kit import MODEL, agent, results

Done: Signal[str] = Signal("p.done", schema=str)
HOUR = 3600.0


def ci(log: list[Any], *, replay: Any = "safe", until: float | None = None) -> Extension:
    """A tool that starts a build, parks, and reports."""
    extension = Extension("ci", signals=[Done])

    @extension.tool(replay=replay)
    async def run_ci(ctx: Any, ref: str) -> Any:
        """Run the build."""
        log.append(("run", type(ctx.wake).__name__, ctx.checkpoint))
        state = await ctx.read_signal(Done, "done")
        if state is None:
            ctx.output("triggered\n")
            ctx.diagnostic(f"build of {ref}")
            limit = None if until is None else ctx.now() + until
            return Sleep(signals=[Done.key("done")], until=limit, checkpoint={"build": ref})
        return "never reported" if state.expired else f"build {state.value}"

    @run_ci.cancel
    async def stop_build(ctx: Any, ref: str) -> None:
        log.append(("cancel", ref, ctx.checkpoint))

    return extension


async def parked_call(harness: Harness) -> TaskId:
    """The call that sleeps."""
    await settle()
    found = [t.id for t in harness.tasks.index.tasks.values() if t.kind == "perdure.tool"]
    assert len(found) == 1
    return found[0]


async def test_a_call_sleeps_until_its_signal_and_runs_again_with_the_wake() -> None:
    log: list[Any] = []
    async with agent([call("run_ci", {"ref": "main"}), "fine"], ci(log)) as (harness, root):
        submission = await root.submit("check")
        id = await parked_call(harness)
        assert harness.wake() == (False, None), "nothing runs and nothing is due"
        live = await root.live()
        assert live["tools"][str(id)]["status"] == "sleeping"
        assert await harness.signal(id, Done, "done", "passed") == "delivered"
        assert (await submission.wait()).text == "fine"
        assert log == [("run", "NoneType", None), ("run", "Signalled", {"build": "main"})]
        assert await results(root) == ["build passed\n\n[diagnostics]\nbuild of main"]


async def test_a_deadline_wakes_it_too() -> None:
    log: list[Any] = []
    clock = FakeClock()
    async with agent([call("run_ci", {"ref": "main"}), "late"], ci(log, until=HOUR), clock=clock) as (harness, root):
        submission = await root.submit("check")
        id = await parked_call(harness)
        assert harness.wake() == (False, clock.now() + HOUR)
        await clock.advance(HOUR)
        assert (await submission.wait()).text == "late"
        assert (await results(root))[0].startswith("never reported")
        assert await harness.signal(id, Done, "done", "passed") == "closed"


async def test_an_early_signal_wakes_it_at_once() -> None:
    early = Extension("early", signals=[Done])

    @early.tool
    async def run(ctx: Any) -> Any:
        """Run."""
        state = await ctx.read_signal(Done, "done")
        if state is not None:
            return state.value
        async with ctx.transaction() as tx:
            assert await tx.signal(ctx.task_id, Done, "done", "early") == "delivered"
        return Sleep(signals=[Done.key("done")])

    async with agent([call("run"), "fine"], early) as (_, root):
        await (await root.submit("go")).wait()
        assert await results(root) == ["early"]


async def test_it_polls_by_parking_on_time() -> None:
    poll = Extension("poll")
    seen: list[Any] = []

    @poll.tool(replay="safe")
    async def wait_for(ctx: Any) -> Any:
        """Poll."""
        tries = (ctx.checkpoint or {"tries": 0})["tries"] + 1
        seen.append((tries, ctx.now()))
        return "ready" if tries == 4 else Sleep(until=ctx.now() + 2.0**tries, checkpoint={"tries": tries})

    clock = FakeClock()
    start = clock.now()
    async with agent([call("wait_for"), "fine"], poll, clock=clock) as (_, root):
        submission = await root.submit("go")
        for _ in range(3):
            await settle()
            await clock.advance(16)
        await submission.wait()
    assert [tries for tries, _ in seen] == [1, 2, 3, 4]
    assert seen[1][1] == start + 2


async def test_stop_while_it_is_parked_cleans_up_with_what_it_kept() -> None:
    log: list[Any] = []
    async with agent([call("run_ci", {"ref": "main"}), "never"], ci(log)) as (harness, root):
        submission = await root.submit("check")
        id = await parked_call(harness)
        await root.abort()
        assert log[1:] == [("cancel", "main", {"build": "main"})]
        assert (await submission.settled()).status == "unanswered"
        assert await harness.signal(id, Done, "done", "late") == "closed"
        assert "aborted: the call was stopped" in (await results(root))[0]


async def test_stop_before_the_park_is_stored_cleans_up_with_it() -> None:
    ext, log = Extension("slow"), []
    marked = asyncio.Event()

    @ext.tool
    async def slow(ctx: Any) -> Any:
        """Begin, and do not notice the stop."""
        try:
            await marked.wait()
        except asyncio.CancelledError:
            asyncio.current_task().uncancel()  # type: ignore[union-attr]
        return Sleep(signals=[Done.key("done")], checkpoint="begun")

    @slow.cancel
    async def clean(ctx: Any) -> None:
        log.append(ctx.checkpoint)

    async with agent([call("slow"), "never"], ext) as (_, root):
        await root.submit("go")
        await settle()
        await root.abort()
        assert log == ["begun"]


@pytest.mark.parametrize(
    ("park", "why"),
    [
        (Sleep(), "a sleep without an end"),
        (Sleep(signals=[Done.key("used")]), "has woken this task already"),
        (Sleep(signals=["done"]), "list of signal keys"),  # type: ignore[list-item]
        (Sleep(until="tomorrow"), ""),  # type: ignore[arg-type]
        (Sleep(until=float("nan")), ""),
        (Sleep(until=1.0, checkpoint={1, 2}), ""),
        (Wait(), "not empty"),
        (Wait(on=[TaskId(4711)]), "there is no task 4711"),
        (Wait(on=["a"]), "task ids"),  # type: ignore[list-item]
        (Wait(on=[TaskId(3)], policy="first"), "a policy is"),  # type: ignore[arg-type]
    ],
)
async def test_a_park_that_cannot_be_is_an_error_result(park: Any, why: str) -> None:
    ext = Extension("odd", signals=[Done])

    @ext.tool
    async def odd(ctx: Any) -> Any:
        """Park oddly."""
        if ctx.wake is None:
            async with ctx.transaction() as tx:
                await tx.signal(ctx.task_id, Done, "used", "x")
            return Sleep(signals=[Done.key("used")])
        return park

    async with agent([call("odd"), "fine"], ext) as (_, root):
        assert (await (await root.submit("go")).wait()).text == "fine"
        (text,) = await results(root)
    assert text.startswith("invalid_park: ")
    assert why in text


async def test_waiting_for_itself_is_no_park() -> None:
    ext = Extension("odd")

    @ext.tool
    async def odd(ctx: Any) -> Any:
        """Park on itself."""
        return Wait(on=[ctx.task_id])

    async with agent([call("odd"), "fine"], ext) as (_, root):
        await (await root.submit("go")).wait()
        assert (await results(root))[0].startswith("invalid_park: ")


async def test_a_wrap_never_parks() -> None:
    ext, wraps = Extension("plain"), Extension("wraps")

    @ext.tool
    async def plain(ctx: Any) -> str:
        """Answer."""
        return "ran"

    @wraps.wrap_tool("plain")
    async def parks(ctx: Any, args: Any, call_next: Any) -> Any:
        await call_next(args)
        return Sleep(until=ctx.now() + 1)

    async with agent([call("plain"), "fine"], ext, wraps) as (_, root):
        await (await root.submit("go")).wait()
        assert (await results(root))[0].startswith("invalid_park: a wrap never parks")


class Crashed:
    """The store as it was when the tool asked for it, and a way to open it again."""

    def __init__(self, extension: Any) -> None:
        self.storage = MemoryStorage()
        self.left: MemoryStorage | None = None
        self._extension = extension

    def crash(self) -> None:
        """Keep what is stored now."""
        self.left = self.storage.copy()

    def again(self) -> Any:
        """The next process."""
        assert self.left is not None
        return Harness.open(self.left, registry=Registry([self._extension()]), models=ScriptedModel(["fine"]))


@pytest.mark.parametrize("replay", ["safe", "unsafe"])
async def test_a_woken_run_that_a_crash_cut_off_is_repeated_only_if_that_is_safe(replay: Any) -> None:
    log: list[Any] = []

    def make() -> Extension:
        ext = Extension("ci", signals=[Done])

        @ext.tool(replay=replay)
        async def run_ci(ctx: Any) -> Any:
            """Run."""
            log.append((type(ctx.wake).__name__, ctx.checkpoint))
            if ctx.wake is None:
                return Sleep(signals=[Done.key("done")], checkpoint=7)
            if world.left is None:
                world.crash()
            return "reported"

        @run_ci.cancel
        async def clean(ctx: Any) -> None:
            log.append(("cancel", type(ctx.wake).__name__, ctx.checkpoint))

        return ext

    world = Crashed(make)
    async with agent([call("run_ci"), "fine"], make(), storage=world.storage) as (harness, root):
        submission = await root.submit("go")
        await harness.signal(await parked_call(harness), Done, "done", "x")
        await submission.wait()
    log.clear()
    async with world.again() as harness:
        root = await harness.root()
        await harness.resume()
        await root.wait_idle()
        (text,) = await results(root)
    if replay == "safe":
        assert log == [("Signalled", 7)]
        assert text == "reported"
    else:
        assert log == [("cancel", "Signalled", 7)]
        assert text.startswith("interrupted: ")


async def test_a_process_with_everything_parked_ends_and_the_next_one_goes_on(tmp_path: Path) -> None:
    log: list[Any] = []

    def opening(turns: list[Any]) -> Any:
        storage = open_storage(tmp_path / "night.db", durability="process")
        return Harness.open(storage, registry=Registry([ci(log)]), models=ScriptedModel(turns))

    async with opening([call("run_ci", {"ref": "a"})]) as one:
        submission = await (await one.root(model=MODEL)).submit("check", request_id="r")
        id = await parked_call(one)
        assert one.wake() == (False, None)
    async with opening(["fine"]) as two:
        assert two.wake() == (False, None)
        assert await two.signal(id, Done, "done", "passed") == "delivered"
        again = await (await two.conversation(ROOT)).submit("check", request_id="r")
        assert again.id == submission.id
        assert (await again.wait()).text == "fine"
    assert [entry[0] for entry in log] == ["run", "run"]
