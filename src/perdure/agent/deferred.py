"""Answers that a provider gives later, as batch interfaces do: what is stored meanwhile, and when to ask again."""

import asyncio
from typing import Any, Final

from perdure.agent.agent import Agent
from perdure.agent.documents import LiveDoc
from perdure.agent.foreign import LOST, asked
from perdure.base import jsonvalue
from perdure.base.delta import Operation
from perdure.base.errors import InvalidValue
from perdure.base.ids import ConversationId
from perdure.models.errors import BadRequest, DeferredLost, ModelError
from perdure.models.protocol import Deferred, DeferringModel, Model
from perdure.models.retry import RetrySettings
from perdure.tasks.runtime import TaskRun
from perdure.tasks.transaction import TaskTransaction

SHORTEST_PAUSE: Final = 1.0
"""Seconds between two questions at the least, whatever the model says."""

LONGEST_PAUSE: Final = 86_400.0
"""Seconds between two questions at the most: no batch interface takes longer, so by then it is worth asking."""

HANDLE_BYTES: Final = 64 * 1024
"""Bytes of JSON of a handle: it is stored with the task at every pause."""

CANCEL_SECONDS: Final = 10.0
"""How long an abort waits for the provider to hear of it."""


class NotAnswered(ModelError):
    """The provider had put an answer off for longer than `settings.deferred_limit`."""

    code = "not_answered"


def deferring(model: Model) -> DeferringModel:
    """The model as one that can be asked again. Raises `BadRequest` where code has changed and it no longer can."""
    if not isinstance(model, DeferringModel):
        raise BadRequest(f"{model.name} put an answer off, and can no longer be asked for it")
    return model


def checked(deferred: Deferred) -> Deferred:
    """A deferral that can be stored. Raises `BadRequest`."""
    try:
        jsonvalue.check(deferred.handle, path="/handle")
    except InvalidValue as error:
        raise BadRequest(f"the handle of a deferred answer is no JSON: {error}") from error
    size = len(jsonvalue.encode(deferred.handle))
    if size > HANDLE_BYTES:
        raise BadRequest(f"the handle of a deferred answer has {size:,} bytes of at most {HANDLE_BYTES:,}")
    return deferred


def pause_of(after: float) -> float:
    """Seconds until the next question."""
    return min(max(after, SHORTEST_PAUSE), LONGEST_PAUSE)


def asks_again(error: ModelError) -> bool:
    """Whether a question failed in passing: the answer is still being made, so it is asked for again."""
    return error.retryable and not isinstance(error, DeferredLost)


def failed_pause(error: ModelError, failures: int, settings: RetrySettings) -> float:
    """Seconds to wait after a question that failed in passing, the `failures`-th in a row."""
    grown = settings.first_delay * settings.factor ** min(failures - 1, 32)
    return pause_of(max(error.retry_after or 0.0, min(grown, settings.longest_delay)))


async def show(tx: TaskTransaction, conversation: ConversationId, until: float, since: float) -> None:
    """Tell everyone who watches that the answer comes later; what showed of an attempt goes."""
    live: Any = await tx.value_of(LiveDoc, conversation)
    told = {"since": since, "until": until}
    ops: list[Operation] = [{"op": "add", "path": "/deferred", "value": told}]
    ops += [{"op": "replace", "path": f"/{name}", "value": None} for name in ("partial", "retry") if live[name]]
    await tx.patch(LiveDoc, conversation, ops)


async def cancel_deferred(run: TaskRun) -> None:
    """The generation is being stopped while its answer is made elsewhere: tell the provider."""
    if run.checkpoint.phase != "poll":
        return
    await tell_cancelled(run.host, run.checkpoint.arguments["model"], run.checkpoint.arguments["handle"])


async def tell_cancelled(agent: Agent, name: str, handle: Any) -> None:
    """Tell a model, within `CANCEL_SECONDS`, that nobody wants an answer any more; what goes wrong is reported."""
    try:
        async with asyncio.timeout(CANCEL_SECONDS):
            await asked(deferring(agent.models.model(name)).cancel, handle)
    except LOST:
        raise
    except Exception as error:
        agent.report("cancelling a deferred answer", error)
