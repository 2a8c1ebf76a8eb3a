"""An agent in memory with a script, and short ways to see what came of it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from perdure import Extension, Harness, Registry, Settings
from perdure.harness.conversation import Conversation
from perdure.models.messages import AssistantMessage, ToolResultMessage, UserMessage, decode_messages
from perdure.models.protocol import Models
from perdure.storage.memory import MemoryStorage
from perdure.testing.clock import settle
from perdure.testing.scripted_model import ScriptedModel

MODEL = "scripted:model"


@asynccontextmanager
async def agent(
    turns: Any,
    *extensions: Extension,
    storage: Any = None,
    settings: Settings | None = None,
    clock: Any = None,
    **root: Any,
) -> AsyncIterator[tuple[Harness, Conversation]]:
    """A harness with these extensions, and its root conversation with a model."""
    models: Models = turns if isinstance(turns, ScriptedModel) else ScriptedModel(turns, clock=clock)
    opening = Harness.open(
        storage if storage is not None else MemoryStorage(),
        registry=Registry(extensions),
        models=models,
        settings=settings,
        clock=clock,
    )
    async with asyncio.timeout(30), opening as harness:
        yield harness, await harness.root(**{"model": MODEL, **root})


async def ask(conversation: Conversation, text: str = "go", **options: Any) -> str:
    """Submit and wait for the answer's text."""
    return (await (await conversation.submit(text, **options)).wait()).text


async def results(conversation: Conversation) -> list[str]:
    """What the model reads as results of calls."""
    return [str(m.content) for m in await conversation.messages() if isinstance(m, ToolResultMessage)]


async def said(conversation: Conversation) -> list[str]:
    """What people said, as the model reads it."""
    return [str(m.content) for m in await conversation.messages() if isinstance(m, UserMessage)]


async def attempts(conversation: Conversation) -> list[str]:
    """How each stored response of the model ended, failed ones too."""
    found: list[str] = []
    for entry in await conversation.entries(limit=500):
        found += [m.stop for m in decode_messages(entry.messages) if isinstance(m, AssistantMessage)]
    return found


async def until(condition: Any, rounds: int = 2000) -> None:
    """Let the loop run until a condition holds."""
    for _ in range(rounds):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it never came to that")


def reports(harness: Harness) -> list[str]:
    """Where something went wrong on the side."""
    return [report["where"] for report in harness.inspect()["reports"]]


def texts(requests: Sequence[Any]) -> list[list[str]]:
    """What each request held of what people said."""
    return [[str(m.content) for m in request.messages if isinstance(m, UserMessage)] for request in requests]


class Gate:
    """A place where a tool stands still until a test lets it go on."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.go = asyncio.Event()

    async def stop(self) -> None:
        """Tell that it is reached and wait."""
        self.reached.set()
        await self.go.wait()


__all__ = ["MODEL", "Gate", "agent", "ask", "attempts", "reports", "results", "said", "settle", "texts", "until"]
