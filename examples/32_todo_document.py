"""A todo list the agent keeps: a document that a tool changes, a section shows, a person watches and a fork rewinds."""

import asyncio
from typing import Any, TypedDict

from perdure import Document, Extension, Harness, Registry, SectionContext, ToolContext
from perdure.testing.scripted_model import ScriptedModel, call, say


class Todos(TypedDict):
    items: list[str]


TodoList: Document[Todos] = Document(
    "app.todos",
    Todos,
    scope="conversation",
    history="rewindable",
    fork="as_of",  # a fork starts with the todos its parent had at the fork entry
    initial=lambda: {"items": []},
)

todo = Extension("todo")
todo.add(TodoList)


@todo.tool(name="todo")
async def add(ctx: ToolContext, item: str) -> str:
    """Add an item to your todo list."""
    async with ctx.transaction() as tx:
        todos = await tx.doc(TodoList, ctx.conversation_id)
        todos["items"].append(item)
    return f"Added {item}"


@todo.section("todos")
async def show(ctx: SectionContext) -> str | None:
    """The model sees the list before every request."""
    todos = await ctx.read(TodoList)
    return "\n".join(todos["items"]) if todos else None


TURNS: list[Any] = [
    call("todo", {"item": "pack"}),
    say("Packing is on the list."),
    call("todo", {"item": "book the train"}),
    say("And the train."),
    say("Only packing so far."),
]


async def main() -> None:
    model = ScriptedModel(TURNS)
    async with Harness.open("memory:", registry=Registry([todo]), models=model) as harness:
        root = await harness.root(model="scripted:model")

        async def render() -> None:
            async with harness.watch_document(TodoList, root.id) as watch:
                async for frame in watch:
                    print("watching:    ", frame.value, frame.ops)

        watching = asyncio.create_task(render())
        first = await (await root.submit("I have to pack")).wait()
        await (await root.submit("and to book the train")).wait()
        print("prompts:     ", [request.system for request in model.requests])
        fork = await root.fork(first.entry_id)
        answer = await (await fork.submit("What is on my list?")).wait()
        print("in the fork: ", repr(model.requests[-1].system), "->", answer.text)
        print("fork, parent:", await harness.session.snapshot(TodoList, fork.id), end=" ")
        print(await harness.session.snapshot(TodoList, root.id))
    await watching


asyncio.run(main())
