"""An agent that starts others, with one script for it and one for those."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perdure import Harness, Registry, ToolResultMessage
from perdure.models.protocol import ModelRequest
from perdure.testing.scripted_model import ScriptedModel, call, say
from perdure.tools import ask_person, subagents

Turn = Callable[[ModelRequest], Any]


def is_parent(request: ModelRequest) -> bool:
    return any(tool.name == "agents" for tool in request.tools)


def opened(path: Path | str, turn: Turn, **options: Any) -> Any:
    registry = Registry([subagents(**options), ask_person])
    return Harness.open(path, registry=registry, models=ScriptedModel(turn))


async def ask(harness: Harness, text: str) -> str:
    root = await harness.root(model="scripted:model")
    answer = await (await root.submit(text, request_id=text)).wait()
    return answer.text


async def conversations(harness: Harness) -> list[int]:
    async with harness.session.transaction() as tx:
        return [one.id for one in await tx.scan_conversations()]


async def until(condition: Callable[[], bool]) -> None:
    """Wait in memory for what the harness does by itself."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.002)


def results(request: ModelRequest) -> list[str]:
    return [str(one.content) for one in request.messages if isinstance(one, ToolResultMessage)]


def script(*calls: dict[str, Any] | str, child: Any = None) -> Turn:
    """A parent that makes these calls of `agents`, one in each round, and then says the results."""

    def turn(request: ModelRequest) -> Any:
        if not is_parent(request):
            return child(request) if child is not None else say(f"answer to {request.messages[-1].text}")
        done = len(results(request))
        if done < len(calls):
            return call("agents", calls[done])
        return say(" | ".join([*results(request), request.messages[-1].text]))

    return turn
