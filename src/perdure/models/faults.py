"""Failures of the provider library as our errors. Imported only when a model is first used."""

from collections.abc import Iterator
from typing import Final

import httpx2
from pydantic_ai.exceptions import (
    ContentFilterError,
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelNotFoundError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    ModelRequestTimeout,
    ModelServerError,
    ModelTimeoutError,
    ModelUnavailableError,
    UnexpectedModelBehavior,
    UserError,
)

from perdure.base.text import well_formed
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

WORDS_KEPT: Final = 1_000
"""Characters of a provider's own words that an error repeats; some send whole pages."""

TOO_LONG: Final = (
    "context_length_exceeded",
    "maximum context length",
    "context window",
    "context length",
    "available context size",
    "exceed_context_size",
    "prompt is too long",
    "input is too long",
    "input length and `max_tokens` exceed",
    "too many input tokens",
    "input token count",
    "reduce the length of the messages",
    "request too large for",
    "exceeds the limit of",
    "maximum prompt length",
)
"""How providers say that a request does not fit, in lower case."""

NO_CREDIT: Final = (
    "insufficient_quota",
    "insufficient quota",
    "insufficient balance",
    "insufficient_balance",
    "insufficient credits",
    "credit balance is too low",
    "billing_error",
    "billing_hard_limit",
    "payment required",
    "exceeded_current_quota_error",
)
"""How providers say that money is missing, which waiting does not mend."""

REFUSED: Final = ("content_policy", "content_filter", "content management policy", "flagged", "safety system")

RETRYABLE_STATUS: Final = {408, 409, 425}


def to_model_error(error: Exception, name: str, *, started: bool, keys: str = "") -> ModelError:
    """Our error for whatever the library raised. `started`: the response had begun. `keys` names where a key goes."""
    if isinstance(error, ModelError):
        return error
    if isinstance(error, ModelAPIError):
        return _api_error(error, name, started=started, keys=keys)
    if isinstance(error, ContentFilterError):
        return RequestRefused(_words(name, error))
    if isinstance(error, UnexpectedModelBehavior):
        return CutOff(f"{name} sent what cannot be read: {_words('', error)}")
    if isinstance(error, httpx2.TransportError | OSError):
        return _network(error, name, started=started)
    if isinstance(error, UserError | NotImplementedError | AssertionError | ValueError | TypeError) and not started:
        return BadRequest(f"{name} cannot take this request: {_words('', error)}")
    return ModelError(f"{name} failed in the provider library: {type(error).__name__}: {_words('', error)}")


def _api_error(error: ModelAPIError, name: str, *, started: bool, keys: str) -> ModelError:
    words = _words(name, error)
    wait = error.retry_after
    said = " ".join(part.lower() for part in _said(error))
    status = error.status_code if isinstance(error, ModelHTTPError) else None
    if isinstance(error, ModelQuotaExceededError) or status == 402 or _any(NO_CREDIT, said):
        return QuotaExhausted(_with_reason(words, said), hint="see the provider's billing page", retry_after=wait)
    if isinstance(error, ModelContextWindowExceededError) or status == 413:
        return ContextTooLong(words)
    if isinstance(error, ModelRateLimitError):
        return ContextTooLong(words) if "request too large for" in said else RateLimited(words, retry_after=wait)
    if isinstance(error, ModelUnavailableError | ModelServerError):
        return Overloaded(words, retry_after=wait)
    if isinstance(error, ModelRequestTimeout | ModelTimeoutError):
        return NetworkFailed(words, hint="it did not answer in time", retry_after=wait)
    if isinstance(error, ModelConnectionError):
        return _network(error, name, started=started)
    if isinstance(error, ModelAuthenticationError):
        return AuthFailed(words, hint=f"check {keys}" if keys else "check its key")
    if isinstance(error, ModelNotFoundError):
        near = error.suggested_model_id if isinstance(error, ModelHTTPError) else None
        return UnknownModel(words, hint=f"did you mean {near}?" if near else "or the base URL is wrong")
    return _other(error, words, said, status, started=started)


def _other(error: ModelAPIError, words: str, said: str, status: int | None, *, started: bool) -> ModelError:
    if status == 429:
        return RateLimited(words, retry_after=error.retry_after)
    if status in RETRYABLE_STATUS or (status or 0) >= 500:
        return Overloaded(words, retry_after=error.retry_after)
    if status is not None or isinstance(error, ModelRequestRejectedError):
        if _any(TOO_LONG, said):
            return ContextTooLong(words)
        return RequestRefused(words) if _any(REFUSED, said) else BadRequest(words)
    if error.in_stream:
        return Overloaded(words, hint="the provider reported it in the middle of its answer")
    return CutOff(words, hint="the answer ended before it was complete" if started else "it could not be read")


def _network(error: Exception, name: str, *, started: bool) -> ModelError:
    if started:
        return CutOff(f"the connection to {name} ended before the answer did: {_words('', error)}")
    return NetworkFailed(f"{name} cannot be reached: {_words('', error)}", hint="check the network and the base URL")


def _with_reason(words: str, said: str) -> str:
    """The words, and the provider's code for missing money where they do not say it: who reads them must see it."""
    if _any(NO_CREDIT, words.lower()):
        return words
    return next((f"{words} [{phrase}]" for phrase in NO_CREDIT if phrase in said), words)


def _any(phrases: tuple[str, ...], said: str) -> bool:
    return any(phrase in said for phrase in phrases)


def _said(error: ModelAPIError) -> Iterator[str]:
    """All that may tell what kind of failure it is."""
    yield error.provider_error_code or ""
    yield error.provider_error_type or ""
    yield error.message
    yield str(error.body or "")


def _words(name: str, error: Exception) -> str:
    """The provider's own words where it has some, bounded and well-formed."""
    words = ""
    if isinstance(error, ModelAPIError) and isinstance(error.body, dict):
        inner = error.body.get("error", error.body)
        if isinstance(inner, dict):
            inner = inner.get("message") or inner.get("code") or inner
        words = str(inner)
    words = words or (error.message if isinstance(error, ModelAPIError | UserError) else str(error))
    words = well_formed(words or type(error).__name__)
    words = words if len(words) <= WORDS_KEPT else words[:WORDS_KEPT] + "…"
    status = f" ({error.status_code})" if isinstance(error, ModelHTTPError) else ""
    return f"{name}{status}: {words}" if name else words
