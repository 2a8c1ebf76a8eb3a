"""Rounds of calls side by side and one after the other; what a result may ask of its run; wraps around tools."""

import asyncio
from typing import Any

import pytest

from perdure import AddTools, Budget, Extension, InvalidValue, Remove, Settings, Terminate, ToolResult
from perdure.models.messages import ToolResultMessage
from perdure.storage.memory import MemoryStorage
from perdure.testing.scripted_model import ScriptedModel, call
from tests.agent.kit import Gate, agent, ask, results


def steps(log: list[str], *, sequential: bool = False) -> Extension:
    """`step` may take its turn, `free` may always."""
    extension = Extension("steps")

    async def work(name: str) -> str:
        log.append(f"{name} begins")
        for _ in range(3):
            await asyncio.sleep(0)
        log.append(f"{name} ends")
        return name

    @extension.tool(sequential=sequential)
    async def step(ctx: Any, n: int) -> str:
        """Step."""
        return await work(f"step {n}")

    @extension.tool
    async def free(ctx: Any, n: int) -> str:
        """Free."""
        return await work(f"free {n}")

    return extension


def mixed() -> list[Any]:
    return [[call("free", {"n": 1}), call("step", {"n": 2}), call("nobody"), call("free", {"n": 3})], "end"]


ONE_BY_ONE = [f"{name} {when}" for name in ("free 1", "step 2", "free 3") for when in ("begins", "ends")]


@pytest.mark.parametrize("by", ["setting", "tool", "nothing"])
async def test_one_tool_that_wants_its_turn_or_the_setting_makes_the_whole_round_sequential(by: str) -> None:
    log: list[str] = []
    settings = Settings(parallel_tools=by != "setting")
    async with agent(mixed(), steps(log, sequential=by == "tool"), settings=settings) as (_, root):
        assert await ask(root) == "end"
        assert await results(root) == ["free 1", "step 2", "tool_unavailable: no tool 'nobody' here", "free 3"]
        if by == "nothing":
            assert log != ONE_BY_ONE
            assert sorted(log) == sorted(ONE_BY_ONE)
        else:
            assert log == ONE_BY_ONE


async def test_the_setting_is_read_when_a_round_begins() -> None:
    log: list[str] = []
    script = [*mixed()[:1], *mixed()]
    async with agent(script, steps(log)) as (harness, root):
        extension = Extension("later")

        @extension.after_tools
        async def change(ctx: Any, round: Any) -> None:
            harness.settings.parallel_tools = False

        harness.agent.registry.install(extension)
        assert await ask(root) == "end"
        assert log[:2] != ONE_BY_ONE[:2]
        assert log[6:] == ONE_BY_ONE


async def test_sixteen_calls_that_end_in_the_same_moment_all_have_their_result_and_one_request_follows() -> None:
    together, extension = asyncio.Barrier(16), Extension("many")

    @extension.tool
    async def many(ctx: Any, n: int) -> int:
        """Many."""
        await together.wait()
        return n

    model = ScriptedModel([[call("many", {"n": n}) for n in range(16)], "end"])
    async with agent(model, extension) as (_, root):
        assert await ask(root) == "end"
        assert await results(root) == [str(n) for n in range(16)]
        assert len(model.requests) == 2


async def test_an_abort_in_a_sequential_round_leaves_the_calls_behind_unstarted_and_the_next_message_is_answered() -> (
    None
):
    gate, log = Gate(), list[str]()
    extension = Extension("turns")

    @extension.tool(sequential=True)
    async def turn(ctx: Any, n: int) -> str:
        """Take a turn."""
        log.append(f"turn {n}")
        if n == 2:
            await gate.stop()
        return f"turn {n}"

    model = ScriptedModel([[call("turn", {"n": n}) for n in (1, 2, 3)], "again"])
    async with agent(model, extension) as (_, root):
        submission = await root.submit("go")
        await gate.reached.wait()
        await root.abort()
        assert (await submission.settled()).reason == "aborted"
        assert await ask(root, "b") == "again"
        assert log == ["turn 1", "turn 2"]
        one, two, three = [m for m in model.requests[-1].messages if isinstance(m, ToolResultMessage)]
        assert one.content == "turn 1"
        assert str(two.content).startswith("aborted: ")
        assert three.is_error


@pytest.mark.parametrize("stop_at", [1, 2, 3])
async def test_a_sequential_round_goes_on_where_a_close_cut_it(stop_at: int) -> None:
    gate, log, storage = Gate(), list[str](), MemoryStorage()

    def code() -> Extension:
        extension = Extension("turns")

        @extension.tool(sequential=True, replay="safe")
        async def turn(ctx: Any, n: int) -> str:
            """Take a turn."""
            log.append(f"turn {n}")
            if n == stop_at:
                await gate.stop()
            return f"turn {n}"

        return extension

    turns: list[Any] = [[call("turn", {"n": n}) for n in (1, 2, 3)], "end"]
    async with agent(ScriptedModel.by_progress(turns), code(), storage=storage) as (_, root):
        await root.submit("go")
        await gate.reached.wait()
    gate.go.set()
    async with agent(ScriptedModel.by_progress(turns), code(), storage=storage) as (harness, root):
        await harness.resume()
        await root.wait_idle()
        expected = [f"turn {n}" for n in (1, 2, 3)]
        assert log == [*expected[:stop_at], *expected[stop_at - 1 :]]
        assert await results(root) == expected


# what a result may ask of its run


def searching(names: list[str]) -> Extension:
    extension = Extension("searching")

    @extension.tool
    async def search_tools(ctx: Any) -> ToolResult:
        """Find tools."""
        return ToolResult("found", control=AddTools(names))

    @extension.tool
    async def deploy(ctx: Any) -> str:
        """Deploy."""
        return "deployed"

    @extension.tool
    async def other(ctx: Any) -> str:
        """Other."""
        return "other"

    return extension


def offered(model: ScriptedModel) -> list[list[str]]:
    return [[tool.name for tool in request.tools] for request in model.requests]


async def test_tools_that_a_result_adds_are_on_offer_from_the_next_request_also_in_forks_and_after_a_restart() -> None:
    storage = MemoryStorage()
    script: list[Any] = [call("search_tools"), call("deploy"), "end"]
    model = ScriptedModel(script)
    async with agent(model, searching(["deploy", "unknown"]), storage=storage, tools=["search_tools"]) as (_, root):
        assert await ask(root) == "end"
        assert await results(root) == ["found", "deployed"]
        assert offered(model) == [["search_tools"], *[["search_tools", "deploy"]] * 2]
        entries = await root.entries()
        question, called = entries[0].id, entries[2].id
        assert [e.kind for e in entries].count("perdure.system") == 2  # told once, and once more when it changed
    model = ScriptedModel(["more", "before", "behind"])
    async with agent(model, searching([]), storage=storage) as (_, root):
        assert await ask(root) == "more"
        await ask(await root.fork(called), "x")
        await ask(await root.fork(entries[-1].id), "y")
        assert offered(model) == [["search_tools", "deploy"], ["search_tools"], ["search_tools", "deploy"]]
        assert question < called


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (None, ["search_tools", "deploy", "other"]),
        (["search_tools"], ["search_tools", "deploy"]),
        (Remove("deploy", "other"), ["search_tools", "deploy"]),
        (Remove("other"), ["search_tools", "deploy"]),
    ],
)
async def test_added_tools_count_against_every_kind_of_selection_and_a_later_choice_counts_more(
    selection: Any, expected: list[str]
) -> None:
    model = ScriptedModel([call("search_tools"), "end", "later"])
    async with agent(model, searching(["deploy"])) as (_, root):
        await root.configure(tools=selection)
        await ask(root)
        assert offered(model)[1] == expected
        await root.configure(tools=["other"])
        await ask(root)
        assert offered(model)[2] == ["other"]


@pytest.mark.parametrize("names", [[], "deploy", [5], [""]])
async def test_control_that_makes_no_sense_is_an_error_result(names: Any) -> None:
    async with agent([call("search_tools"), "end"], searching(names)) as (_, root):
        assert await ask(root) == "end"
        assert (await results(root))[0].startswith("tool_error: the result cannot be stored")


async def test_a_result_hook_may_put_control_on_a_result_and_take_it_off() -> None:
    extension = Extension("hooks")
    script: list[Any] = [call("search_tools"), call("other"), "end"]

    @extension.after_tool(tools=["search_tools"])
    async def take(ctx: Any, result: ToolResult) -> ToolResult:
        return ToolResult(result.content)

    @extension.after_tool(tools=["other"])
    async def put(ctx: Any, result: ToolResult) -> ToolResult:
        return ToolResult(result.content, control=Terminate())

    model = ScriptedModel(script)
    async with agent(model, searching(["deploy"]), extension, tools=["search_tools", "other"]) as (_, root):
        assert (await (await root.submit("go")).settled()).status == "done"
        assert offered(model) == [["search_tools", "other"]] * 2


# budgets


async def test_a_conversation_has_a_budget_of_its_own_in_place_of_the_hosts() -> None:
    log: list[str] = []
    turns: list[Any] = [call("free", {"n": n}) for n in range(9)]
    settings = Settings(budget=Budget(max_turns=1))
    async with agent(turns, steps(log), settings=settings, budget=Budget(max_turns=2)) as (harness, root):
        own = await (await root.submit("go")).settled()
        assert (own.reason, own.detail) == ("budget", "2 turns of at most 2")
        assert (await root.agent()).budget == Budget(max_turns=2)
        await root.configure(budget=None)
        hosts = await (await root.submit("go")).settled()
        assert hosts.detail == "1 turns of at most 1"
        await root.configure(budget=Budget())
        harness.settings.budget = Budget(max_turns=1)
        assert (await (await root.submit("go")).settled()).reason == "failed"  # out of turns of the script: no bound


@pytest.mark.parametrize(
    "budget",
    [
        5,
        {"max_turns": 3},
        Budget(max_turns=-1),
        Budget(max_turns=2.5),  # type: ignore[arg-type]
        Budget(max_cost=float("nan")),
    ],
)
async def test_what_is_no_budget_is_refused(budget: Any) -> None:
    async with agent([]) as (_, root):
        with pytest.raises(InvalidValue):
            await root.configure(budget=budget)


async def test_a_budget_survives_a_restart_and_a_fork_keeps_it() -> None:
    storage = MemoryStorage()
    async with agent(["one"], storage=storage, budget=Budget(max_cost=1.5, max_tokens=100)) as (_, root):
        await ask(root)
    async with agent([], storage=storage) as (_, root):
        fork = await root.fork((await root.entries())[-1].id)
        for conversation in (root, fork):
            assert (await conversation.agent()).budget == Budget(max_cost=1.5, max_tokens=100)
        assert (await (await root.submit("x")).settled()).detail == "110 tokens of at most 100"
