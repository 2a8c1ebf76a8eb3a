"""Which failed requests earn another attempt, and when. Pure: the durable task that asks does the waiting."""

from typing import Final

import msgspec

from perdure.models.errors import ModelError

LONGEST_EXPONENT: Final = 32
"""Bounds the power below; every cap in use is reached long before."""


class RetrySettings(msgspec.Struct, frozen=True, gc=False):
    """How often and how patiently a failed request is tried again. Times in seconds.

    The waits grow `first_delay, x factor, x factor² …` up to `longest_delay`, by at most `spread` of themselves when
    the caller passes a random number. What the provider asks for counts if it is longer; if it is longer than
    `longest_retry_after`, the request is not tried again here and the error says when it could be.
    """

    attempts: int = 5
    """Attempts in all, the first one included."""
    first_delay: float = 2.0
    factor: float = 2.0
    longest_delay: float = 60.0
    longest_retry_after: float = 600.0
    spread: float = 0.25


def next_attempt(error: ModelError, attempt: int, settings: RetrySettings, chance: float = 0.0) -> float | None:
    """Seconds to wait before attempt `attempt + 1`, or None when the error stands.

    `attempt` counts from 1 and is the one that failed. `chance` in [0, 1) spreads waits of many conversations that
    failed together; the caller draws it, so that this stays a function of its arguments.
    """
    if not error.retryable or attempt >= settings.attempts:
        return None
    asked = error.retry_after or 0.0
    if asked > settings.longest_retry_after:
        return None
    grown = settings.first_delay * settings.factor ** min(attempt - 1, LONGEST_EXPONENT)
    return max(asked, min(grown, settings.longest_delay)) * (1 + settings.spread * chance)
