"""A tool waits for a webhook: it parks, and nothing runs. A crash starts no second build; a stop cancels the first."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from perdure import (
    HOUR,
    Conversation,
    Extension,
    Harness,
    Registry,
    Signal,
    Sleep,
    TaskId,
    ToolContext,
    ToolResultMessage,
)
from perdure.testing.scripted_model import ScriptedModel, call, say

Done: Signal[str] = Signal("ops.ci-done", version=1, schema=str)
TURNS: list[Any] = [call("run_ci", {"ref": "main"}), say("It passed.")]


class BuildService:
    """Somebody else's server: the same key gives the same build, and its webhook names the key."""

    def __init__(self) -> None:
        self.builds: dict[str, str] = {}
        self.expected: dict[str, TaskId] = {}

    async def trigger(self, key: str) -> str:
        known = key in self.builds
        build = self.builds.setdefault(key, f"build {len(self.builds) + 1}")
        print(f"  trigger: {build}" + (" (known already)" if known else ""))
        return build

    async def cancel(self, build: str) -> None:
        print(f"  cancel: {build}")

    async def webhook(self, harness: Harness, result: str) -> None:
        """Arrives over HTTP; examples/webhook_receiver shows that side."""
        for task in self.expected.values():
            print("  webhook:", await harness.signal(task, Done, "done", result))


def build(service: BuildService, hang: bool = False) -> Registry:
    ops = Extension("ops", signals=[Done])

    @ops.tool(replay="safe")
    async def run_ci(ctx: ToolContext[dict[str, str]], ref: str) -> str | Sleep[dict[str, str]]:
        """Run CI on a git ref and report the result."""
        state = await ctx.read_signal(Done, "done")
        if state is not None:
            return "it never reported" if state.expired else f"the build {state.value}"
        key = await ctx.memo("ci.run", f"call-{ctx.task_id}")  # a rerun gets the same one
        service.expected[key] = ctx.task_id  # before the trigger, so that a fast webhook finds it
        started = await service.trigger(key)
        if hang:
            await asyncio.Event().wait()  # the process ends here, with the build on its way
        return Sleep(signals=[Done.key("done")], until=ctx.now() + 2 * HOUR, checkpoint={"build": started})

    @run_ci.cancel
    async def stop(ctx: ToolContext[dict[str, str]]) -> None:
        if ctx.checkpoint is not None:
            await service.cancel(ctx.checkpoint["build"])

    return Registry([ops])


async def results(conversation: Conversation) -> list[str]:
    return [str(message.content) for message in await conversation.messages() if isinstance(message, ToolResultMessage)]


def opened(path: Path, service: BuildService, *, hang: bool = False) -> Any:
    return Harness.open(path, registry=build(service, hang), models=ScriptedModel.by_progress(TURNS))


async def main(folder: Path) -> None:
    print("the process ends before the park is stored")
    service = BuildService()
    async with opened(folder / "crash.db", service, hang=True) as harness:
        root = await harness.root(model="scripted:model")
        await root.submit("Check main")
        while not service.builds:
            await asyncio.sleep(0.001)
    async with opened(folder / "crash.db", service) as harness:
        await harness.resume()
        while harness.wake().active:
            await asyncio.sleep(0.001)
        print("  parked; anything to run:", harness.wake().active)
        await service.webhook(harness, "passed")
        root = await harness.root()
        await root.wait_idle()
        print(" ", await results(root))

    print("stopped while it is parked")
    service = BuildService()
    async with opened(folder / "stop.db", service) as harness:
        root = await harness.root(model="scripted:model")
        await root.submit("Check main")
        while harness.wake().active or not service.builds:
            await asyncio.sleep(0.001)
        await root.abort()
        await service.webhook(harness, "passed")
        print(" ", await results(root))


with tempfile.TemporaryDirectory() as scratch:
    asyncio.run(main(Path(scratch)))
