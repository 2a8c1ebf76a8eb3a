"""Answers by a provider's batch interface: slower, at half the price. Imported only when a model is first used.

One request is one batch. What the provider gave to find it again is the handle that the generation stores.
"""

from typing import Any, Final

import msgspec
from pydantic import TypeAdapter
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import Model
from pydantic_ai.models.batch import Batch, BatchRequest
from pydantic_ai.settings import ModelSettings

from perdure.models.convert import Target, to_parameters, to_wire
from perdure.models.errors import DeferredLost
from perdure.models.protocol import Deferred, ModelRequest

FIRST_PAUSE: Final = 60.0
LATER_PAUSE: Final = 300.0
"""Seconds between questions: small batches are often done within minutes, none is promised before a day."""

NOT_IN_BATCHES: Final = {"timeout", "extra_headers", "max_retries"}
"""Settings of a connection that is held open, which a batch has not."""

ONLY: Final = "answer"
"""The name of the one request within its batch."""

_batches = TypeAdapter(Batch)


async def send(model: Model, request: ModelRequest, target: Target, settings: ModelSettings) -> Deferred:
    """Hand the request in. A crash before the handle is stored leaves a batch that nobody asks for."""
    encoded = await model.batch_encode(await _wire(request, target, settings))
    return Deferred(_handle(await model.batch_create([encoded])), FIRST_PAUSE)


async def collect(
    model: Model, handle: Any, request: ModelRequest, target: Target, settings: ModelSettings
) -> ModelResponse | Deferred:
    """The answer, or when to ask again. Raises `DeferredLost` if the provider gave the batch up."""
    batch = await model.batch_status(_batch(handle))
    if batch.status != "ended":
        return Deferred(_handle(batch), LATER_PAUSE)
    result = next((found for found in await model.batch_results(batch) if found.custom_id == ONLY), None)
    if result is None or result.status in ("expired", "canceled"):
        raise DeferredLost(f"batch {batch.id} ended without an answer ({result.status if result else 'no result'})")
    return model.batch_decode(result, await _wire(request, target, settings))


async def cancel(model: Model, handle: Any) -> None:
    """Tell the provider that nobody wants the answer; one that has ended stays as it is."""
    batch = await model.batch_status(_batch(handle))
    if batch.status == "in_progress":
        await model.batch_cancel(batch)


async def _wire(request: ModelRequest, target: Target, settings: ModelSettings) -> BatchRequest:
    kept: Any = {name: value for name, value in settings.items() if name not in NOT_IN_BATCHES}
    return BatchRequest(
        custom_id=ONLY,
        messages=await to_wire(request, target),
        model_settings=kept,
        model_request_parameters=to_parameters(request),
    )


def _handle(batch: Batch) -> Any:
    return msgspec.json.decode(_batches.dump_json(batch))


def _batch(handle: Any) -> Batch:
    try:
        return _batches.validate_json(msgspec.json.encode(handle))
    except ValueError as error:
        raise DeferredLost(f"the handle of the batch cannot be read: {error}") from error
