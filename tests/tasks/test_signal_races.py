"""Signals against deadlines, aborts, closes and crashes in any order: the sender and the task always agree."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.base.ids import TaskId
from perdure.storage.memory import MemoryStorage
from perdure.tasks.decisions import Next
from perdure.tasks.definition import phase, task
from perdure.tasks.outcomes import Aborted, Completed
from perdure.tasks.runtime import TaskRun
from perdure.tasks.signals import Signal
from perdure.testing.clock import FakeClock, settle
from tests.tasks.living import Living

DEADLINE = 10.0
KEYS = ["a", "b"]
Token: Signal[int] = Signal("r.token", schema=int)


@task("r.waits")
class Waits:
    """Waits once for either key, and completes with why it woke and what each key held then."""

    @phase(first=True)
    async def begin(self, run: TaskRun) -> Next[Any]:
        """Sleeps."""
        until = await run.memo("until", run.now() + DEADLINE)
        return run.sleep(self.woken, [Token.key(key) for key in KEYS], until)

    @phase
    async def woken(self, run: TaskRun) -> Next[Any]:
        """Tells."""
        held: dict[str, Any] = {}
        for key in KEYS:
            state = await run.read_signal(Token, key)
            held[key] = None if state is None else "expired" if state.expired else state.value
        return run.complete([type(run.wake).__name__, getattr(run.wake, "key", None), held])


Step = tuple[Any, ...]
steps = st.lists(
    st.one_of(
        st.tuples(st.just("signal"), st.sampled_from(KEYS)),
        st.tuples(st.just("advance"), st.sampled_from([0.001, 4.999, 5.0, DEADLINE])),
        st.sampled_from([("close",), ("crash",), ("resume",), ("abort",), ("settle",)]),
    ),
    max_size=14,
)


async def is_late(living: Living, id: TaskId) -> bool:
    """Whether the task still sleeps though its deadline has passed: nobody has scheduled since."""
    record = await living.record(id)
    return record.status == "sleeping" and record.deadline is not None and record.deadline <= living.clock.now() * 1000


async def crashed(living: Living) -> Living:
    """The next process after a crash. The clock is another one: the alarms of the dead go with it."""
    assert isinstance(living.storage, MemoryStorage)
    storage = living.storage.copy()
    await living.end()
    return await Living(Waits, storage=storage, clock=FakeClock(living.clock.now())).open(resume=False)


async def play(parked: bool, script: Sequence[Step]) -> None:
    living = await Living(Waits, storage=MemoryStorage(), clock=FakeClock()).open(resume=False)
    id = TaskId(await living.start(Waits()))
    if parked:
        await living.tasks.resume()
        await settle()
        living = await living.again(Waits, resume=False)
    delivered: dict[str, int] = {}
    refused: set[str] = set()
    aborted = False
    for number, step in enumerate(script):
        match step:
            case ("signal", key):
                late = await is_late(living, id)
                async with living.session.transaction() as tx:
                    result = await tx.signal(id, Token, key, number)
                assert result == "closed" or not late
                assert (result == "duplicate") == (key in delivered and not aborted and result != "closed")
                if result == "delivered":
                    assert key not in delivered
                    assert key not in refused
                    delivered[key] = number
                elif result == "closed" and not aborted:
                    refused.add(key)
            case ("advance", seconds):
                await living.clock.advance(seconds)
            case ("abort",):
                async with living.session.transaction() as tx:
                    aborted = await tx.abort_task(id) or aborted
            case ("settle",):
                await settle()
            case ("resume",):
                await living.tasks.resume()
            case ("close",):
                living = await living.again(Waits, resume=False)
            case _:
                living = await crashed(living)
    await living.tasks.resume()
    await living.clock.advance(DEADLINE)
    outcome = await living.outcome(id)
    assert (await living.record(id)).memos is None
    assert living.tasks.wake() == (False, None)
    await living.close()
    if isinstance(outcome, Aborted):
        assert aborted
        return
    assert isinstance(outcome, Completed)
    assert isinstance(outcome.value, list)
    why, woke_by, held = outcome.value
    for key in KEYS:
        if held[key] == "expired":
            assert key not in delivered, "the sender was told that it had arrived"
        elif held[key] is not None:
            assert delivered[key] == held[key]
    if why == "Signalled":
        assert delivered[woke_by] == held[woke_by]
    else:
        assert why == "Expired"
        assert held == dict.fromkeys(KEYS, "expired")


@pytest.mark.slow
@given(parked=st.booleans(), script=steps)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_sender_and_task_agree(parked: bool, script: list[Step]) -> None:
    asyncio.run(play(parked, script))


@pytest.mark.long
@given(parked=st.booleans(), script=steps)
@settings(max_examples=10_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_sender_and_task_agree_over_ten_thousand_interleavings(parked: bool, script: list[Step]) -> None:
    asyncio.run(play(parked, script))
