"""Gates: `before_tool` hooks that hold a call back until they are answered."""

import asyncio
from typing import Any

from perdure import Block, Extension, Harness, HookContext, Registry, Signal, Sleep, TaskId, ToolCall
from perdure.base import jsonvalue
from perdure.storage.memory import MemoryStorage
from perdure.testing.clock import FakeClock, settle
from perdure.testing.scripted_model import ScriptedModel, call
from tests.agent.kit import agent, results

Approval: Signal[bool] = Signal("g.approval", schema=bool)
DAY = 86_400.0
HOUR = 3600.0


def shop(ran: list[Any]) -> Extension:
    ext = Extension("shop", signals=[Approval])

    @ext.tool
    async def buy(ctx: Any, what: str) -> str:
        """Buy."""
        ran.append(what)
        return f"bought {what}"

    return ext


def approvals(passes: list[str], name: str = "approvals") -> Extension:
    """Asks a person once for each set of arguments, for a day."""
    ext = Extension(name)

    @ext.before_tool
    async def gate(ctx: HookContext, asked: ToolCall) -> Any:
        key = jsonvalue.canonical(asked.arguments).decode()
        state = await ctx.read_signal(Approval, key)
        until = await ctx.memo(f"approvals.until.{key}", ctx.now() + DAY)
        passes.append("asked" if state is None else "expired" if state.expired else str(state.value))
        if state is None:
            return Sleep(signals=[Approval.key(key)], until=until)
        if state.expired:
            return Block("no approval within a day")
        return None if state.value else Block("not approved")

    return ext


KEY = jsonvalue.canonical({"what": "tea"}).decode()
TURNS: list[Any] = [call("buy", {"what": "tea"}), "fine"]


async def held(harness: Harness) -> TaskId:
    """The call that sleeps at a gate."""
    await settle()
    (found,) = [t.id for t in harness.tasks.index.tasks.values() if t.kind == "perdure.tool"]
    return found


async def test_a_call_waits_for_a_yes_and_then_runs_once() -> None:
    ran: list[Any] = []
    passes: list[str] = []
    clock = FakeClock()
    async with agent(TURNS, shop(ran), approvals(passes), clock=clock) as (harness, root):
        submission = await root.submit("buy tea")
        id = await held(harness)
        assert (await root.live())["tools"][str(id)]["status"] == "sleeping"
        assert harness.wake() == (False, clock.now() + DAY)
        assert ran == []
        await clock.advance(HOUR)
        assert await harness.signal(id, Approval, KEY, True) == "delivered"
        assert (await submission.wait()).text == "fine"
    assert ran == ["tea"]
    assert passes == ["asked", "True"]


async def test_a_no_and_a_silence_block_it() -> None:
    for answer, text in ((False, "blocked: not approved"), (None, "blocked: no approval within a day")):
        ran: list[Any] = []
        clock = FakeClock()
        async with agent(TURNS, shop(ran), approvals([]), clock=clock) as (harness, root):
            submission = await root.submit("buy tea")
            id = await held(harness)
            if answer is None:
                await clock.advance(DAY)
            else:
                await harness.signal(id, Approval, KEY, answer)
            await submission.wait()
            assert await results(root) == [text]
        assert ran == []


async def test_every_gate_is_asked_again_at_every_wake() -> None:
    ran: list[Any] = []
    clock = FakeClock()
    evening, morning = clock.now() + 2 * HOUR, clock.now() + 10 * HOUR
    seen: list[float] = []
    quiet = Extension("quiet")

    @quiet.before_tool
    async def hours(ctx: HookContext, asked: ToolCall) -> Any:
        seen.append(ctx.now())
        return Sleep(until=morning) if evening <= ctx.now() < morning else None

    passes: list[str] = []
    async with agent(TURNS, shop(ran), quiet, approvals(passes), clock=clock) as (harness, root):
        submission = await root.submit("buy tea")
        id = await held(harness)
        await clock.advance(3 * HOUR)
        await harness.signal(id, Approval, KEY, True)
        await settle()
        assert ran == [], "approved in the quiet hours"
        assert harness.wake() == (False, morning)
        await clock.advance(7 * HOUR)
        await submission.wait()
    assert ran == ["tea"]
    assert passes == ["asked", "True"]
    assert len(seen) == 3


async def test_other_arguments_are_another_question() -> None:
    ran: list[Any] = []
    changes = Extension("changes")
    new: list[str] = []

    @changes.before_tool
    async def change(ctx: HookContext, asked: ToolCall) -> Any:
        return asked.replace(arguments={"what": new[0]}) if new else None

    async with agent(TURNS, shop(ran), changes, approvals([])) as (harness, root):
        submission = await root.submit("buy tea")
        id = await held(harness)
        new.append("gold")
        await harness.signal(id, Approval, KEY, True)
        await settle()
        assert ran == [], "gold was not approved"
        await harness.signal(id, Approval, jsonvalue.canonical({"what": "gold"}).decode(), True)
        await submission.wait()
    assert ran == ["gold"]


async def test_a_gate_that_is_uninstalled_no_longer_holds_the_call() -> None:
    ran: list[Any] = []
    async with agent(TURNS, shop(ran), approvals([])) as (harness, root):
        submission = await root.submit("buy tea")
        await held(harness)
        harness.agent.registry.uninstall("approvals")
        assert harness.wake().active, "a pass is owed"
        assert (await submission.wait()).text == "fine"
    assert ran == ["tea"]


async def test_a_gate_that_is_installed_meanwhile_is_asked_too() -> None:
    ran: list[Any] = []
    async with agent(TURNS, shop(ran), approvals([])) as (harness, root):
        submission = await root.submit("buy tea")
        id = await held(harness)
        never = Extension("never")

        @never.before_tool
        async def no(ctx: HookContext, asked: ToolCall) -> Any:
            return Block("never")

        harness.agent.registry.install(never)
        await settle()
        await harness.signal(id, Approval, KEY, True)
        await submission.wait()
        assert await results(root) == ["blocked: never"]
    assert ran == []


async def test_a_change_while_the_gates_are_asked_makes_them_be_asked_again() -> None:
    ran: list[Any] = []
    asked_now, go_on = asyncio.Event(), asyncio.Event()
    slow = Extension("slow")

    @slow.before_tool
    async def think(ctx: HookContext, asked: ToolCall) -> Any:
        asked_now.set()
        await go_on.wait()
        return Sleep(until=ctx.now() + DAY)

    async with agent(TURNS, shop(ran), slow) as (harness, root):
        submission = await root.submit("buy tea")
        await asked_now.wait()
        harness.agent.registry.uninstall("slow")
        await settle()
        go_on.set()
        assert (await submission.wait()).text == "fine"
    assert ran == ["tea"]


async def test_the_first_pass_after_an_open_asks_again() -> None:
    ran: list[Any] = []
    passes: list[str] = []
    storage, clock = MemoryStorage(), FakeClock()
    async with agent(TURNS, shop(ran), approvals(passes), storage=storage, clock=clock) as (harness, root):
        await root.submit("buy tea")
        id = await held(harness)
        left = storage.copy()
    clock = FakeClock(clock.now())
    registry = Registry([shop(ran), approvals(passes)])
    async with Harness.open(left, registry=registry, models=ScriptedModel(["fine"]), clock=clock) as harness:
        assert harness.wake() == (True, clock.now() + DAY), "the pass is owed"
        await harness.resume()
        await settle()
        assert passes == ["asked", "asked"]
        assert harness.wake() == (False, clock.now() + DAY), "its deadline is the one of the first pass"
        await harness.signal(id, Approval, KEY, True)
        await (await harness.root()).wait_idle()
    assert ran == ["tea"]


async def test_after_an_open_past_the_deadline_the_question_has_expired() -> None:
    ran: list[Any] = []
    storage, clock = MemoryStorage(), FakeClock()
    async with agent(TURNS, shop(ran), approvals([]), storage=storage, clock=clock) as (harness, root):
        await root.submit("buy tea")
        await held(harness)
        left = storage.copy()
    clock = FakeClock(clock.now() + 2 * DAY)
    registry = Registry([shop(ran), approvals([])])
    async with Harness.open(left, registry=registry, models=ScriptedModel(["fine"]), clock=clock) as harness:
        root = await harness.root()
        await harness.resume()
        await root.wait_idle()
        assert await results(root) == ["blocked: no approval within a day"]
    assert ran == []


async def test_a_gate_whose_sleep_cannot_be_blocks_the_call() -> None:
    parks: list[Any] = [Sleep(), Sleep(signals=["x"]), Sleep(until="soon")]  # type: ignore[list-item,arg-type]
    for park in parks:
        ran: list[Any] = []
        odd = Extension("odd")

        @odd.before_tool
        async def gate(ctx: HookContext, asked: ToolCall, park: Any = park) -> Any:
            return park

        async with agent(TURNS, shop(ran), odd) as (_, root):
            await (await root.submit("buy tea")).wait()
            (text,) = await results(root)
        assert text.startswith("blocked: gate odd")
        assert ran == []


async def test_a_stop_while_it_is_held_back_runs_nothing() -> None:
    ran: list[Any] = []
    async with agent(TURNS, shop(ran), approvals([])) as (harness, root):
        await root.submit("buy tea")
        id = await held(harness)
        await root.abort()
        assert await harness.signal(id, Approval, KEY, True) == "closed"
        assert (await results(root))[0].startswith("aborted: ")
    assert ran == []


async def test_a_gate_that_does_not_answer_is_named_with_its_age() -> None:
    ran: list[Any] = []
    clock, thinking, answer = FakeClock(), Extension("thinking"), asyncio.Event()

    @thinking.before_tool
    async def ponder(ctx: HookContext, asked: ToolCall) -> None:
        await answer.wait()

    def gates(harness: Harness) -> list[Any]:
        return [row["gate"] for row in harness.inspect()["tasks"] if "gate" in row]

    async with agent(TURNS, shop(ran), thinking, clock=clock) as (harness, root):
        submission = await root.submit("buy tea")
        await settle()
        await clock.jump_to(clock.now() + 5 * HOUR)
        (shown,) = gates(harness)
        assert "thinking" in shown["name"]
        assert shown["seconds"] == 5 * HOUR
        assert ran == []
        answer.set()
        await submission.wait()
        assert gates(harness) == []
    assert ran == ["tea"]
