"""States as they are stored, and what each event makes of them."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.base import jsonvalue
from perdure.base.errors import InvalidDecision, InvalidValue, StorageCorrupt
from perdure.base.ids import TaskId
from perdure.storage.records import Task
from perdure.tasks.outcomes import Aborted, Completed, Failed, Faulted, Orphaned
from perdure.tasks.states import (
    Checkpoint,
    Completing,
    Pending,
    Running,
    SignalKey,
    Sleeping,
    Terminal,
    Waiting,
    apply_state,
    awakened,
    check_memo_name,
    checkpointed,
    closed,
    decode_memos,
    end,
    gone_to,
    hold,
    mark_abort,
    outcome_of,
    reopened,
    reserved,
    state_of,
    with_memo,
)
from perdure.tasks.wakes import Expired, Signalled, Tasks, Time
from tests.tasks.shop import FIRST, PAYMENT, Payment, pending, running, standing

HERE = Checkpoint("settle", {"ids": [1]})
WAKE = Signalled("app.ci", "done")
KEYS: Any = (SignalKey("app.ci", "done"), SignalKey("app.ci", "a/b"))
WAITING = Waiting(HERE, (TaskId(8), TaskId(9)), "any")
SLEEPING = Sleeping(HERE, 5000, KEYS)
DONE = Completed({"number": 1})

STATES: list[Any] = [
    Pending(FIRST),
    Pending(HERE, Time(), 2),
    Running(HERE, Expired()),
    Running(HERE, WAKE, 1),
    Running(HERE, Tasks((TaskId(8), TaskId(9)))),
    WAITING,
    Waiting(HERE, (TaskId(8),), "fail_fast"),
    Sleeping(HERE, 5000),
    Sleeping(HERE, None, KEYS),
    SLEEPING,
    Completing(DONE),
    Completing(Failed({"message": "no", "code": "declined", "data": [1]})),
    Terminal(Completed(None)),
    Terminal(Aborted()),
    Terminal(Aborted("too late")),
    Terminal(Faulted({"message": "boom"})),
    Terminal(Orphaned("no code")),
]


def read(record: Task) -> Any:
    """The state as another process reads it: from the bytes alone."""
    return state_of(msgspec.structs.replace(record, state=b" " + record.state))


@pytest.mark.parametrize("state", STATES, ids=lambda state: type(state).__name__)
def test_a_state_comes_back_from_its_bytes(state: Any) -> None:
    record = standing(state)
    assert read(record) == state
    assert type(read(record)) is type(state)
    jsonvalue.check(jsonvalue.decode(record.state))


@pytest.mark.parametrize("state", STATES, ids=lambda state: type(state).__name__)
def test_the_record_says_what_storage_finds_by(state: Any) -> None:
    record = standing(state)
    assert record.status == type(state).__name__.lower()
    assert record.on == (state.on if isinstance(state, Waiting) else ())
    assert record.deadline == (state.until if isinstance(state, Sleeping) else None)
    assert record.asks_again is False


def test_a_new_state_leaves_everything_else_of_the_record_alone() -> None:
    before = with_memo(mark_abort(pending()), "ci.run", "x")
    after = apply_state(before, SLEEPING)
    for name in before.__struct_fields__:
        if name not in ("status", "state", "on", "deadline"):
            assert getattr(after, name) == getattr(before, name), name
    back = apply_state(after, Running(HERE))
    assert (back.on, back.deadline) == ((), None)


@pytest.mark.parametrize("damaged", [b"", b"[]", b"{}", b"{", b'{"at":{"phase":1}}', b"\xff"])
def test_damaged_bytes_are_reported_with_the_task(damaged: bytes) -> None:
    with pytest.raises(StorageCorrupt, match="task 7"):
        state_of(msgspec.structs.replace(pending(), state=damaged))


def test_the_stored_form_is_the_one_that_older_sessions_hold() -> None:
    """A change here is a change of the format: old sessions must still open."""
    stored: dict[bytes, Any] = {
        b'{"at":{"phase":"settle","arguments":{"ids":[1]}},"wake":{"reason":"signal","signal":"app.ci","key":"done"}'
        b',"restarts":1}': Running(HERE, WAKE, 1),
        b'{"at":{"phase":"charge"}}': Pending(FIRST),
        b'{"at":{"phase":"charge"},"wake":{"reason":"tasks","ended":[8]}}': Pending(FIRST, Tasks((TaskId(8),))),
        b'{"at":{"phase":"charge"},"on":[8],"policy":"any"}': Waiting(FIRST, (TaskId(8),), "any"),
        b'{"at":{"phase":"charge"},"until":5,"signals":[{"signal":"a","key":"k"}]}': Sleeping(
            FIRST, 5, (SignalKey("a", "k"),)
        ),
        b'{"outcome":{"status":"completed","value":1}}': Terminal(Completed(1)),
        b'{"outcome":{"status":"failed","error":{"message":"no"}}}': Completing(Failed({"message": "no"})),
    }
    for body, state in stored.items():
        assert standing(state).state == body
        assert read(standing(state)) == state


# events


def test_a_reservation_keeps_checkpoint_wake_and_restarts() -> None:
    assert read(reserved(standing(Pending(HERE, WAKE, 2)))) == Running(HERE, WAKE, 2)


@pytest.mark.parametrize("parked", [WAITING, SLEEPING])
@pytest.mark.parametrize("reason", [Time(), Expired(), WAKE, Tasks((TaskId(8),)), None])
def test_a_wake_makes_parked_work_runnable_and_is_progress(parked: Any, reason: Any) -> None:
    record = awakened(standing(parked), reason)
    assert read(record) == Pending(HERE, reason, 0)
    assert (record.on, record.deadline) == ((), None)


def test_going_on_ends_the_wake_and_the_count_of_restarts() -> None:
    assert read(gone_to(running(FIRST, wake=WAKE, restarts=2), HERE)) == Pending(HERE)


def test_another_argument_is_another_checkpoint() -> None:
    assert read(gone_to(running(HERE), Checkpoint("settle", {"ids": [2]}))).checkpoint.arguments == {"ids": [2]}


@pytest.mark.parametrize("arguments", [{"n": 1}, {"n": [1, {"b": 1, "a": 2}]}, {}])
def test_going_to_the_same_phase_with_the_same_arguments_is_refused(arguments: dict[str, Any]) -> None:
    same = jsonvalue.decode(jsonvalue.canonical(arguments))
    with pytest.raises(InvalidDecision, match="no progress"):
        gone_to(running(Checkpoint("settle", arguments)), Checkpoint("settle", same))


@pytest.mark.parametrize(("one", "other"), [(1, True), (1, 1.0), (0, False), (0.0, -0.0)])
def test_values_that_python_takes_for_equal_are_told_apart_as_json(one: Any, other: Any) -> None:
    changed = gone_to(running(Checkpoint("settle", {"n": one})), Checkpoint("settle", {"n": other}))
    assert repr(read(changed).checkpoint.arguments["n"]) == repr(other)


def test_a_checkpoint_inside_an_invocation_stays_running_and_is_progress() -> None:
    assert read(checkpointed(running(FIRST, wake=WAKE, restarts=2), HERE)) == Running(HERE)


def test_the_same_checkpoint_again_changes_nothing() -> None:
    record = running(HERE, wake=WAKE, restarts=2)
    assert checkpointed(record, Checkpoint("settle", {"ids": [1]})) is record


def test_an_open_brings_running_work_back_with_its_wake_and_counts() -> None:
    assert read(reopened(running(HERE, wake=WAKE), 3)) == Pending(HERE, WAKE, 1, cut=True)


def test_a_task_that_is_found_running_too_often_is_faulted() -> None:
    record, opens = running(HERE, wake=WAKE), 0
    while record.status == "running" and opens < 20:
        opens += 1
        record = reopened(record, 3)
        if record.status == "pending":
            record = reserved(record)
    assert record.status == "completing"
    assert opens == 4, "three opens may find it so, the next one ends it"
    outcome = outcome_of(record)
    assert isinstance(outcome, Faulted)
    assert outcome.error["code"] == "restart_limit"
    assert "settle" in outcome.why


@pytest.mark.parametrize("progress", ["checkpoint", "park", "wake"])
def test_progress_begins_the_count_anew(progress: str) -> None:
    record = running(FIRST, restarts=3)
    match progress:
        case "checkpoint":
            record = checkpointed(record, HERE)
        case "park":
            record = reserved(awakened(apply_state(record, SLEEPING), None))
        case _:
            record = reserved(awakened(apply_state(record, WAITING), Tasks((TaskId(8),))))
    assert read(record).restarts == 0


def test_a_close_brings_running_work_back_and_counts_nothing() -> None:
    assert read(closed(running(HERE, wake=WAKE, restarts=2))) == Pending(HERE, WAKE, 2, cut=True)


@pytest.mark.parametrize("before", [Pending(FIRST), Running(HERE, WAKE), WAITING, SLEEPING])
def test_an_outcome_is_held_and_the_memos_with_it(before: Any) -> None:
    record = hold(with_memo(standing(before), "ci.run", 1), DONE)
    assert (record.status, record.on, record.deadline) == ("completing", (), None)
    assert outcome_of(record) == DONE
    assert decode_memos(record.memos) == {"ci.run": 1}


def test_an_end_drops_the_memos_and_keeps_the_time() -> None:
    record = end(hold(with_memo(running(), "ci.run", 1), DONE), DONE, 9000)
    assert (record.status, record.memos, record.started_at, record.ended_at) == ("terminal", None, 1000, 9000)
    assert outcome_of(record) == DONE


def test_a_task_that_goes_on_has_no_outcome() -> None:
    for state in (Pending(FIRST), Running(FIRST), WAITING, SLEEPING):
        with pytest.raises(InvalidDecision, match="has not ended"):
            outcome_of(standing(state))


def test_an_abort_mark_stays_through_everything() -> None:
    record = mark_abort(running())
    assert record.abort_requested
    assert mark_abort(record) is record
    assert apply_state(record, SLEEPING).abort_requested
    assert end(hold(record, Aborted()), Aborted(), 1).abort_requested
    ended = end(hold(running(), DONE), DONE, 1)
    assert mark_abort(ended) is ended


EVENTS: dict[str, tuple[Callable[[Task], Task], set[str]]] = {
    "reserved": (reserved, {"pending"}),
    "awakened": (lambda record: awakened(record, None), {"waiting", "sleeping"}),
    "gone_to": (lambda record: gone_to(record, Checkpoint("x")), {"running"}),
    "checkpointed": (lambda record: checkpointed(record, Checkpoint("x")), {"running"}),
    "reopened": (lambda record: reopened(record, 3), {"running"}),
    "closed": (closed, {"running"}),
    "hold": (lambda record: hold(record, DONE), {"pending", "running", "waiting", "sleeping"}),
    "end": (lambda record: end(record, DONE, 1), {"pending", "running", "waiting", "sleeping", "completing"}),
}
EVERY: list[Any] = [Pending(FIRST), Running(FIRST), WAITING, SLEEPING, Completing(DONE), Terminal(DONE)]


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", EVERY, ids=lambda state: type(state).__name__)
def test_an_event_concerns_only_the_states_that_know_it(event: str, state: Any) -> None:
    change, allowed = EVENTS[event]
    record = standing(state)
    if record.status in allowed:
        assert change(record) != record
    else:
        with pytest.raises(InvalidDecision, match="task 7"):
            change(record)


def test_two_tasks_at_the_same_place_share_nothing_that_a_phase_can_change() -> None:
    here = Checkpoint("review", {"receipt": {"number": 1}, "extra": {"rows": [1]}})
    one, other = reserved(pending(here, id=7)), reserved(pending(here, id=8))
    payment = Payment("visa")
    _, given = PAYMENT.bind(payment, state_of(one).checkpoint)
    given["extra"]["rows"].append("mine")
    assert PAYMENT.bind(payment, state_of(other).checkpoint)[1]["extra"] == {"rows": [1]}
    assert PAYMENT.bind(payment, state_of(one).checkpoint)[1]["extra"] == {"rows": [1]}


# memos


def test_the_first_writer_of_a_memo_wins() -> None:
    record = with_memo(pending(), "ci.run", {"a": [1]})
    again = with_memo(record, "ci.run", 2)
    assert again is record
    assert decode_memos(with_memo(record, "other", False).memos) == {"ci.run": {"a": [1]}, "other": False}
    assert decode_memos(None) == {}


@pytest.mark.parametrize("value", [0, False, "", [], {}])
def test_an_empty_value_is_a_memo_all_the_same(value: Any) -> None:
    record = with_memo(pending(), "m", value)
    assert with_memo(record, "m", 1) is record


def test_none_is_no_memo() -> None:
    with pytest.raises(InvalidValue, match="cannot be None"):
        with_memo(pending(), "m", None)


@pytest.mark.parametrize("name", ["", "perdure.", "perdure.signal.app.ci/done", None, 5, "\ud800"])
def test_memo_names_that_are_not_the_users_are_refused(name: Any) -> None:
    with pytest.raises(InvalidValue):
        check_memo_name(name)


@pytest.mark.parametrize("name", ["a", "app.x", "perdured", "über"])
def test_other_memo_names_are_the_users(name: str) -> None:
    check_memo_name(name)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=5), JSON, max_size=3))
def test_any_arguments_come_back_as_they_were(arguments: dict[str, Any]) -> None:
    record = reserved(standing(Pending(Checkpoint("settle", arguments))))
    assert jsonvalue.canonical(read(record).checkpoint.arguments) == jsonvalue.canonical(arguments)
    with pytest.raises(InvalidDecision):
        gone_to(record, Checkpoint("settle", arguments))
