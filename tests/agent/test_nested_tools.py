"""Calls that a tool makes of other tools, and work that it starts under a key."""

import asyncio
from typing import Any

import pytest

from perdure import AddTools, Block, Extension, InvalidValue, TaskRun, ToolError, ToolResult, Usage, phase, task
from perdure.agent.nested import KeyConflict
from perdure.models.messages import ToolCall
from perdure.storage.memory import MemoryStorage
from perdure.testing.clock import settle
from perdure.testing.scripted_model import ScriptedModel, call
from tests.agent.kit import Gate, agent, ask, results


@task("test.nested_child", version=1)
class Child:
    text: str

    @phase(first=True)
    async def go(self, run: TaskRun) -> Any:
        return run.complete(self.text)


@task("test.nested_other", version=1)
class Other:
    @phase(first=True)
    async def go(self, run: TaskRun) -> Any:
        return run.complete(None)


def helpers(ran: list[str]) -> Extension:
    extension = Extension("helpers", tasks=[Child, Other])

    @extension.tool
    async def double(ctx: Any, n: int) -> int:
        """Double."""
        ran.append(f"double {n}")
        return 2 * n

    @extension.tool
    async def refuse(ctx: Any) -> str:
        """Refuse."""
        raise ToolError("not today")

    @extension.tool
    async def costly(ctx: Any) -> ToolResult:
        """Cost."""
        return ToolResult(
            "paid", details={"a": 1}, diagnostics=["careful"], usage=Usage(input=5, cost=0.5), control=AddTools(["x"])
        )

    return extension


def acting(act: Any, **options: Any) -> Extension:
    extension = Extension("acting")

    @extension.tool(name="act", **options)
    async def run(ctx: Any) -> Any:
        """Act."""
        return await act(ctx)

    return extension


async def test_a_tool_runs_another_and_reads_its_whole_result() -> None:
    ran: list[str] = []
    seen: list[ToolResult] = []

    async def act(ctx: Any) -> str:
        seen.append(await ctx.execute_tool("double", {"n": 4}))
        seen.append(await ctx.execute_tool("refuse"))
        seen.append(await ctx.execute_tool("costly", key="once"))
        return "acted"

    async with agent([call("act"), "end"], helpers(ran), acting(act)) as (harness, root):
        assert await ask(root) == "end"
        assert await results(root) == ["acted"]
        assert seen[0] == ToolResult("8", structured=8)
        assert seen[1] == ToolResult("not today", is_error=True)
        assert seen[2].details == {"a": 1}
        assert seen[2].diagnostics == ["careful"]
        assert seen[2].usage == Usage(input=5, cost=0.5)
        assert seen[2].control == AddTools(["x"])
        usage = await harness.usage()
        assert (usage["input"], usage["cost"]) == (205, 0.5)


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("double", {"n": "four"}, "invalid_arguments: "),
        ("double", {}, "invalid_arguments: "),
        ("missing", {}, "tool_unavailable: "),
        ("hidden", {}, "tool_unavailable: "),
        ("guarded", {}, "blocked: no"),
    ],
)
async def test_a_nested_call_passes_the_same_gates_and_checks(name: str, arguments: Any, expected: str) -> None:
    extension = Extension("guard")
    after: list[str] = []

    @extension.tool
    async def guarded(ctx: Any) -> str:
        """Guarded."""
        raise AssertionError("it ran")

    @extension.tool
    async def hidden(ctx: Any) -> str:
        """Not among the conversation's tools."""
        raise AssertionError("it ran")

    @extension.before_tool(tools=["guarded"])
    async def gate(ctx: Any, made: ToolCall) -> Block:
        return Block("no")

    @extension.after_tool
    async def watch(ctx: Any, result: ToolResult) -> None:
        after.append(str(result.content))

    async def act(ctx: Any) -> str:
        result = await ctx.execute_tool(name, arguments)
        assert result.is_error
        return str(result.content)

    tools = ["act", "double", "guarded"]
    async with agent([call("act"), "end"], helpers([]), extension, acting(act), tools=tools) as (_, root):
        assert await ask(root) == "end"
        (result,) = await results(root)
        assert result.startswith(expected)
        assert after == [result, result]  # once for the nested call, once for the call that returned it


@pytest.mark.parametrize("arguments", [5, {"n": {1}}, {"n": float("nan")}, {1: 2}])
async def test_arguments_that_are_no_json_are_refused_where_they_are_given(arguments: Any) -> None:
    async def act(ctx: Any) -> str:
        with pytest.raises(InvalidValue):
            await ctx.execute_tool("double", arguments)
        with pytest.raises(InvalidValue):
            await ctx.execute_tool("double", {"n": 1}, key="")
        return "refused"

    async with agent([call("act"), "end"], helpers([]), acting(act)) as (_, root):
        await ask(root)
        assert await results(root) == ["refused"]


async def test_nested_calls_run_side_by_side_and_a_used_key_gives_the_same_call() -> None:
    ran: list[str] = []

    async def act(ctx: Any) -> str:
        a, b = [await ctx.start_tool("double", {"n": n}, key=str(n)) for n in (1, 2)]
        again = await ctx.start_tool("double", {"n": 1}, key="1")
        assert again.task_id == a.task_id != b.task_id
        found = await asyncio.gather(a.result(), b.result(), again.result())
        for other, arguments in (("double", {"n": 3}), ("refuse", {})):
            with pytest.raises(KeyConflict):
                await ctx.start_tool(other, arguments, key="1")
        with pytest.raises(KeyConflict):
            await ctx.create_task(Other(), key="1")
        return str([result.content for result in found])

    async with agent([call("act"), "end"], helpers(ran), acting(act)) as (_, root):
        await ask(root)
        assert await results(root) == ["['2', '4', '2']"]
        assert sorted(ran) == ["double 1", "double 2"]


async def test_a_task_under_a_key_is_created_once() -> None:
    async def act(ctx: Any) -> str:
        first = await ctx.create_task(Child(text="a"), key="child")
        assert await ctx.create_task(Child(text="b"), key="child") == first
        with pytest.raises(KeyConflict):
            await ctx.create_task(Other(), key="child")
        return str((await ctx.wait_task(first)).result(str))

    async with agent([call("act"), "end"], helpers([]), acting(act)) as (_, root):
        await ask(root)
        assert await results(root) == ["a"]


async def test_a_nested_call_that_nobody_waited_for_ends_with_its_caller() -> None:
    gate, started = Gate(), list[Any]()
    slow = Extension("slow")

    @slow.tool
    async def wait(ctx: Any) -> str:
        """Wait."""
        await gate.stop()
        return "never"

    async def act(ctx: Any) -> str:
        started.append(await ctx.start_tool("wait"))
        await gate.reached.wait()
        return "left it"

    async with agent([call("act"), "end"], slow, acting(act)) as (_, root):
        assert await ask(root) == "end"
        assert await results(root) == ["left it"]
        result = await started[0].result()
        assert result == ToolResult("aborted: the call was stopped", is_error=True)


async def test_an_abort_reaches_nested_calls_and_hooks_see_them_end() -> None:
    gate, seen = Gate(), list[str]()
    slow = Extension("slow")

    @slow.tool
    async def wait(ctx: Any) -> str:
        """Wait."""
        await gate.stop()
        return "never"

    @slow.on_abort
    async def stopped(ctx: Any, result: ToolResult) -> None:
        seen.append(str(result.content))

    async def act(ctx: Any) -> str:
        return str((await ctx.execute_tool("wait")).content)

    async with agent([call("act"), "again"], slow, acting(act)) as (_, root):
        submission = await root.submit("go")
        await gate.reached.wait()
        await root.abort()
        assert (await submission.settled()).reason == "aborted"
        assert seen == ["aborted: the call was stopped"] * 2
        assert await ask(root) == "again"


@pytest.mark.parametrize(("caller", "runs"), [("safe", 2), ("unsafe", 1)])
async def test_after_a_crash_a_safe_caller_finds_its_nested_calls_and_an_unsafe_one_leaves_them(
    caller: Any, runs: int
) -> None:
    """The nested call is safe by itself; whether it goes on is up to its caller."""
    gate, ran = Gate(), list[str]()

    def code() -> list[Extension]:
        extension = Extension("inner")

        @extension.tool(replay="safe")
        async def inner(ctx: Any) -> str:
            """Work."""
            ran.append("inner")
            await gate.stop()
            return "worked"

        async def act(ctx: Any) -> str:
            ran.append(f"act {(await ctx.execute_tool('double', {'n': 1})).content}")
            return str((await ctx.execute_tool("inner")).content)

        return [extension, helpers(ran), acting(act, replay=caller)]

    storage = MemoryStorage()
    turns: list[Any] = [call("act"), "end"]
    async with agent(ScriptedModel.by_progress(turns), *code(), storage=storage) as (_, root):
        await root.submit("go")
        await gate.reached.wait()
    gate.go.set()
    async with agent(ScriptedModel.by_progress(turns), *code(), storage=storage) as (harness, root):
        await harness.resume()
        await root.wait_idle()
        await settle()
        (result,) = await results(root)
        assert ran.count("double 1") == 1
        assert ran.count("inner") == runs
        assert ran.count("act 2") == runs
        assert result == "worked" if caller == "safe" else result.startswith("interrupted")


async def test_nested_calls_may_nest() -> None:
    extension = Extension("deep")

    @extension.tool
    async def down(ctx: Any, n: int) -> str:
        """Go down."""
        if n == 0:
            return "bottom"
        return f"{n} {(await ctx.execute_tool(down, {'n': n - 1})).content}"

    async with agent([call("down", {"n": 5}), "end"], extension) as (_, root):
        await ask(root)
        assert await results(root) == ["5 4 3 2 1 bottom"]


async def test_a_tool_that_calls_itself_without_an_end_is_told() -> None:
    extension, ran = Extension("deep"), list[int]()

    @extension.tool
    async def down(ctx: Any) -> str:
        """Go down."""
        ran.append(1)
        return str((await ctx.execute_tool(down)).content)

    async with agent([call("down"), "end"], extension) as (_, root):
        assert await ask(root) == "end"
        assert (await results(root))[0].startswith("tool_error: Refused: ")
        assert len(ran) == 33


async def test_without_keys_a_rerun_that_asks_for_something_else_is_told() -> None:
    gate, asked = Gate(), iter([1, 2])

    def code() -> list[Extension]:
        async def act(ctx: Any) -> str:
            result = await ctx.execute_tool("double", {"n": next(asked)})
            await gate.stop()
            return str(result.content)

        return [helpers([]), acting(act, replay="safe")]

    storage = MemoryStorage()
    turns: list[Any] = [call("act"), "end"]
    async with agent(ScriptedModel.by_progress(turns), *code(), storage=storage) as (_, root):
        await root.submit("go")
        await gate.reached.wait()
    gate.go.set()
    async with agent(ScriptedModel.by_progress(turns), *code(), storage=storage) as (harness, root):
        await harness.resume()
        await root.wait_idle()
        (result,) = await results(root)
        assert result.startswith("tool_error: KeyConflict: ")
