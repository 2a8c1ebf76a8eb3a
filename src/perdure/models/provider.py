"""Models by `provider:model` names: real providers, any server that speaks OpenAI's protocol, and a local model.

The one file that imports optional dependencies, and only when a model is first used: they take seconds.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import aclosing
from importlib import import_module
from typing import Any, Protocol

from perdure.models.catalog import LOCAL, PROVIDERS, Endpoint, Provider, check_installed, is_installed, split_name
from perdure.models.errors import AuthFailed, UnknownModel
from perdure.models.messages import AssistantMessage
from perdure.models.protocol import Event, Model, ModelRequest

LOCAL_PACKAGES = ("pydantic_ai", "openai", "xllamacpp")


class _Connections(Protocol):
    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    def stream(self, endpoint: Endpoint, name: str, request: ModelRequest) -> AsyncGenerator[Event]: ...

    def poll(self, endpoint: Endpoint, name: str, handle: Any, request: ModelRequest) -> AsyncGenerator[Event]: ...

    async def cancel(self, endpoint: Endpoint, name: str, handle: Any) -> None: ...

    async def close(self) -> None: ...


class _Server(Protocol):
    model: str
    key: str

    def start(self) -> str: ...

    def stop(self) -> None: ...


class ProviderModels:
    """Resolves names to models of providers.

    `base_url` replaces the address of `openai:` names (a text) or of several providers (a mapping by provider); else
    the provider's own variable counts, such as OPENAI_BASE_URL. Keys come from `keys` (by provider), else from the
    environment, read at each request. `close()` gives connections and the local model back; the object can be used
    again afterwards. It works on any event loop; connections are kept for the latest one.

    `system_updates` names providers whose models take system messages in the middle of a conversation although they
    are asked at an address of your own. Such an address is else taken to refuse them, as many compatible servers do,
    and gets the whole prompt anew where a part of it changes.
    """

    def __init__(
        self,
        *,
        base_url: str | Mapping[str, str] | None = None,
        keys: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
        system_updates: Collection[str] = (),
    ) -> None:
        self._system_updates = frozenset(system_updates)
        self._base_urls = {"openai": base_url} if isinstance(base_url, str) else dict(base_url or {})
        self._keys = dict(keys or {})
        self._environ = os.environ if environ is None else environ
        self._connections: _Connections | None = None
        self._servers: dict[str, _Server] = {}
        self._prices_loaded = False

    def model(self, name: str) -> Model:
        """The model of that name. Imports nothing yet; `UnknownModel` if the provider is unknown or not installed."""
        provider, model = split_name(name)
        if provider == LOCAL:
            return self._local(name, model)
        check_installed(PROVIDERS[provider])
        return ProviderModel(self, name, PROVIDERS[provider], model)

    def cost(self, name: str, message: AssistantMessage) -> float | None:
        """USD for a response's tokens by the provider's own word, else by the bundled price list; None: unknown."""
        if message.usage is None:
            return None
        if message.usage.cost is not None:
            return message.usage.cost
        provider, _, model = name.partition(":")
        if provider == LOCAL:
            return 0.0
        if provider not in PROVIDERS or not is_installed("genai_prices"):
            return None
        from perdure.models.prices import cost

        return cost(PROVIDERS[provider].prices or provider, model, message.usage)

    async def load_prices(self, model: Model) -> None:
        """Load the price list, which tells windows too, with its first look-up: in a thread, the loop goes on."""
        if not self._prices_loaded:
            await asyncio.to_thread(lambda: model.context_window)
            self._prices_loaded = True

    async def close(self) -> None:
        """Close the connections and stop local models. Requests that still run fail."""
        connections, self._connections = self._connections, None
        if connections is not None and connections.loop is asyncio.get_running_loop():
            await connections.close()
        servers, self._servers = list(self._servers.values()), {}
        for server in servers:
            await asyncio.to_thread(server.stop)

    async def __aenter__(self) -> "ProviderModels":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def base_url(self, provider: Provider) -> str | None:
        """The address set for a provider, or None for its own."""
        variable = provider.base_url_variable
        found = self._base_urls.get(provider.name) or (self._environ.get(variable) if variable else None)
        return found or provider.default_base_url

    def key(self, provider: Provider) -> str | None:
        """The provider's key; None where none is needed. `AuthFailed` names the variables that may hold it."""
        found = self._keys.get(provider.name) or next(filter(None, map(self._environ.get, provider.keys)), None)
        if found or not provider.keys or (provider.key_optional and self.base_url(provider)):
            return found
        raise AuthFailed(f"no key for {provider.name}", hint=f"set {' or '.join(provider.keys)}")

    def updates(self, provider: Provider, model: str) -> bool:
        """Whether a model takes system messages in the middle of a conversation."""
        if self.base_url(provider) is not None and provider.name not in self._system_updates:
            return False
        return any(map(model.startswith, provider.system_updates))

    async def ask(self, endpoint: Endpoint, name: str, request: ModelRequest) -> AsyncGenerator[Event]:
        """Stream from an endpoint."""
        connections = await self.connected(endpoint)
        async with aclosing(connections.stream(endpoint, name, request)) as events:
            async for event in events:
                yield event

    async def connected(self, endpoint: Endpoint) -> _Connections:
        """The connections of this event loop. Imports happen in a thread: the loop goes on."""
        await asyncio.to_thread(_import, endpoint.provider)
        from perdure.models.adapter import Connections

        connections = self._connections
        if connections is None or connections.loop is not asyncio.get_running_loop():
            connections = self._connections = Connections()
        return connections

    def _local(self, name: str, model: str) -> Model:
        if not all(map(is_installed, LOCAL_PACKAGES)):
            raise UnknownModel("local models need a package that is not installed", hint='pip install "perdure[local]"')
        from perdure.models.local import WEIGHTS, LocalServer, weights_file

        weights_file(model)
        if model not in self._servers:
            self._servers[model] = LocalServer(model)
        return LocalModel(self, name, self._servers[model], WEIGHTS[model].context_window)


class ProviderModel:
    """One model of a provider. Cheap to make; connects when asked."""

    def __init__(self, models: ProviderModels, name: str, provider: Provider, model: str) -> None:
        self._models = models
        self._name = name
        self._provider = provider
        self._model = model

    @property
    def name(self) -> str:
        return self._name

    async def load(self) -> None:
        await self._models.load_prices(self)

    @property
    def context_window(self) -> int | None:
        if not is_installed("genai_prices"):
            return None
        from perdure.models.prices import context_window

        return context_window(self._provider.prices or self._provider.name, self._model)

    @property
    def system_updates(self) -> bool:
        return self._models.updates(self._provider, self._model)

    @property
    def _endpoint(self) -> Endpoint:
        provider = self._provider
        return Endpoint(provider, self._model, self._models.base_url(provider), self._models.key(provider))

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Event]:
        async with aclosing(self._models.ask(self._endpoint, self._name, request)) as events:
            async for event in events:
                yield event

    async def poll(self, handle: Any, request: ModelRequest) -> AsyncGenerator[Event]:
        connections = await self._models.connected(self._endpoint)
        async with aclosing(connections.poll(self._endpoint, self._name, handle, request)) as events:
            async for event in events:
                yield event

    async def cancel(self, handle: Any) -> None:
        connections = await self._models.connected(self._endpoint)
        await connections.cancel(self._endpoint, self._name, handle)


class LocalModel:
    """A model in this process; its server starts when it is first asked."""

    def __init__(self, models: ProviderModels, name: str, server: _Server, context_window: int) -> None:
        self._models = models
        self._name = name
        self._server = server
        self._context_window = context_window

    @property
    def name(self) -> str:
        return self._name

    @property
    def context_window(self) -> int | None:
        return self._context_window

    @property
    def system_updates(self) -> bool:
        return False

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Event]:
        address = await asyncio.to_thread(self._server.start)
        endpoint = Endpoint(PROVIDERS["openai"], self._server.model, address, self._server.key, images=False)
        async with aclosing(self._models.ask(endpoint, self._name, request)) as events:
            async for event in events:
                yield event


def _import(provider: Provider) -> None:
    import_module("perdure.models.adapter")
    import_module(provider.model_class.partition(":")[0])
