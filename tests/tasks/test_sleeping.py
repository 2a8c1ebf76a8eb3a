"""Sleeps beyond the signals: how long a wake stays, what a task whose work is over takes, the pace of wakes by time."""

from datetime import UTC, datetime
from typing import Any

from perdure.base.ids import TaskId
from perdure.tasks.decisions import Next
from perdure.tasks.definition import phase, task
from perdure.tasks.outcomes import Completed, Faulted
from perdure.tasks.runtime import TaskRun
from perdure.tasks.signals import Signal
from perdure.testing.clock import settle
from tests.tasks.living import Living

Word: Signal[str] = Signal("sleep.word", schema=str)
SEEN: list[Any] = []


@task("sleep.steps")
class Steps:
    """Wakes, goes on to another phase, and sleeps once more."""

    @phase(first=True)
    async def begin(self, run: TaskRun) -> Next[Any]:
        """Sleeps."""
        return run.sleep(self.woken, [Word.key("a")])

    @phase
    async def woken(self, run: TaskRun) -> Next[Any]:
        """Goes on by a checkpoint of its own, then to another phase."""
        SEEN.append(("woken", type(run.wake).__name__))
        async with run.transaction() as tx:
            tx.checkpoint(self.after, 1)
        SEEN.append(("stored", b'"wake"' in run.record.state))
        return run.goto(self.after, 2)

    @phase
    async def after(self, run: TaskRun, number: int) -> Next[Any]:
        """Has no wake any more."""
        SEEN.append((number, run.wake))
        return run.complete()


@task("sleep.child")
class Child:
    """Sleeps for ever."""

    @phase(first=True)
    async def begin(self, run: TaskRun) -> Next[Any]:
        """Sleeps."""
        return run.sleep(self.begin, [Word.key("never")])


@task("sleep.parent")
class Parent:
    """Completes while what it owns lives on."""

    @phase(first=True)
    async def begin(self, run: TaskRun) -> Next[Any]:
        """Completes."""
        async with run.transaction() as tx:
            tx.create_task(Child())
        return run.complete("held")


@task("sleep.ticks")
class Ticks:
    """Sleeps until a time that has passed, so many times."""

    times: int
    listens: bool = False

    @phase(first=True)
    async def tick(self, run: TaskRun, count: int = 0) -> Next[Any]:
        """Sleeps until now."""
        SEEN.append(round(run.now() % 1000, 3))
        if count == self.times:
            return run.complete()
        keys = [Word.key(str(count))] if self.listens else []
        return run.sleep(self.tick, keys, run.now() - 5, count=count + 1)


@task("sleep.odd")
class Odd:
    """Sleeps by an aware datetime."""

    @phase(first=True)
    async def begin(self, run: TaskRun) -> Next[Any]:
        """Sleeps."""
        return run.sleep(self.end, until=datetime.fromtimestamp(run.now() + 60.0001, UTC))

    @phase
    async def end(self, run: TaskRun) -> Next[Any]:
        """Tells."""
        return run.complete(run.now())


async def opened() -> Living:
    SEEN.clear()
    return await Living(Steps, Child, Parent, Ticks, Odd).open()


async def tell(living: Living, id: TaskId, key: str) -> str:
    async with living.session.transaction() as tx:
        return str(await tx.signal(id, Word, key, "x"))


async def test_a_wake_stays_until_another_checkpoint_is_stored() -> None:
    living = await opened()
    id = TaskId(await living.start(Steps()))
    await settle()
    await tell(living, id, "a")
    await living.outcome(id)
    assert SEEN == [("woken", "Signalled"), ("stored", False), (2, None)]


async def test_a_task_whose_outcome_is_held_takes_no_value() -> None:
    living = await opened()
    id = TaskId(await living.start(Parent()))
    await settle()
    assert await living.status(id) == "completing"
    assert await tell(living, id, "a") == "closed"
    (child,) = living.tasks.index.children(id)
    assert await tell(living, child, "never") == "delivered"
    assert await living.status(id) == "terminal", "its child sleeps on a used key, and faults"


async def test_a_first_sleep_until_a_passed_time_wakes_at_once_and_later_ones_at_a_bearable_pace() -> None:
    for listens in (False, True):
        living = await opened()
        id = TaskId(await living.start(Ticks(4, listens)))
        await settle(300)
        assert len(SEEN) == 2
        assert living.tasks.wake() == (False, living.clock.now() + 0.1)
        await living.clock.advance(0.25)
        assert len(SEEN) == 4
        await living.clock.advance(0.05)
        assert isinstance(await living.outcome(id), Completed)
        assert SEEN[1:] == [round(SEEN[0] + n / 10, 3) for n in range(4)]


async def test_a_restart_does_not_let_the_pace_be_forgotten() -> None:
    living = await opened()
    id = TaskId(await living.start(Ticks(3)))
    await settle(300)
    living = await living.again(Ticks)
    await settle(300)
    assert len(SEEN) == 2
    await living.clock.advance(0.2)
    assert isinstance(await living.outcome(id), Completed)


async def test_a_deadline_is_rounded_up_and_a_date_needs_its_zone() -> None:
    living = await opened()
    id = TaskId(await living.start(Odd()))
    await settle()
    assert living.tasks.wake().at == living.clock.now() + 60.001
    await living.clock.advance(60.0)
    assert await living.status(id) == "sleeping"
    await living.clock.advance(0.001)
    assert isinstance(await living.outcome(id), Completed)

    @task("sleep.naive")
    class Naive:
        @phase(first=True)
        async def begin(self, run: TaskRun) -> Next[Any]:
            return run.sleep(self.begin, until=datetime(2030, 1, 1))

    outcome = await (await Living(Naive).open()).ran(Naive())
    assert isinstance(outcome, Faulted)
    assert "time zone" in outcome.error["message"]
