"""Tools: a function with types becomes a schema; output streams, details are for UIs, errors are for the model."""

import asyncio
import json
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta

from perdure import Extension, Harness, Registry, ToolError, ToolResult
from perdure.models.messages import ToolResultMessage
from perdure.testing.scripted_model import ScriptedModel, call, say

shop = Extension("shop")


@dataclass
class Address:
    street: str
    city: str


@shop.tool(replay="safe")
async def quote(
    ctx: Any, items: list[str], to: Address, express: Annotated[bool, Meta(description="Overnight")] = False
) -> dict[str, float]:
    """Price a delivery.

    Args:
        items: article numbers
        to: where it goes
    """
    ctx.output(f"asking the carrier about {len(items)} items\n")
    if to.city == "Atlantis":
        raise ToolError("We do not deliver under water.")
    return {"price": 4.5 * len(items) + (10 if express else 0)}


@shop.tool
async def order(ctx: Any, number: int) -> ToolResult:
    """Place an order."""
    ctx.diagnostic("the warehouse is slow today")
    return ToolResult("ordered", details={"tracking": f"T{number}"})


async def main() -> None:
    print(json.dumps(quote.offer.parameters["properties"]["items"]), quote.offer.parameters["required"])
    there = {"street": "Ring 1", "city": "Vienna"}
    model = ScriptedModel(
        [
            [
                call("quote", {"items": ["a", "b"], "to": there, "express": True}),
                call("quote", {"items": ["a"], "to": {"street": "?", "city": "Atlantis"}}),
                call("quote", {"items": "a", "to": there}),
                call("order", {"number": 7}),
                call("fly", {}),
            ],
            say("Ordered."),
        ]
    )
    async with Harness.open("memory:", registry=Registry([shop]), models=model) as harness:
        root = await harness.root(model="scripted:model")
        await (await root.submit("Two of a and b, please")).wait()
        for message in await root.messages():
            if isinstance(message, ToolResultMessage):
                print(f"{message.name:<6} {'error' if message.is_error else 'ok':<6}", repr(message.content))


asyncio.run(main())
