"""Speaks to providers through the provider library. Imported only when a model is first used: it takes seconds.

One request is one HTTP request: the retries of the provider's own client are switched off, because a retry belongs to
the durable task that asked.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

from pydantic_ai.direct import model_request_stream
from pydantic_ai.exceptions import ModelNotFoundError
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import Model, StreamedResponse
from pydantic_ai.providers import Provider as WireProvider
from pydantic_ai.settings import ModelSettings

from perdure.models import batches
from perdure.models.catalog import Endpoint
from perdure.models.convert import Target, begins_unthought, to_parameters, to_wire
from perdure.models.errors import BadRequest, DeferredLost, ModelError
from perdure.models.faults import to_model_error
from perdure.models.files import COMMON_IMAGES
from perdure.models.protocol import Deferred, Event, ModelRequest
from perdure.models.received import Received

CLOSE_SECONDS: Final = 2.0
"""How long an ended stream may take to close its connection before it is left to the garbage collector."""

BATCH: Final = "batch"
"""The option that asks for the provider's batch interface, where whoever asks can wait."""

NO_KEY: Final = "none"
"""Sent where a server needs no key but the client library insists on one."""


class Connections:
    """Clients of one event loop, one for each endpoint, opened at first use. A client does not outlive its loop."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._models: dict[Endpoint, Model] = {}
        self._providers: list[WireProvider[Any]] = []

    async def open(self, endpoint: Endpoint) -> Model:
        """The library's model for an endpoint, connected when it is first asked."""
        if endpoint not in self._models:
            provider = _open_provider(endpoint)
            await provider.__aenter__()
            self._providers.append(provider)
            self._models[endpoint] = _load(endpoint.provider.model_class)(
                endpoint.model, provider=provider, profile={"openai_chat_streaming_requires_finish_reason": True}
            )
        return self._models[endpoint]

    async def stream(self, endpoint: Endpoint, name: str, request: ModelRequest) -> AsyncGenerator[Event]:
        """Ask once. Our events, or one of our errors; see `Model.stream`."""
        received = Received(name)
        started = False
        try:
            model = await self.open(endpoint)
            if request.deferrable and request.options.get(BATCH):
                settings = to_settings(request, endpoint, model.system)
                yield await batches.send(model, request, to_target(model, endpoint), settings)
                return
            messages = await to_wire(request, to_target(model, endpoint))
            async with model_request_stream(
                model,
                messages,
                model_settings=to_settings(request, endpoint, model.system),
                model_request_parameters=to_parameters(request),
                instrument=False,
            ) as response:
                started = True
                try:
                    async for event in response:
                        for delta in received.deltas(event):
                            yield delta
                finally:
                    await _hang_up(response)
            for delta in received.finish(response.get()):
                yield delta
        except Exception as error:
            raise _mapped(error, endpoint, name, started=started) from error

    async def poll(self, endpoint: Endpoint, name: str, handle: Any, request: ModelRequest) -> AsyncGenerator[Event]:
        """Ask for an answer that was put off; see `DeferringModel.poll`."""
        try:
            model = await self.open(endpoint)
            settings = to_settings(request, endpoint, model.system)
            found = await batches.collect(model, handle, request, to_target(model, endpoint), settings)
            if isinstance(found, Deferred):
                yield found
                return
            for event in Received(name).finish(found, cost=_cost(found)):
                yield event
        except ModelNotFoundError as error:
            raise DeferredLost(f"{name} no longer knows the batch") from error
        except Exception as error:
            raise _mapped(error, endpoint, name, started=False) from error

    async def cancel(self, endpoint: Endpoint, name: str, handle: Any) -> None:
        """Tell the provider that an answer which was put off is not wanted any more."""
        try:
            await batches.cancel(await self.open(endpoint), handle)
        except Exception as error:
            raise _mapped(error, endpoint, name, started=False) from error

    async def close(self) -> None:
        """Close every connection. Requests that still run fail."""
        providers, self._providers = self._providers, []
        self._models.clear()
        for provider in providers:
            with suppress(Exception):
                await provider.__aexit__(None, None, None)


def _mapped(error: Exception, endpoint: Endpoint, name: str, *, started: bool) -> ModelError:
    return to_model_error(error, name, started=started, keys=" or ".join(endpoint.provider.keys))


def _cost(response: ModelResponse) -> float | None:
    """What the library says that a batch cost: less than the list price. None: unknown."""
    try:
        return float(response.cost().total_price)
    except (LookupError, ValueError, AssertionError):
        return None


def _open_provider(endpoint: Endpoint) -> WireProvider[Any]:
    if endpoint.provider.name == "bedrock":
        return _open_bedrock(endpoint)
    known = {"api_key": endpoint.key or NO_KEY, "base_url": endpoint.base_url}
    if endpoint.provider.name == "openrouter":
        known.pop("base_url")
    provider: WireProvider[Any] = _load(endpoint.provider.provider_class)(**known)
    return provider


def _open_bedrock(endpoint: Endpoint) -> WireProvider[Any]:
    """Bedrock's own client finds keys and region by itself, and is the one whose retries no setting switches off."""
    config = import_module("botocore.config").Config(retries={"total_max_attempts": 1, "mode": "standard"})
    try:
        client = import_module("boto3").client("bedrock-runtime", endpoint_url=endpoint.base_url, config=config)
    except Exception as error:
        raise BadRequest(f"bedrock: {error}", hint="set AWS_DEFAULT_REGION and the AWS credentials") from error
    provider: WireProvider[Any] = _load(endpoint.provider.provider_class)(bedrock_client=client)
    return provider


def _load(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


async def _hang_up(response: StreamedResponse) -> None:
    """End the HTTP request now, not when the garbage collector comes by. An already finished one is left alone."""
    with suppress(Exception):
        async with asyncio.timeout(CLOSE_SECONDS):
            await response.cancel()


def to_target(model: Model, endpoint: Endpoint) -> Target:
    """What the model takes, by what the library knows of it and by what its address takes."""
    profile = model.profile
    images = COMMON_IMAGES | endpoint.provider.more_images

    def takes(media_type: str) -> bool:
        kind = media_type.partition("/")[0]
        if kind == "image":
            return bool(endpoint.images and profile.get("supports_image_input", True) and media_type in images)
        if kind in {"audio", "video"}:
            flag = "supports_audio_file_input" if kind == "audio" else "supports_video_input"
            return bool(profile.get(flag, True))
        documents = profile.get("supported_document_media_types", ())
        return bool(profile.get("supports_document_input", True) and media_type in documents)

    back = endpoint.provider.images_back and bool(profile.get("supports_image_output", False))
    return Target(model.system, takes, profile.get("tool_call_id_length"), back)


def to_settings(request: ModelRequest, endpoint: Endpoint, system: str = "") -> ModelSettings:
    """The request's options as the library's settings. Unknown ones go through: they are the provider's own."""
    # the library would explain to some models a marking of system messages that is never used here
    settings: dict[str, Any] = {"cache": True, "framing_announcement": "never", **request.options}
    settings.pop(BATCH, None)
    if endpoint.provider.name != "bedrock":  # its retries are switched off where its client is made
        settings["max_retries"] = 0
    if request.thinking is not None and not (endpoint.provider.thinks_on and begins_unthought(request, system)):
        settings["thinking"] = False if request.thinking == "off" else request.thinking
    if request.session_id and endpoint.provider.name == "openai" and endpoint.base_url is None:
        settings.setdefault("openai_prompt_cache_key", request.session_id)
    elif request.session_id and endpoint.provider.session_header:
        name = endpoint.provider.session_header
        settings["extra_headers"] = {name: request.session_id, **(settings.get("extra_headers") or {})}
    checked: ModelSettings = settings  # type: ignore[assignment]
    return checked
