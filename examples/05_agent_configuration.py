"""Which agent a conversation has: names in a document, changed while it runs, kept by forks, resolved when needed."""

import asyncio
from typing import Any

from perdure import Add, Extension, Harness, InvalidValue, Registry, Remove
from perdure.testing.scripted_model import ScriptedModel, say

ops = Extension("ops")


@ops.tool(replay="safe")
async def status(ctx: Any) -> str:
    """Tell whether the service is up."""
    return "up"


@ops.tool
async def deploy(ctx: Any, version: str) -> str:
    """Deploy a version."""
    return f"deployed {version}"


async def main() -> None:
    model = ScriptedModel([say("hello")])
    async with Harness.open("memory:", registry=Registry([ops]), models=model) as harness:
        root = await harness.root(model="scripted:small", instructions="Be brief.")
        print("tools:", (await root.agent()).tools)
        answer = await (await root.submit("hi")).wait()
        review = await root.fork(answer.entry_id)
        await review.configure(model="scripted:large", tools=Remove(deploy.name), instructions=None)
        agent = await review.agent()
        print("the fork:", agent.model, agent.tools, agent.instructions)
        await review.configure(extensions=Add("not-installed"))
        agent = await review.agent()
        print("unknown names are kept and skipped:", agent.resolved.unknown, agent.extensions)
        try:
            await review.configure(tools="deploy")
        except InvalidValue as error:
            print("refused:", error.hint)
        print("the parent is as it was:", (await root.agent()).tools)


asyncio.run(main())
