"""The registry: who wins, what wraps it, what is refused, and what each conversation takes of it."""

import asyncio
from typing import Any

from perdure import Document, Extension, Harness, InvalidDefinition, Registry, Remove, ToolContext
from perdure.models.messages import ToolResultMessage
from perdure.testing.scripted_model import ScriptedModel, call, say


def shell(name: str) -> Extension:
    extension = Extension(name)

    @extension.tool
    async def bash(ctx: ToolContext, command: str) -> str:
        """Run a command."""
        return f"{name}: {command}"

    return extension


def timing(log: list[str]) -> Extension:
    extension = Extension("timing")

    @extension.wrap_tool("bash")
    async def timed(ctx: ToolContext, args: dict[str, Any], call_next: Any) -> Any:
        started = ctx.now()
        try:
            return await call_next({"command": f"time {args['command']}"})
        finally:
            log.append(f"{args['command']} took {'some' if ctx.now() >= started else 'no'} time")

    @extension.wrap_tool("not_there")  # nobody brings this tool: skipped
    async def never(ctx: ToolContext, args: dict[str, Any], call_next: Any) -> Any:
        raise AssertionError

    return extension


async def last_result(conversation: Any) -> Any:
    await (await conversation.submit("go")).wait()
    return [m.content for m in await conversation.messages() if isinstance(m, ToolResultMessage)][-1]


async def main() -> None:
    log: list[str] = []
    registry = Registry([timing(log), shell("plain")])
    registry.on_change(lambda: log.append(f"version {registry.snapshot().version}"))
    script = [turn for _ in range(4) for turn in (call("bash", {"command": "ls"}), say("ok"))]
    async with Harness.open("memory:", registry=registry, models=ScriptedModel(script)) as harness:
        root = await harness.root(model="scripted:model")
        print("one tool:", await last_result(root))

        registry.install(shell("venv"))  # the later tool of a name wins, and the wrap goes around the winner
        print("a later one:", await last_result(root))

        await root.configure(extensions=Remove("timing"))  # this conversation only
        print("without the wrap:", await last_result(root))

        registry.uninstall("venv")
        print("uninstalled:", await last_result(root))

        one, other = Extension("one"), Extension("other")
        one.add(Document("app.notes", dict[str, int]))
        other.add(Document("app.notes", list[str]))
        registry.install(one)
        for bad in (other, "shell"):
            try:
                registry.install(bad)  # type: ignore[arg-type]
            except InvalidDefinition as error:
                print("refused:", error.what)
        try:
            one.add(Document("app.more", dict[str, int]))
        except InvalidDefinition as error:
            print("refused:", error.what)
        print("installed:", ", ".join(registry.snapshot().extensions))
        print(log)


asyncio.run(main())
