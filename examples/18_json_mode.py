"""JSON mode: what happens, as one JSON object a line, for programs in any language (as `perdure ask --json` does)."""

import asyncio
import json

import msgspec

from perdure import Extension, Harness, Registry, ToolContext
from perdure.events import RunEnd
from perdure.testing.scripted_model import ScriptedModel, call, say

SHOWN = ("type", "turn", "kind", "status", "request_id", "name", "arguments", "delta")
"""Left out here: ids, and whole entries."""

shop = Extension("shop")


@shop.tool
async def look_up(ctx: ToolContext, order: int) -> str:
    """Look an order up."""
    return f"order {order} is shipped"


async def main() -> None:
    model = ScriptedModel([call("look_up", {"order": 17}), say("It is shipped.")])
    async with Harness.open("memory:", registry=Registry([shop]), models=model) as harness:
        root = await harness.root(model="scripted:model")
        async with root.events() as events:
            await root.submit("Where is order 17?", request_id="q-1")
            async for event in events:
                line = msgspec.json.encode(event)
                told = json.loads(line)  # what a program at the other end of the pipe reads
                shown = {name: told[name] for name in SHOWN if name in told}
                print(json.dumps(shown))
                if isinstance(event, RunEnd):
                    break


asyncio.run(main())
