"""Times in whole milliseconds: a deadline is never early, and an alarm at a deadline finds it passed."""

from hypothesis import given
from hypothesis import strategies as st

from perdure.base.clock import passed_millis, to_millis

TODAY = 1.8e9


def test_a_moment_shortly_before_a_deadline_has_not_reached_it() -> None:
    assert passed_millis(TODAY + 0.0012) < to_millis(TODAY + 0.0018)


@given(st.integers(0, 4_000_000_000_000))
def test_a_whole_millisecond_stays_one(millis: int) -> None:
    assert to_millis(millis / 1000) == passed_millis(millis / 1000) == millis


@given(st.floats(0, 4e9), st.floats(0, 1))
def test_a_deadline_never_passes_more_than_a_microsecond_early(now: float, ahead: float) -> None:
    if passed_millis(now) >= to_millis(now + ahead):
        assert ahead <= 2e-6


@given(st.floats(0, 4e9))
def test_an_alarm_at_a_stored_deadline_finds_it_passed(until: float) -> None:
    deadline = to_millis(until)
    assert passed_millis(deadline / 1000) >= deadline
