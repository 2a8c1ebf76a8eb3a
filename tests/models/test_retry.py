"""Which errors earn another attempt, and when."""

import pytest

from perdure.models.errors import (
    AuthFailed,
    BadRequest,
    ContextTooLong,
    CutOff,
    ModelError,
    NetworkFailed,
    Overloaded,
    QuotaExhausted,
    RateLimited,
    RequestRefused,
    UnknownModel,
)
from perdure.models.retry import RetrySettings, next_attempt

SETTINGS = RetrySettings(attempts=4, first_delay=2.0, factor=2.0, longest_delay=5.0, longest_retry_after=600.0)


@pytest.mark.parametrize("kind", [RateLimited, Overloaded, CutOff, NetworkFailed])
def test_passing_failures_wait_longer_each_time_up_to_the_cap_and_the_last_attempt(kind: type[ModelError]) -> None:
    assert [next_attempt(kind("x"), attempt, SETTINGS) for attempt in range(1, 6)] == [2.0, 4.0, 5.0, None, None]


@pytest.mark.parametrize(
    "kind", [QuotaExhausted, ContextTooLong, RequestRefused, BadRequest, AuthFailed, UnknownModel, ModelError]
)
def test_lasting_failures_are_never_tried_again(kind: type[ModelError]) -> None:
    assert next_attempt(kind("x", retry_after=1.0), 1, SETTINGS) is None


def test_the_wait_that_the_provider_asks_for_is_kept_even_beyond_the_cap() -> None:
    assert next_attempt(RateLimited("x", retry_after=90.0), 1, SETTINGS) == 90.0
    assert next_attempt(RateLimited("x", retry_after=0.5), 1, SETTINGS) == 2.0


def test_a_wait_of_days_is_reported_and_not_slept_through() -> None:
    error = RateLimited("x", retry_after=16 * 86_400.0)
    assert next_attempt(error, 1, SETTINGS) is None
    assert error.retry_after == 16 * 86_400.0


def test_chance_spreads_the_waits_within_the_set_share() -> None:
    assert next_attempt(Overloaded("x"), 1, SETTINGS, chance=0.5) == 2.0 * 1.125


def test_the_attempt_number_may_be_absurd() -> None:
    assert next_attempt(Overloaded("x"), 10**6, RetrySettings(attempts=10**9)) == 60.0
