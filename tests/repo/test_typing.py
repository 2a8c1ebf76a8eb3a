"""What a type checker makes of the public names. The checker reads this file with all the others; running it shows that
the code it checks works, too."""

from dataclasses import dataclass
from typing import Any, TypedDict, assert_type

from perdure import (
    Document,
    Extension,
    HookContext,
    Next,
    Outcome,
    Sleep,
    TaskRun,
    ToolContext,
    ToolResult,
    Wait,
    WakeReason,
    phase,
    task,
)
from perdure.testing.scripted_model import call
from tests.agent.kit import agent, ask, results


class Todos(TypedDict):
    items: list[str]


@dataclass
class Point:
    x: int


Todo = Document("typing.todo", Todos, initial=lambda: {"items": []})
Counts = Document("typing.counts", dict[str, int], scope="session", initial=dict)
Places: Document[Point] = Document("typing.places", Point, initial=lambda: Point(1))
Loose = Document("typing.loose", int | None, initial=lambda: 5)


@task("typing.child", version=1)
class Child:
    text: str

    @phase(first=True)
    async def go(self, run: TaskRun) -> Next[str]:
        return run.complete(self.text)


def documents_have_the_type_they_are_declared_with() -> None:
    assert_type(Todo, Document[Todos])
    assert_type(Counts, Document[dict[str, int]])
    assert_type(Places, Document[Point])
    assert_type(Loose, Document[Any])


def parks_keep_what_they_say(ctx: ToolContext[Todos], plain: ToolContext) -> tuple[Sleep[Todos], Sleep, Wait]:
    kept: Todos = {"items": []}
    assert_type(plain, ToolContext[Any])
    assert_type(ctx.checkpoint, Todos | None)
    assert_type(ctx.wake, WakeReason | None)
    return Sleep(until=1.0, checkpoint=kept), Sleep(until=1.0), Wait(on=[ctx.task_id], checkpoint=5)


async def a_hook_keeps_a_typed_memo(ctx: HookContext, call: Any) -> None:
    assert_type(await ctx.memo("asked", "yes"), str)
    assert_type(await ctx.memo("asked", type=int), int | None)


async def test_what_a_tool_is_handed_is_typed() -> None:
    extension = Extension("typed", tasks=[Child])
    extension.add(Todo, Counts, Places)

    @extension.tool
    async def inner(ctx: ToolContext) -> int:
        """Inner."""
        return 3

    @extension.tool
    async def act(ctx: ToolContext) -> str:
        """Act."""
        async with ctx.transaction() as tx:
            todos = await tx.doc(Todo, ctx.conversation_id)
            assert_type(todos, Todos)
            todos["items"].append("a")
            counts = await tx.doc(Counts)
            assert_type(counts, dict[str, int])
            counts["n"] = 1
            assert_type(await tx.snapshot(Places, ctx.conversation_id), Point | None)
        assert_type(await ctx.memo("n", 5), int)
        assert_type(await ctx.memo("n", type=int), int | None)
        assert_type(await ctx.read(Todo), Todos | None)
        child = await ctx.create_task(Child(text="x"), key="child")
        outcome = await ctx.wait_task(child)
        assert_type(outcome, Outcome)
        assert_type(outcome.result(str), str)
        result = await ctx.execute_tool(inner)
        assert_type(result, ToolResult)
        return f"{result.content} {outcome.result(str)} {await ctx.read(Todo)}"

    async with agent([call("act"), "end"], extension) as (_, root):
        assert await ask(root) == "end"
        assert await results(root) == ["3 x {'items': ['a']}"]
    documents_have_the_type_they_are_declared_with()
