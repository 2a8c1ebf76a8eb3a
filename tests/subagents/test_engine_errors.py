"""R-255, section 3.3: what a provider's error means for a call."""

import pytest

from perdure.subagents.engine.errors import meaning_of

FATAL = [
    "402 Payment Required",
    "HTTP 402: please add credits",
    "error code insufficient_quota",
    "Insufficient balance",
    "insufficient funds on this account",
    "Billing is disabled for this project",
    "billing disabled",
    "Your credit balance is too low to access the API",
    "credit balance low",
    "账户余额不足",
    "You exceeded your current quota, please check your plan and billing details.",
]
EXHAUSTED = [
    "503 Service Unavailable: no available accounts",
    "You have reached your usage limit",
    "You've reached your usage limit. Try again later this week",
    "Quota exceeded for this model",
    "quota exhausted",
    "You exceeded current usage quota",
    "5-hour limit reached",
    "24 hour limit reached ∙ resets 3am",
    "额度已用完",
    "daily quota 0, resets next day",
]
REFUSAL = [
    "This request violates our terms of service",
    "blocked by usage policy",
    "Content policy violation",
    "stopped by the content filter",
    "the prompt was flagged as unsafe",
]
TRANSIENT = [
    "429 rate limit",
    "429 Too Many Requests: quota exceeded, resets in 1 second",
    "529 overloaded",
    "connection reset by peer",
    "request timeout",
    "stream ended without stop reason",
    "quota remaining: 42",
    "content filter is temporarily unavailable",
    "usage policy service overloaded, try again",
    "usage limit service temporarily unavailable, try again",
    "",
]
OVERFLOW = ["context too long", "prompt exceeds the maximum context length of 200000 tokens"]


@pytest.mark.parametrize("text", FATAL)
def test_r255_b044_a_billing_error_fails_at_once(text: str) -> None:
    assert meaning_of(text) == "fatal"


@pytest.mark.parametrize("text", EXHAUSTED)
def test_r255_b026_a_used_up_window_is_no_loss(text: str) -> None:
    assert meaning_of(text) == "exhausted"


@pytest.mark.parametrize("text", REFUSAL)
def test_r255_b048_a_content_refusal_fails_with_its_text(text: str) -> None:
    assert meaning_of(text) == "refusal"


@pytest.mark.parametrize("text", TRANSIENT)
def test_r255_b042_everything_else_is_tried_again(text: str) -> None:
    assert meaning_of(text) == "transient"


@pytest.mark.parametrize("text", OVERFLOW)
def test_r255_b116_a_context_overflow_is_its_own_class(text: str) -> None:
    assert meaning_of(text) == "overflow"


@pytest.mark.parametrize(
    ("code", "meaning"),
    [
        ("rate_limited", "transient"),
        ("overloaded", "transient"),
        ("cut_off", "transient"),
        ("network", "transient"),
        ("context_too_long", "overflow"),
        ("refused_by_provider", "refusal"),
        ("auth_failed", "fatal"),
        ("unknown_model", "fatal"),
        ("bad_request", "fatal"),
    ],
)
def test_r255_a_structured_code_decides_where_the_text_says_nothing(code: str, meaning: str) -> None:
    assert meaning_of("something odd", code) == meaning


def test_r255_a_used_up_quota_is_told_from_an_empty_account_by_its_text() -> None:
    assert meaning_of("You have reached your usage limit", "quota_exhausted") == "exhausted"
    assert meaning_of("insufficient_quota", "quota_exhausted") == "fatal"
    assert meaning_of("no more", "quota_exhausted") == "exhausted"


def test_b059_a_long_text_is_classified_in_linear_time() -> None:
    assert meaning_of("exceeded your current quota; " * 8000 + "x") == "transient"
    assert meaning_of("quota " * 40_000) == "transient"
    assert meaning_of("x" * 100_000 + " insufficient funds") == "fatal"
