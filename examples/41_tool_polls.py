"""A tool that polls a service that knows no webhooks: it parks on time, and longer after each look."""

import asyncio

from perdure import Extension, Harness, Registry, Sleep, ToolContext, ToolResultMessage
from perdure.testing.clock import FakeClock
from perdure.testing.scripted_model import ScriptedModel, call, say

clock = FakeClock()
START = clock.now()
READY_AT = START + 100
LONGEST = 60.0
exports = Extension("exports")


async def look(export: str) -> bool:
    print(f"  second {clock.now() - START:3.0f}: looks at {export}")
    return clock.now() >= READY_AT


@exports.tool(replay="safe")
async def wait_for_export(ctx: ToolContext[int], export: str) -> str | Sleep[int]:
    """Wait until an export is ready."""
    tries = 1 if ctx.checkpoint is None else ctx.checkpoint + 1
    if await look(export):
        return f"{export} is ready after {tries} looks"
    if tries == 10:
        return f"{export} never became ready"
    return Sleep(until=ctx.now() + min(5.0 * 2**tries, LONGEST), checkpoint=tries)


async def main() -> None:
    model = ScriptedModel([call("wait_for_export", {"export": "sales.csv"}), say("Here it is.")], clock=clock)
    async with Harness.open("memory:", registry=Registry([exports]), models=model, clock=clock) as harness:
        root = await harness.root(model="scripted:model")
        submission = await root.submit("Get me the sales")
        await harness.wait_parked()
        while (at := harness.wake().at) is not None:  # a host would set its alarm and exit
            print(f"  nothing runs: {not harness.wake().active}, alarm at second {at - START:.0f}")
            await clock.jump_to(at)
        print((await submission.wait()).text)
        print([m.content for m in await root.messages() if isinstance(m, ToolResultMessage)])


asyncio.run(main())
