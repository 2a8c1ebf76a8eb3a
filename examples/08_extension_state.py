"""Extension state: a document the model sees through a section and changes through a tool, in one commit each."""

import asyncio
from typing import Any, TypedDict

from perdure import Document, Extension, Harness, Registry
from perdure.testing.scripted_model import ScriptedModel, call, say


class Todos(TypedDict):
    items: list[str]


TodoList: Document[Todos] = Document(
    "app.todos", Todos, history="rewindable", fork="as_of", initial=lambda: {"items": []}
)
todo = Extension("todo")
todo.add(TodoList)


@todo.tool
async def add_todo(ctx: Any, item: str) -> str:
    """Add an item to the list."""
    async with ctx.transaction() as tx:
        todos = await tx.doc(TodoList, ctx.conversation_id)
        todos["items"].append(item)
    return f"added {item}"


@todo.section("todos")
async def show(ctx: Any) -> str | None:
    todos = await ctx.read(TodoList)
    return "Todo: " + ", ".join(todos["items"]) if todos and todos["items"] else None


async def main() -> None:
    model = ScriptedModel([call("add_todo", {"item": "milk"}), call("add_todo", {"item": "bread"}), say("Two things.")])
    async with Harness.open("memory:", registry=Registry([todo]), models=model) as harness:
        root = await harness.root(model="scripted:model")
        await (await root.submit("We need milk and bread")).wait()
        for number, request in enumerate(model.requests, 1):
            print(f"request {number}: prompt {request.system!r}")
        print("stored:", await harness.session.snapshot(TodoList, root.id))


asyncio.run(main())
