"""Wraps around tools, whichever tool wins."""

from typing import Any

import pytest

from perdure import Extension, ToolError, ToolResult
from perdure.testing.scripted_model import call
from tests.agent.kit import agent, ask, reports, results
from tests.agent.test_rounds import steps


def wrapping(*wraps: Any, tool: str = "free") -> Extension:
    extension = Extension("wraps")
    for wrap in wraps:
        extension.wrap_tool(tool)(wrap)
    return extension


async def never_calls(ctx: Any, args: Any, call_next: Any) -> Any:
    return ToolResult("instead", details={"args": args})


async def raises(ctx: Any, args: Any, call_next: Any) -> Any:
    raise ValueError("a broken wrap")


async def refuses(ctx: Any, args: Any, call_next: Any) -> Any:
    raise ToolError("not now")


async def retries(ctx: Any, args: Any, call_next: Any) -> Any:
    await call_next({"n": 8})
    return await call_next({"n": 9})


async def gives_nonsense(ctx: Any, args: Any, call_next: Any) -> Any:
    return {1, 2}


async def changes_in_place(ctx: Any, args: Any, call_next: Any) -> Any:
    args["n"] += 1
    return await call_next(args)


@pytest.mark.parametrize(
    ("wrap", "expected", "ran"),
    [
        (never_calls, "instead", []),
        (raises, "tool_error: ValueError: a broken wrap", []),
        (refuses, "not now", []),
        (retries, "free 9", ["free 8", "free 9"]),
        (gives_nonsense, "tool_error: the result cannot be stored", []),
        (changes_in_place, "free 2", ["free 2"]),
    ],
)
async def test_a_wrap_decides_whether_and_how_the_tool_runs(wrap: Any, expected: str, ran: list[str]) -> None:
    log: list[str] = []
    async with agent([call("free", {"n": 1}), "end"], steps(log), wrapping(wrap)) as (_, root):
        assert await ask(root) == "end"
        assert (await results(root))[0].startswith(expected)
        assert [line.removesuffix(" begins") for line in log if line.endswith("begins")] == ran


async def test_a_wrap_sees_what_the_tool_raises_and_may_give_something_else() -> None:
    broken = Extension("broken")

    @broken.tool
    async def free(ctx: Any) -> str:
        """Break."""
        raise ValueError("broken")

    async def mends(ctx: Any, args: Any, call_next: Any) -> Any:
        try:
            return await call_next(args)
        except ValueError as error:
            return f"mended: {error}"

    async with agent([call("free"), "end"], broken, wrapping(mends)) as (harness, root):
        await ask(root)
        assert await results(root) == ["mended: broken"]
        assert reports(harness) == []


async def test_a_wrap_of_a_tool_that_is_not_there_is_skipped_and_one_of_a_replaced_tool_stays() -> None:
    log: list[str] = []

    async def marks(ctx: Any, args: Any, call_next: Any) -> Any:
        return f"[{await call_next(args)}]"

    script = [call("free", {"n": 1}), call("free", {"n": 2}), "end"]
    async with agent(script, steps(log), wrapping(marks)) as (harness, root):
        extension = Extension("later")

        @extension.tool
        async def free(ctx: Any, n: int) -> str:
            """Free, otherwise."""
            return f"other {n}"

        @extension.wrap_tool("nowhere")
        async def never(ctx: Any, args: Any, call_next: Any) -> Any:
            raise AssertionError("it ran")

        hooks = Extension("hooks")

        @hooks.after_tools
        async def replace(ctx: Any, round: Any) -> None:
            harness.agent.registry.install(extension)

        harness.agent.registry.install(hooks)
        assert await ask(root) == "end"
        assert await results(root) == ["[free 1]", "[other 2]"]


async def test_a_wrap_goes_around_nested_calls_too() -> None:
    log, extension = list[str](), Extension("outer")

    @extension.tool
    async def outer(ctx: Any) -> str:
        """Outer."""
        return str((await ctx.execute_tool("free", {"n": 1})).content)

    async def marks(ctx: Any, args: Any, call_next: Any) -> Any:
        return f"[{await call_next(args)}]"

    async with agent([call("outer"), "end"], steps(log), extension, wrapping(marks)) as (_, root):
        await ask(root)
        assert await results(root) == ["[free 1]"]


async def test_a_wrap_may_give_something_of_another_type_than_the_tool_declares() -> None:
    typed = Extension("typed")

    @typed.tool
    async def free(ctx: Any) -> list[int]:
        """Numbers."""
        return [1, 2]

    async def counts(ctx: Any, args: Any, call_next: Any) -> Any:
        return {"count": len(await call_next(args))}

    async with agent([call("free"), "end"], typed, wrapping(counts)) as (_, root):
        await ask(root)
        assert await results(root) == ['{"count":2}']
