"""Decisions carry what will be stored, already checked."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from perdure.base.errors import InvalidDecision, InvalidValue
from perdure.base.ids import TaskId
from perdure.tasks.decisions import Abort, Complete, Fail, Goto, SleepFor, WaitFor, decide_checkpoint
from perdure.tasks.definition import task_definition
from perdure.tasks.states import Checkpoint, SignalKey
from tests.tasks.shop import PAYMENT, Deciding, Payment, Receipt, Stock

THIS = Payment("visa")
ONE, TWO = TaskId(1), TaskId(2)


@pytest.fixture
def run() -> Deciding:
    return Deciding(PAYMENT)


def test_goto_carries_the_phase_and_its_arguments(run: Deciding) -> None:
    decision = run.goto(THIS.settle, [ONE], note="x")
    assert isinstance(decision, Goto)
    assert decision.checkpoint == Checkpoint("settle", {"ids": [1], "note": "x"})
    assert run.made == [decision]


def test_wait_carries_the_tasks_once_each_and_the_policy(run: Deciding) -> None:
    decision = run.wait([TWO, ONE, TWO], "any", THIS.settle, [ONE])
    assert isinstance(decision, WaitFor)
    assert (decision.on, decision.policy) == ((2, 1), "any")
    assert decision.checkpoint == Checkpoint("settle", {"ids": [1]})
    by_name = run.wait(on=(ONE,), policy="fail_fast", then=THIS.settle, ids=[ONE])
    assert isinstance(by_name, WaitFor)
    assert (by_name.on, by_name.policy, by_name.checkpoint) == ((1,), "fail_fast", decision.checkpoint)


def test_sleep_carries_its_deadline_in_whole_milliseconds_and_its_keys_in_order(run: Deciding) -> None:
    keys: Any = [SignalKey("app.b", "2"), SignalKey("app.a", "1"), SignalKey("app.b", "2")]
    decision = run.sleep(until=10.0001, signals=keys, then=THIS.settle, ids=[ONE])
    assert isinstance(decision, SleepFor)
    assert decision.until == 10001, "rounded up, so that it is never early"
    assert decision.signals == (keys[0], keys[1])
    assert decision.checkpoint == Checkpoint("settle", {"ids": [1]})


def test_sleep_takes_a_time_or_signals_alone(run: Deciding) -> None:
    timed, signalled = run.sleep(THIS.charge, until=5), run.sleep(THIS.charge, [SignalKey("app.a", "k")])
    assert isinstance(timed, SleepFor)
    assert isinstance(signalled, SleepFor)
    assert (timed.until, timed.signals) == (5000, ())
    assert (signalled.until, signalled.signals) == (None, (SignalKey("app.a", "k"),))


def test_sleep_takes_an_aware_datetime(run: Deciding) -> None:
    when = datetime(2030, 1, 2, 3, tzinfo=timezone(timedelta(hours=2)))
    decision = run.sleep(THIS.charge, until=when)
    assert isinstance(decision, SleepFor)
    assert decision.until == int(datetime(2030, 1, 2, 1, tzinfo=UTC).timestamp()) * 1000


@pytest.mark.parametrize(
    "until",
    [datetime(2030, 1, 1), float("nan"), float("inf"), True, "soon", 1e300, -1e300],
)
def test_a_time_that_cannot_be_stored_is_refused(run: Deciding, until: Any) -> None:
    with pytest.raises(InvalidValue):
        run.sleep(THIS.charge, until=until)
    assert not run.made


@pytest.mark.parametrize("signals", [SignalKey("a", "k"), "app.a", ["app.a"], [("app.a", "k")], 5])
def test_signals_are_a_list_of_keys(run: Deciding, signals: Any) -> None:
    with pytest.raises(InvalidDecision):
        run.sleep(THIS.charge, signals=signals, until=1)


def test_a_sleep_without_an_end_is_refused(run: Deciding) -> None:
    with pytest.raises(InvalidDecision, match="without an end"):
        run.sleep(THIS.charge)


@pytest.mark.parametrize("on", [[], 5, "12", ["1"], [True], [1.0], [None]])
def test_wait_takes_a_list_of_task_ids(run: Deciding, on: Any) -> None:
    with pytest.raises(InvalidDecision):
        run.wait(on, "any", THIS.charge)


@pytest.mark.parametrize("policy", ["first", "", None, "failFast"])
def test_an_unknown_policy_is_refused(run: Deciding, policy: Any) -> None:
    with pytest.raises(InvalidDecision, match="policy"):
        run.wait([ONE], policy, THIS.charge)


def test_wrong_arguments_are_refused_and_nothing_is_decided(run: Deciding) -> None:
    with pytest.raises(InvalidValue, match=r"Payment\.settle: missing arguments: ids"):
        run.goto(THIS.settle)  # type: ignore[call-arg]
    with pytest.raises(InvalidValue, match=r"Payment\.settle\(ids\)"):
        run.wait([ONE], "any", THIS.settle, ids=["x"])  # type: ignore[list-item]
    with pytest.raises(InvalidValue, match="another task"):
        run.sleep(Stock().count, until=1)
    with pytest.raises(InvalidValue, match="not a phase"):
        run.goto(THIS.abort)  # type: ignore[arg-type]
    assert not run.made


def test_complete_carries_the_result_as_json(run: Deciding) -> None:
    decision = run.complete(Receipt(3))
    assert isinstance(decision, Complete)
    assert decision.result == {"number": 3, "note": None}
    with pytest.raises(InvalidValue, match=r"result of task shop\.payment"):
        run.complete("a receipt")
    with pytest.raises(InvalidValue):
        run.complete()


def test_complete_without_a_result_is_none() -> None:
    decision = Deciding(task_definition(Stock)).complete()
    assert isinstance(decision, Complete)
    assert decision.result is None


def test_fail_carries_an_error_object_of_its_own(run: Deciding) -> None:
    error = {"message": "declined", "code": "declined", "data": {"n": [1]}}
    decision = run.fail(error)
    error["data"]["n"].append(2)  # type: ignore[index]
    assert isinstance(decision, Fail)
    assert decision.error == {"message": "declined", "code": "declined", "data": {"n": [1]}}
    short = run.fail("declined")
    assert isinstance(short, Fail)
    assert short.error == {"message": "declined"}


@pytest.mark.parametrize(
    "error",
    [{}, {"code": "x"}, {"message": 5}, {"message": "x", "code": 5}, {"message": b""}, 5, None, ["x"], "\ud800"],
)
def test_an_error_without_a_message_is_refused(run: Deciding, error: Any) -> None:
    with pytest.raises(InvalidValue):
        run.fail(error)
    assert not run.made


def test_aborted_carries_a_reason_or_none(run: Deciding) -> None:
    plain, reasoned = run.aborted(), run.aborted("too late")
    assert isinstance(plain, Abort)
    assert isinstance(reasoned, Abort)
    assert (plain.reason, reasoned.reason) == (None, "too late")
    for wrong in (5, {"message": "x"}, "\ud800"):
        with pytest.raises(InvalidValue):
            run.aborted(wrong)  # type: ignore[arg-type]


def test_a_checkpoint_can_be_decided_without_a_run() -> None:
    assert decide_checkpoint(PAYMENT, THIS.charge, (2,), {}) == Checkpoint("charge", {"attempt": 2})
