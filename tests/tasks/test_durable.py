"""Durable functions: passes that repeat nothing which ended."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from perdure.base.errors import InvalidDefinition
from perdure.base.ids import TaskId
from perdure.tasks.definition import task_definition
from perdure.tasks.durable import durable
from perdure.tasks.outcomes import Completed, Faulted
from perdure.tasks.signals import Signal
from perdure.tasks.steps import Parked, StepFailed, StepInterrupted, Steps
from perdure.testing.clock import settle
from tests.tasks.living import Living
from tests.tasks.shop import Payment

HOUR = 3600.0
DID: list[Any] = []
SEEN: list[Any] = []
Approved: Signal[bool] = Signal("d.approved", schema=bool)


@pytest.fixture(autouse=True)
def _forget() -> None:
    DID.clear()
    SEEN.clear()


async def build(version: str) -> dict[str, Any]:
    """A step."""
    DID.append(("build", version))
    return {"image": f"app:{version}"}


def deploy(image: str, place: str) -> str:
    """A plain function as a step."""
    DID.append(("deploy", image, place))
    return f"{image} in {place}"


@durable("d.rollout")
async def rollout(run: Steps, version: str, places: list[str]) -> str:
    """Build, ask, deploy everywhere."""
    SEEN.append((run.now(), run.random(), str(run.uuid())))
    image = await run.step("build", build, version)
    if not await run.signal(Approved, "go", timeout=HOUR):
        return "refused"
    done = [await run.step("deploy", deploy, image["image"], place) for place in places]
    await run.sleep(60)
    return ", ".join(done)


async def send(living: Living, id: TaskId, value: bool) -> str:
    async with living.session.transaction() as tx:
        result = await tx.signal(id, Approved, "go", value)
    await living.tasks.resume()
    await settle()
    return result


async def slept(living: Living, id: TaskId) -> None:
    """Steps that run in threads take real time."""
    for _ in range(200):
        if await living.status(id) == "sleeping":
            return
        await asyncio.sleep(0.005)
    raise AssertionError(await living.status(id))


async def test_it_goes_on_through_a_park_a_crash_and_a_sleep_and_does_each_step_once() -> None:
    living = await Living(rollout).open()
    id = await living.start(rollout("1.2", ["fra", "sfo"]))
    await slept(living, id)
    assert DID == [("build", "1.2")]
    assert living.tasks.wake() == (False, living.clock.now() + HOUR)
    living = await living.again(rollout, crash=True)
    await living.clock.advance(HOUR / 2)
    assert await send(living, id, True) == "delivered"
    await slept(living, id)
    assert DID[1:] == [("deploy", "app:1.2", "fra"), ("deploy", "app:1.2", "sfo")]
    living = await living.again(rollout)
    await living.clock.advance(60)
    assert (await living.outcome(id)).result(str) == "app:1.2 in fra, app:1.2 in sfo"
    assert len(DID) == 3
    assert len(SEEN) == 3
    assert len(set(SEEN)) == 1, "the time, the number and the id are the same in every pass"


async def test_a_timeout_is_the_same_in_every_pass() -> None:
    living = await Living(rollout).open()
    id = await living.start(rollout("1", ["fra"]))
    await slept(living, id)
    living = await living.again(rollout, resume=False)
    await living.clock.advance(HOUR)
    assert await send(living, id, True) == "closed"
    outcome = await living.outcome(id)
    assert isinstance(outcome, Faulted)
    assert "nothing came for d.approved/go" in outcome.error["message"]


def fragile(how: str) -> Any:
    """A step that fails, and a function that lives with it."""

    def charge() -> str:
        DID.append("charge")
        raise ValueError("no money")

    @durable("d.fragile")
    async def function(run: Steps) -> str:
        try:
            await run.step("charge", charge)
        except StepFailed as error:
            SEEN.append((error.name, error.message, error.type))
        await run.sleep(1)
        return "went on"

    return function


async def test_a_failed_step_fails_in_every_pass_and_runs_once() -> None:
    function = fragile("")
    living = await Living(function).open()
    id = await living.start(function())
    await slept(living, id)
    await living.clock.advance(1)
    assert (await living.outcome(id)).result() == "went on"
    assert DID == ["charge"]
    assert SEEN == [("charge", "no money", "ValueError")] * 2


@pytest.mark.parametrize("replay", ["safe", "unsafe"])
async def test_a_step_that_a_crash_cut_off_is_repeated_only_if_that_is_safe(replay: Any) -> None:
    go_on = asyncio.Event()

    async def charge() -> str:
        DID.append("charge")
        await go_on.wait()
        return "charged"

    @durable("d.cut")
    async def function(run: Steps) -> str:
        try:
            return await run.step("charge", charge, replay=replay)
        except StepInterrupted as error:
            return f"cut off: {error.name}"

    living = await Living(function).open()
    id = await living.start(function())
    await settle()
    assert DID == ["charge"]
    living = await living.again(function, crash=True)
    go_on.set()
    expected = "charged" if replay == "safe" else "cut off: charge"
    assert (await living.outcome(id)).result() == expected
    assert len(DID) == (2 if replay == "safe" else 1)


async def test_steps_run_side_by_side_under_stable_names() -> None:
    started: list[str] = []
    both = asyncio.Event()

    async def fetch(what: str) -> str:
        started.append(what)
        if len(started) == 2:
            both.set()
        await both.wait()
        return what.upper()

    @durable("d.gather")
    async def function(run: Steps) -> list[str]:
        found = await run.gather(run.step("fetch", fetch, "a"), run.step("fetch", fetch, "b"))
        await run.sleep(1)
        return [*found, await run.step("fetch", fetch, "c")]

    living = await Living(function).open()
    id = await living.start(function())
    await slept(living, id)
    living = await living.again(function)
    await living.clock.advance(1)
    assert (await living.outcome(id)).result() == ["A", "B", "C"]
    assert started == ["a", "b", "c"]


async def test_it_owns_tasks_and_waits_for_them() -> None:
    @durable("d.tasks")
    async def function(run: Steps) -> list[str]:
        outcomes = await run.tasks([Payment("visa"), Payment("amex")])
        SEEN.append("pass")
        return [outcome.status for outcome in outcomes]

    living = await Living(function, Payment).open()
    assert (await living.ran(function())).result() == ["completed", "completed"]
    assert SEEN == ["pass"], "the first pass ended where it parked"


async def test_it_does_not_wait_for_the_first_of_its_tasks() -> None:
    @durable("d.any")
    async def function(run: Steps) -> None:
        await run.tasks([Payment("visa"), Payment("amex")], policy="any")  # type: ignore[arg-type]

    living = await Living(function, Payment).open()
    outcome = await living.ran(function())
    assert isinstance(outcome, Faulted)
    assert "steps wait for all tasks" in outcome.error["message"]


def two_versions(second: Callable[[Steps], Any]) -> tuple[Any, Any]:
    async def note(what: str) -> str:
        DID.append(what)
        return what

    @durable("d.changes")
    async def first(run: Steps) -> str:
        await run.step("one", note, "one")
        await run.sleep(1)
        return await run.step("two", note, "two")

    return first, durable("d.changes")(second)


async def other_step(run: Steps) -> Any:
    """Asks for another step, and swallows what says so."""
    try:
        await run.step("uno", build, "1")
    except Exception:
        return "swallowed"


async def fewer(run: Steps) -> Any:
    """Asks for nothing."""
    return "done"


@pytest.mark.parametrize(("changed", "says"), [(other_step, "'one' is stored"), (fewer, "ended before it")])
async def test_changed_code_blocks_the_task_and_the_old_code_goes_on(changed: Any, says: str) -> None:
    first, second = two_versions(changed)
    living = await Living(first).open()
    id = await living.start(first())
    await slept(living, id)
    living = await living.again(second)
    await living.clock.advance(1)
    await settle()
    assert says in living.tasks.scheduler.blocked[id]
    assert living.tasks.wake().active is False
    assert (await living.record(id)).status == "pending"
    living = await living.again(first)
    assert (await living.outcome(id)) == Completed("two")
    assert DID == ["one", "two"]


async def test_what_is_done_while_it_parks_is_no_step() -> None:
    @durable("d.tidies")
    async def function(run: Steps) -> str:
        try:
            await run.sleep(1)
        finally:
            try:
                await run.step("tidy", build, "x")
            except Parked:
                SEEN.append("parked")
                raise
        return "end"

    living = await Living(function).open()
    id = await living.start(function())
    await slept(living, id)
    assert DID == []
    await living.clock.advance(1)
    assert (await living.outcome(id)).result() == "end"
    assert SEEN == ["parked"]
    assert DID == [("build", "x")]


async def test_a_function_that_swallows_the_park_faults() -> None:
    @durable("d.swallows")
    async def function(run: Steps) -> str:
        try:
            await run.sleep(1)
        except BaseException:
            return "went on"
        return "end"

    living = await Living(function).open()
    outcome = await living.ran(function())
    assert isinstance(outcome, Faulted)
    assert "went on while it parked" in outcome.error["message"]


async def test_results_come_back_through_json_in_the_first_pass_too() -> None:
    async def odd() -> Any:
        return {1: "a"}

    @durable("d.json")
    async def function(run: Steps) -> str:
        try:
            await run.step("odd", odd)
        except StepFailed as error:
            return error.type
        return "kept"

    living = await Living(function).open()
    assert (await living.ran(function())).result() == "InvalidValue"


async def test_many_restarts_with_progress_between_them_are_no_crash_loop() -> None:
    async def note(number: int) -> int:
        DID.append(number)
        if stop:
            await asyncio.Event().wait()
        return number

    @durable("d.long")
    async def function(run: Steps) -> int:
        total = 0
        for number in range(8):
            total += await run.step("note", note, number, replay="safe")
            if number in allowed:
                await asyncio.Event().wait()
        return total

    stop = False
    allowed = set(range(8))
    living = await Living(function).open()
    id = await living.start(function())
    for number in range(8):
        await settle()
        allowed.discard(number)
        living = await living.again(function, crash=True)
    assert (await living.outcome(id)).result() == 28
    assert list(range(8)) == DID


def test_a_durable_function_is_a_kind_of_task() -> None:
    assert task_definition(rollout).kind == "d.rollout"
    assert rollout.__doc__ == "Build, ask, deploy everywhere."
    with pytest.raises(InvalidDefinition, match="async def"):
        durable("d.sync")(lambda run: None)  # type: ignore[arg-type,return-value]

    async def stars(run: Steps, *more: str) -> None:
        """Takes what cannot be stored."""

    with pytest.raises(InvalidDefinition, match="more"):
        durable("d.stars")(stars)
