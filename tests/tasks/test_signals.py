"""Signals: values from outside for a live task, and the sleeps that wait for them."""

from typing import Any, TypedDict

import pytest

from perdure.base.errors import InvalidDecision, InvalidDefinition, InvalidValue, TooNew
from perdure.base.ids import TaskId
from perdure.tasks.decisions import Next
from perdure.tasks.definition import phase, task
from perdure.tasks.outcomes import Completed, Faulted
from perdure.tasks.runtime import TaskRun
from perdure.tasks.signals import LARGE_BYTES, LargeSignal, Signal, SignalResult, SignalState
from perdure.tasks.states import SignalKey
from perdure.testing.clock import settle
from tests.tasks.living import Living

HOUR = 3600.0
WOKE: list[Any] = []


class Build(TypedDict):
    status: str


Answer: Signal[str] = Signal("s.answer", schema=str)
Result: Signal[Build] = Signal("s.result", schema=Build)


@pytest.fixture(autouse=True)
def _forget() -> None:
    WOKE.clear()


@task("s.ask")
class Ask:
    """Sleeps on keys, and after each wake on those it has not used, until `wakes` of them came."""

    keys: list[str]
    timeout: float | None = None
    wakes: int = 1

    @phase(first=True)
    async def ask(self, run: TaskRun) -> Next[Any]:
        """Sleeps."""
        until = None if self.timeout is None else run.now() + self.timeout
        return run.sleep(self.woken, [Answer.key(key) for key in self.keys], until, left=list(self.keys))

    @phase
    async def woken(self, run: TaskRun, left: list[str]) -> Next[Any]:
        """Notes why it woke, and what every key holds."""
        held = {}
        for key in self.keys:
            state = await run.read_signal(Answer, key)
            held[key] = None if state is None else "expired" if state.expired else state.value
        WOKE.append((run.wake, held))
        used = getattr(run.wake, "key", None)
        left = [key for key in left if key != used]
        if len(WOKE) < self.wakes:
            return run.sleep(self.woken, [Answer.key(key) for key in left], left=left)
        return run.complete(held)


@task("s.stuck")
class Stuck:
    """Sleeps twice on the same key."""

    @phase(first=True)
    async def one(self, run: TaskRun) -> Next[Any]:
        """The first sleep."""
        return run.sleep(self.two, [Answer.key("a")], run.now() + HOUR)

    @phase
    async def two(self, run: TaskRun) -> Next[Any]:
        """The second one."""
        return run.sleep(self.three, [Answer.key("b"), Answer.key("a")])

    @phase
    async def three(self, run: TaskRun) -> Next[Any]:
        """Never."""
        return run.complete()


@task("s.sender")
class Sender:
    """Delivers to another task in its own last commit."""

    to: TaskId

    @phase(first=True)
    async def send(self, run: TaskRun) -> Next[Any]:
        """Sends, and completes in the same commit."""
        async with run.transaction() as tx:
            result = await tx.signal(self.to, Answer, "a", "from a task")
            return tx.complete(result)


async def opened(*, resume: bool = True) -> Living:
    return await Living(Ask, Stuck, Sender).open(resume=resume)


async def send(living: Living, id: int, key: str, value: Any, signal: Signal[Any] = Answer) -> SignalResult:
    async with living.session.transaction() as tx:
        result = await tx.signal(TaskId(id), signal, key, value)
    await settle()
    return result


async def test_a_value_wakes_the_task_that_sleeps_on_its_key() -> None:
    living = await opened()
    id = await living.start(Ask(["a"]))
    assert await living.status(id) == "sleeping"
    assert living.tasks.wake() == (False, None), "a sleep on signals alone needs no alarm"
    assert await send(living, id, "a", "yes") == "delivered"
    assert await living.outcome(id) == Completed({"a": "yes"})
    assert repr(WOKE[0][0]) == "Signalled(signal='s.answer', key='a')"


async def test_what_a_delivery_comes_to() -> None:
    living = await opened()
    id = await living.start(Ask(["a"], wakes=2))
    assert await send(living, 999, "a", "x") == "not_found"
    assert await send(living, id, "a", 5) == "invalid"
    assert (await living.record(id)).memos is None, "an invalid value is stored nowhere"
    assert await send(living, id, "other", "kept") == "delivered"
    assert await living.status(id) == "sleeping"
    assert await send(living, id, "other", "second") == "duplicate"
    await living.abort(id)
    await settle()
    assert await send(living, id, "a", "late") == "closed"
    assert await send(living, id, "a", 5) == "closed", "whether it is live comes before what the value is"


async def test_of_several_values_for_a_key_the_first_is_kept() -> None:
    living = await opened(resume=False)
    id = await living.start(Ask(["a"]))
    assert await send(living, id, "a", "first") == "delivered"
    assert await send(living, id, "a", "second") == "duplicate"
    await living.tasks.resume()
    assert await living.outcome(id) == Completed({"a": "first"})


async def test_a_value_that_comes_early_wakes_the_sleep_at_once() -> None:
    living = await opened(resume=False)
    id = await living.start(Ask(["a"], timeout=HOUR))
    assert await send(living, id, "a", "early") == "delivered"
    assert (await living.record(id)).status == "pending"
    await living.tasks.resume()
    assert await living.outcome(id) == Completed({"a": "early"})


async def test_the_first_key_in_the_order_listed_that_holds_a_value_wakes() -> None:
    living = await opened(resume=False)
    id = await living.start(Ask(["a", "b", "c"], wakes=2))
    await send(living, id, "c", "third")
    await send(living, id, "b", "second")
    await living.tasks.resume()
    await living.outcome(id)
    assert [wake.key for wake, _ in WOKE] == ["b", "c"], "the other one is kept for the next sleep"


async def test_a_deadline_closes_the_listed_keys_that_hold_nothing() -> None:
    living = await opened()
    id = await living.start(Ask(["a", "b"], timeout=HOUR, wakes=2))
    await settle()
    assert living.tasks.wake() == (False, living.clock.now() + HOUR)
    await living.clock.advance(HOUR)
    await settle()
    wake, held = WOKE[0]
    assert type(wake).__name__ == "Expired"
    assert held == {"a": "expired", "b": "expired"}
    assert isinstance(await living.outcome(id), Faulted), "it sleeps again on keys that expired"


async def test_a_signal_closes_a_key_whose_deadline_has_passed_though_no_scheduler_ran() -> None:
    living = await opened()
    id = await living.start(Ask(["a", "b"], timeout=HOUR))
    await settle()
    again = await living.again(Ask, Stuck, resume=False)
    await again.clock.advance(HOUR)
    assert (await again.record(id)).status == "sleeping"
    assert await send(again, id, "b", "too late") == "closed"
    assert (await again.record(id)).status == "pending", "the sleep ended in the commit of the refused delivery"
    assert await send(again, id, "a", "too late") == "closed", "all listed keys that held nothing expired"
    await again.tasks.resume()
    assert await again.outcome(id) == Completed({"a": "expired", "b": "expired"})
    assert type(WOKE[0][0]).__name__ == "Expired"


async def test_a_key_that_is_not_listed_takes_a_value_after_the_deadline() -> None:
    living = await opened()
    id = await living.start(Ask(["a"], timeout=HOUR))
    await settle()
    again = await living.again(Ask, resume=False)
    await again.clock.advance(2 * HOUR)
    assert await send(again, id, "elsewhere", "kept") == "delivered"
    assert (await again.record(id)).status == "pending"
    await again.tasks.resume()
    assert await again.outcome(id) == Completed({"a": "expired"})


@pytest.mark.parametrize(("after", "result"), [(HOUR - 0.001, "delivered"), (HOUR, "closed"), (HOUR + 0.001, "closed")])
async def test_one_tick_decides_and_both_sides_agree(after: float, result: str) -> None:
    living = await opened()
    id = await living.start(Ask(["a"], timeout=HOUR))
    await settle()
    again = await living.again(Ask, resume=False)
    await again.clock.advance(after)
    assert await send(again, id, "a", "yes") == result
    await again.clock.advance(HOUR)
    await again.tasks.resume()
    assert await again.outcome(id) == Completed({"a": "yes" if result == "delivered" else "expired"})


async def test_a_key_serves_one_wait() -> None:
    living = await opened()
    id = await living.start(Stuck())
    await settle()
    await send(living, id, "a", "x")
    outcome = await living.outcome(id)
    assert isinstance(outcome, Faulted)
    assert "s.answer/a has woken this task already" in outcome.error["message"]


async def test_an_expired_key_serves_no_wait() -> None:
    living = await opened()
    id = await living.start(Stuck())
    await settle()
    await living.clock.advance(HOUR)
    outcome = await living.outcome(id)
    assert isinstance(outcome, Faulted)
    assert "s.answer/a expired" in outcome.error["message"]


async def test_keys_are_of_a_signal() -> None:
    living = await opened()
    id = await living.start(Ask(["a"]))
    await settle()
    assert await send(living, id, "a", {"status": "passed"}, Result) == "delivered"
    assert await living.status(id) == "sleeping"


async def test_a_restart_keeps_values_wakes_and_used_keys() -> None:
    living = await opened()
    id = await living.start(Ask(["a", "b"], wakes=2))
    await settle()
    await send(living, id, "a", "one")
    living = await living.again(Ask, crash=True)
    assert await living.status(id) == "sleeping"
    assert len(WOKE) == 1
    living = await living.again(Ask, crash=True, resume=False)
    assert await send(living, id, "a", "again") == "duplicate"
    assert await send(living, id, "b", "two") == "delivered"
    living = await living.again(Ask, crash=True)
    assert await living.outcome(id) == Completed({"a": "one", "b": "two"})
    assert [wake.key for wake, _ in WOKE] == ["a", "b"]


async def test_a_task_delivers_in_its_own_commit() -> None:
    living = await opened()
    asked = await living.start(Ask(["a"]))
    assert await living.ran(Sender(asked)) == Completed("delivered")
    assert await living.outcome(asked) == Completed({"a": "from a task"})
    assert await living.ran(Sender(asked)) == Completed("closed")


async def test_a_rolled_back_delivery_never_was() -> None:
    living = await opened()
    id = await living.start(Ask(["a"]))
    await settle()

    async def fails() -> None:
        async with living.session.transaction() as tx:
            assert await tx.signal(id, Answer, "a", "x") == "delivered"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fails()
    assert await living.status(id) == "sleeping"
    assert await send(living, id, "a", "y") == "delivered"
    assert await living.outcome(id) == Completed({"a": "y"})


async def test_an_aborted_sleep_ends_at_once() -> None:
    living = await opened()
    id = await living.start(Ask(["a"], timeout=HOUR))
    await settle()
    await living.abort(id)
    assert (await living.outcome(id)).status == "aborted"
    assert WOKE == []
    assert living.tasks.wake() == (False, None)


async def test_stored_values_are_read_by_newer_code_and_refused_by_older() -> None:
    living = await opened(resume=False)
    id = await living.start(Ask(["a"]))
    await send(living, id, "a", "7")
    newer: Signal[int] = Signal("s.answer", version=2, schema=int, migrate=lambda value, version: int(value) * version)
    bare: Signal[int] = Signal("s.answer", version=2, schema=int)
    wrong: Signal[int] = Signal("s.answer", version=2, schema=int, migrate=lambda value, version: value)
    await send(living, id, "b", 8, newer)
    seen: list[Any] = []

    @task("s.ask")
    class Reads:
        keys: list[str]
        timeout: float | None = None
        wakes: int = 1

        @phase(first=True)
        async def ask(self, run: TaskRun) -> Next[Any]:
            state = await run.read_signal(newer, "a")
            seen.append(state.value if state else None)
            others: list[tuple[Signal[Any], str]] = [(bare, "a"), (wrong, "a"), (Answer, "b")]
            for signal, key in others:
                try:
                    await run.read_signal(signal, key)
                except (InvalidDefinition, InvalidValue, TooNew) as error:
                    seen.append(type(error).__name__)
            return run.complete()

    living = await living.again(Reads)
    await living.outcome(id)
    assert seen == [7, "InvalidDefinition", "InvalidValue", "TooNew"]


async def test_a_large_value_is_stored_and_reported() -> None:
    living = await opened()
    id = await living.start(Ask(["a"]))
    await settle()
    assert await send(living, id, "a", "x" * LARGE_BYTES) == "delivered"
    assert [type(error) for _, error in living.reports] == [LargeSignal]
    await living.outcome(id)


@pytest.mark.parametrize("name", ["", "a/b", "\ud800", 5])
def test_a_signal_needs_a_name_that_can_stand_before_a_key(name: Any) -> None:
    with pytest.raises(InvalidDefinition):
        Signal(name, schema=str)


def test_a_signal_needs_a_type_that_json_can_hold() -> None:
    with pytest.raises(InvalidDefinition, match="bytes"):
        Signal("s.bytes", schema=bytes)


@pytest.mark.parametrize("key", ["", "\ud800", None])
async def test_a_key_is_a_text(key: Any) -> None:
    with pytest.raises(InvalidValue):
        Answer.key(key)
    living = await opened(resume=False)
    id = await living.start(Ask(["a"]))
    with pytest.raises(InvalidValue):
        await send(living, id, key, "x")


@pytest.mark.parametrize(
    ("signal", "key"), [("a/b", "c"), ("", "c"), ("a", ""), (5, "c"), ("a", None), ("a", "\ud800")]
)
async def test_a_key_that_no_signal_has_made_is_not_slept_on(signal: Any, key: Any) -> None:
    @task("s.made_up")
    class MadeUp:
        @phase(first=True)
        async def run(self, run: TaskRun) -> Next[Any]:
            return run.sleep(self.run, [SignalKey(signal, key)])

    outcome = await (await Living(MadeUp).open()).ran(MadeUp())
    assert isinstance(outcome, Faulted)
    assert outcome.error["code"] == "invalid_decision"


async def test_the_memos_of_keys_are_not_the_users() -> None:
    seen: list[BaseException] = []

    @task("s.memos")
    class Memos:
        @phase(first=True)
        async def run(self, run: TaskRun) -> Next[Any]:
            try:
                await run.memo("perdure.signal.s.answer/a", {"value": "forged", "version": 1})
            except InvalidValue as error:
                seen.append(error)
            return run.complete()

    await (await Living(Memos).open()).ran(Memos())
    assert len(seen) == 1


def test_an_expired_state_has_no_value() -> None:
    state: SignalState[str] = SignalState(None, expired=True)
    with pytest.raises(InvalidDecision, match="expired"):
        _ = state.value
    assert Answer.key("a") == SignalKey("s.answer", "a")
