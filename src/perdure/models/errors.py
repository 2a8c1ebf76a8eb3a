"""Why a model request failed. The class decides whether the durable task tries again, and when."""

from typing import ClassVar

from perdure.base.errors import Error


class ModelError(Error):
    """A model request failed. `retryable`: the same request may succeed later. `retry_after`: seconds the provider
    asked to wait, or None."""

    code = "model_error"
    retryable: ClassVar[bool] = False

    def __init__(self, what: str, *, hint: str = "", retry_after: float | None = None) -> None:
        super().__init__(what, hint=hint)
        self.retry_after = retry_after


class RateLimited(ModelError):
    """Too many requests for now."""

    code = "rate_limited"
    retryable = True


class QuotaExhausted(ModelError):
    """The account's quota or balance is used up; waiting a little does not help."""

    code = "quota_exhausted"


class Overloaded(ModelError):
    """The provider is overloaded or failing (5xx)."""

    code = "overloaded"
    retryable = True


class CutOff(ModelError):
    """The connection ended before the response did."""

    code = "cut_off"
    retryable = True


class NetworkFailed(ModelError):
    """The provider could not be reached, or did not answer in time."""

    code = "network"
    retryable = True


class DeferredLost(ModelError):
    """The provider no longer has an answer that it had put off: it expired, was cancelled there, or was cleared away.
    The request has to be made anew."""

    code = "deferred_lost"
    retryable = True


class ContextTooLong(ModelError):
    """The request does not fit the model's context window."""

    code = "context_too_long"


class RequestRefused(ModelError):
    """The provider declined the content."""

    code = "refused_by_provider"


class BadRequest(ModelError):
    """The provider found the request itself wrong."""

    code = "bad_request"


class AuthFailed(ModelError):
    """The key is missing, wrong, or not allowed to use the model."""

    code = "auth_failed"


class UnknownModel(ModelError):
    """No provider or model of that name here."""

    code = "unknown_model"
