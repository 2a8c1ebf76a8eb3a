"""R-255, section 3.3: what our providers raise for a provider's answer reaches the class that it belongs to."""

import pytest
from pydantic_ai.exceptions import ModelHTTPError

from perdure.models.faults import to_model_error
from perdure.subagents.engine.errors import meaning_of

ANSWERS: list[tuple[int, str, str | None, str]] = [
    (402, "Your wallet is empty", None, "fatal"),
    (429, "You exceeded your current quota, please check your plan and billing details.", None, "fatal"),
    (429, "stopped", "insufficient_quota", "fatal"),
    (429, "no more", "insufficient_balance", "fatal"),
    (429, "Insufficient credits", None, "fatal"),
    (403, "Please look at your account", "billing_error", "fatal"),
    (403, "Billing is disabled for this project", None, "fatal"),
    (400, "Your credit balance is too low to access the API", "invalid_request_error", "fatal"),
    (429, "余额不足", None, "fatal"),
    (401, "bad key", None, "fatal"),
    (404, "no such model", None, "fatal"),
    (400, "field x is wrong", None, "fatal"),
    (503, "no available accounts", None, "exhausted"),
    (429, "You have reached your usage limit", None, "exhausted"),
    (403, "You have reached your usage limit", None, "exhausted"),
    (403, "额度已用完", None, "exhausted"),
    (429, "5-hour limit reached", None, "exhausted"),
    (429, "daily quota 0, resets next day", None, "exhausted"),
    (400, "this violates our terms of service", None, "refusal"),
    (400, "filtered by content management policy", "content_filter", "refusal"),
    (400, "flagged as unsafe", None, "refusal"),
    (503, "content filter is temporarily unavailable, try again", None, "transient"),
    (429, "rate limit, resets in 1 second", None, "transient"),
    (429, "quota remaining: 42", None, "transient"),
    (529, "overloaded", None, "transient"),
    (408, "timeout", None, "transient"),
    (413, "too large", None, "overflow"),
    (400, "prompt is too long: 2 tokens > 1", None, "overflow"),
]


@pytest.mark.parametrize(("status", "text", "code", "meaning"), ANSWERS)
def test_r255_b014_b044_b048_t13_a_providers_answer_reaches_its_class(
    status: int, text: str, code: str | None, meaning: str
) -> None:
    answer = ModelHTTPError(status, "m", {"error": {"message": text, "code": code, "type": code}})
    error = to_model_error(answer, "provider", started=False)
    assert (meaning_of(str(error), error.code), text in str(error)) == (meaning, True)


@pytest.mark.parametrize(
    ("code", "text"), [("auth_failed", "You have reached your usage limit"), ("auth_failed", "额度已用完")]
)
def test_r255_a_used_up_window_that_comes_as_a_refused_key_is_no_failure(code: str, text: str) -> None:
    assert meaning_of(text, code) == "exhausted"
    assert meaning_of("bad key", code) == "fatal"
