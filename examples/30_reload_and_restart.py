"""New code after a restart: conversations keep names, so what was interrupted goes on with what is installed now."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from perdure import Extension, Harness, Registry, ToolContext
from perdure.models.messages import ToolResultMessage
from perdure.testing.scripted_model import ScriptedModel, call, say

TURNS: list[Any] = [
    [call("look_up", {"order": 7}), call("charge", {"cents": 500}), call("old_report")],
    say("Order 7 is on its way."),
    call("new_report"),
    say("And here is the report."),
]


def build(version: int, running: asyncio.Semaphore, go_on: asyncio.Event) -> Extension:
    shop = Extension("shop")

    async def work(what: str) -> str:
        running.release()
        await go_on.wait()
        return f"{what} by version {version}"

    @shop.tool(replay="safe")
    async def look_up(ctx: ToolContext, order: int) -> str:
        """Look an order up: harmless to repeat."""
        return await work(f"order {order}, looked up")

    @shop.tool
    async def charge(ctx: ToolContext, cents: int) -> str:
        """Charge a card: never repeated unasked."""
        return await work(f"{cents} cents, charged")

    async def report(ctx: ToolContext) -> str:
        """Write a report."""
        return await work("report, written")

    shop.tool(name="old_report" if version == 1 else "new_report")(report)
    return shop


async def main() -> None:
    store = Path(tempfile.mkdtemp()) / "shop.db"
    running, stop, go_on = asyncio.Semaphore(0), asyncio.Event(), asyncio.Event()
    go_on.set()

    registry = Registry([build(1, running, stop)])
    async with Harness.open(store, registry=registry, models=ScriptedModel.by_progress(TURNS)) as harness:
        root = await harness.root(model="scripted:model", extensions=["shop", "not-installed"])
        await root.submit("Where is order 7?", request_id="q1")
        for _ in range(3):
            await running.acquire()
        print("version 1 is stopped while three calls run")

    registry = Registry([build(2, running, go_on)])
    async with Harness.open(store, registry=registry, models=ScriptedModel.by_progress(TURNS)) as harness:
        root = await harness.root()
        again = await root.submit("Where is order 7?", request_id="q1")  # the same request, so the same answer
        print((await again.wait()).text)
        for message in await root.messages():
            if isinstance(message, ToolResultMessage):
                print("  ", message.content)
        print((await (await root.submit("A report, please")).wait()).text)
        agent = await root.agent()
        print("tools now:", ", ".join(agent.tools), "- extensions:", ", ".join(agent.extensions))


asyncio.run(main())
