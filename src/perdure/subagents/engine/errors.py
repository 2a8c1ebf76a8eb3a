"""What a provider's error means for a call. A code that says it decides; a coarse one yields to the words."""

import re
from functools import cache
from typing import Final, Literal

Meaning = Literal["fatal", "refusal", "exhausted", "transient", "overflow"]

LOOKED_AT: Final = 2000
"""Characters from the beginning and from the end of an error that are searched: some quote whole requests."""
PRECISE: Final[dict[str, Meaning]] = {
    "context_too_long": "overflow", "unknown_model": "fatal", "refused_by_provider": "refusal",
    "cut_off": "transient", "network": "transient", "deferred_lost": "transient",
}  # fmt: skip
COARSE: Final[dict[str, Meaning]] = {"quota_exhausted": "exhausted", "bad_request": "fatal", "auth_failed": "fatal"}
"""One HTTP status may mean an empty account, a used-up window or a busy second: the words tell which."""
BUSY: Final = r"temporar\w* unavailable|overload|resets? in \d+ ?(?:ms|milliseconds?|s|secs?|seconds?)\b"
WORDS: Final[tuple[tuple[Meaning, str], ...]] = (
    ("overflow", r"context (?:is )?too long|context.length|maximum context|prompt is too long"),
    (
        "fatal",
        r"\b402\b|insufficient[_ ]quota|insufficient[_ ](?:balance|funds|credits)|billing (?:is |has been )?disabled|"
        r"billing.hard.limit|billing_error|payment required|exceeded_current_quota_error|"
        r"credit balance (?:is )?(?:too )?low|余额不足",
    ),
    (
        "exhausted",
        r"no available accounts|usage limit|quota (?:is |has been )?(?:exceeded|exhausted)|"
        r"exceeded current usage quota|\d+[- ]hour limit|额度已用完|daily quota (?:is |of )?0\b|resets next day",
    ),
    ("refusal", r"terms of service|(?:usage|content) policy|content filter|flagged as unsafe"),
)
EMPTY_ACCOUNT: Final = ("exceeded your current quota", "plan", "billing")


@cache
def _compiled() -> tuple[tuple[Meaning, re.Pattern[str]], ...]:
    return tuple((meaning, re.compile(words, re.IGNORECASE)) for meaning, words in WORDS)


@cache
def _busy() -> tuple[re.Pattern[str], re.Pattern[str]]:
    return re.compile(BUSY, re.IGNORECASE), re.compile(f"{BUSY}|try again", re.IGNORECASE)


def meaning_of(error: str, code: str | None = None) -> Meaning:
    """What to do about the last error of an execution; whatever is not known to stand is tried again."""
    if code in PRECISE:
        return PRECISE[code]
    text = error if len(error) <= 2 * LOOKED_AT else f"{error[:LOOKED_AT]}\n{error[-LOOKED_AT:]}"
    if all(part in text.lower() for part in EMPTY_ACCOUNT):
        return "fatal"
    busy, busy_or_again = _busy()
    for meaning, words in _compiled():
        if words.search(text):
            passes = {"exhausted": busy, "refusal": busy_or_again}.get(meaning)
            return "transient" if passes is not None and passes.search(text) else meaning
    return COARSE.get(code or "", "transient")
