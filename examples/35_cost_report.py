"""What it cost: every attempt counts once, in the conversation that made it, and an unknown price is not zero."""

import asyncio

from perdure import Extension, Harness, Registry, ToolContext, ToolResult, Usage
from perdure.testing.scripted_model import ScriptedModel, call, say

search = Extension("search")


@search.tool
async def web(ctx: ToolContext, words: str) -> ToolResult:
    """Search the web."""
    return ToolResult("three pages", usage=Usage(cost=0.005))


async def main() -> None:
    model = ScriptedModel(
        [
            call("web", {"words": "perdure"}),
            say("Found.", usage=Usage(input=1200, output=80)),
            say("In short: found.", usage=Usage(input=900, output=20)),
            say("?", usage=None),
        ],
        price=lambda usage: usage.input * 2e-6 + usage.output * 8e-6,
    )
    async with Harness.open("memory:", registry=Registry([search]), models=model) as harness:
        root = await harness.root(model="scripted:model")
        answer = await (await root.submit("Search")).wait()
        fork = await root.fork(answer.entry_id)
        await (await fork.submit("Shorter")).wait()
        await (await fork.submit("Shorter still")).wait()
        for name, used in (("root", await root.usage()), ("fork", await fork.usage()), ("all", await harness.usage())):
            unknown = f", {used['unpriced']} of unknown cost" if used["unpriced"] else ""
            print(f"{name:<5}{used['input']:>6} in {used['output']:>4} out  ${used['cost']:.5f}{unknown}")
        async with root.watch() as watch:  # the same by model and by tool
            for group, rows in watch.value["docs"]["usage"].items():
                for kind, row in rows.items():
                    print(f"{group:<7}{kind:<15} requests {row['requests']}, ${row['cost']:.5f}")


asyncio.run(main())
