"""The three wires that the provider tests go over: a strict server, a model's name, and how its requests read."""

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIChatModel

import perdure.models.adapter
from perdure import Conversation, Extension, Harness, ProviderModels, Registry, RetrySettings, Settings, ToolContext
from perdure.testing.fake_anthropic import FakeAnthropic
from perdure.testing.fake_google import FakeGoogle
from perdure.testing.fake_http import FakeServer
from perdure.testing.fake_openai import FakeOpenAI

IMPORTED = (perdure.models.adapter, AnthropicModel, GoogleModel, OpenAIChatModel)
"""The provider library, imported once: it takes seconds, and no test should pay for it."""

SERVERS: dict[str, Callable[[Any], FakeServer]] = {
    "openai": FakeOpenAI,
    "anthropic": FakeAnthropic,
    "google": FakeGoogle,
}
MODELS = {
    "openai": "openai:gpt-5",
    "anthropic": "anthropic:claude-sonnet-4-6",
    "google": "google:gemini-3-pro-preview",
}
WIRES = list(SERVERS)


def desk() -> Registry:
    """Two tools."""
    extension = Extension("desk")

    @extension.tool(replay="safe")
    async def weather(ctx: ToolContext, city: str) -> str:
        """Tell the weather."""
        return f"sunny in {city}"

    @extension.tool(replay="safe")
    async def clock(ctx: ToolContext) -> str:
        """Tell the time."""
        return "noon"

    return Registry([extension])


@asynccontextmanager
async def opened(
    store: Path | str,
    servers: Mapping[str, FakeServer],
    *,
    registry: Registry | None = None,
    system_updates: Sequence[str] = (),
    **root: Any,
) -> AsyncIterator[tuple[Harness, Conversation]]:
    """A harness whose models are asked at the fake servers, and its root."""
    async with ProviderModels(
        base_url={name: server.base_url for name, server in servers.items()},
        keys=dict.fromkeys(servers, "key"),
        environ={},
        system_updates=system_updates,
    ) as models:
        settings = Settings(retry=RetrySettings(first_delay=0, spread=0))
        async with Harness.open(store, registry=registry or desk(), models=models, settings=settings) as harness:
            yield harness, await harness.root(**root)


async def asked(conversation: Conversation, content: Any = "go", **options: Any) -> str:
    """Submit and wait for the answer's text."""
    return (await (await conversation.submit(content, **options)).wait()).text


def turns_of(wire: str, body: dict[str, Any]) -> list[str]:
    """The conversation as a request body holds it, block by block, each as the JSON that was sent."""
    if wire == "openai":
        return [json.dumps(message) for message in body["messages"]]
    if wire == "google":
        system = [{"role": "system", "parts": (body.get("systemInstruction") or {}).get("parts", [])}]
        said, blocks = [*system, *body["contents"]], "parts"
    else:
        said, blocks = [{"role": "system", "content": body.get("system", [])}, *body["messages"]], "content"
    return [json.dumps([message["role"], block]) for message in said for block in message[blocks]]


def frame_of(wire: str, body: dict[str, Any]) -> str:
    """All of a request body but the conversation: model, tools, settings."""
    left_out = {"messages", "contents", "system", "systemInstruction"}
    return json.dumps({name: value for name, value in body.items() if name not in left_out})


def grows(wire: str, bodies: Sequence[dict[str, Any]]) -> bool:
    """Whether each request begins with the whole of the one before, byte for byte."""
    for before, after in pairwise(bodies):
        old, new = turns_of(wire, before), turns_of(wire, after)
        if new[: len(old)] != old or frame_of(wire, before) != frame_of(wire, after):
            return False
    return True
