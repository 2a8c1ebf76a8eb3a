"""Asking people: a tool that waits for an answer, and a gate that waits for a yes."""

import asyncio
from typing import Any

import pytest

from perdure import (
    DAY,
    HOUR,
    Block,
    Extension,
    Harness,
    HookContext,
    InvalidDefinition,
    InvalidValue,
    Registry,
    Sleep,
    ToolCall,
    ToolContext,
)
from perdure.harness.questions import NoQuestion, OpenQuestion
from perdure.storage.memory import MemoryStorage
from perdure.testing.clock import FakeClock, settle
from perdure.testing.scripted_model import ScriptedModel, call
from perdure.tools import PersonAnswer, Question, approvals, ask, ask_person
from tests.agent.kit import agent, reports, results

ASKS: list[Any] = [call("ask_person", {"question": "Which color?", "choices": ["red", "blue"]}), "fine"]
BUYS: list[Any] = [call("buy", {"what": "tea"}), "fine"]


def shop(ran: list[Any]) -> Extension:
    ext = Extension("shop")

    @ext.tool
    async def buy(ctx: ToolContext[Any], what: str) -> str:
        """Buy."""
        ran.append(what)
        return f"bought {what}"

    return ext


async def the_question(harness: Harness) -> OpenQuestion:
    """The one that is open."""
    await settle()
    (found,) = await harness.questions()
    assert isinstance(found, OpenQuestion)
    return found


async def test_the_model_asks_and_reads_the_answer() -> None:
    clock = FakeClock()
    async with agent(ASKS, ask_person, clock=clock) as (harness, root):
        submission = await root.submit("paint it")
        asked = await the_question(harness)
        assert (asked.text, asked.choices, asked.kind) == ("Which color?", ("red", "blue"), "question")
        assert (asked.conversation_id, asked.since, asked.until) == (root.id, clock.now(), clock.now() + DAY)
        assert harness.wake() == (False, clock.now() + DAY)
        assert await harness.answer(asked.id, "blue", note="the dark one", by="ana") == "delivered"
        assert (await submission.wait()).text == "fine"
        assert await results(root) == ["blue\nthe dark one"]
        assert await harness.questions() == []


async def test_without_an_answer_the_model_reads_that() -> None:
    clock = FakeClock()
    turns = [call("ask_person", {"question": "Now?", "wait_hours": 2}), "alone then"]
    async with agent(turns, ask_person, clock=clock) as (harness, root):
        submission = await root.submit("go")
        asked = await the_question(harness)
        await clock.advance(2 * HOUR)
        assert (await submission.wait()).text == "alone then"
        assert await results(root) == ["no answer within 2 hours"]
        assert await harness.answer(asked.id, "yes") == "closed"


async def test_the_first_answer_counts_and_must_be_one_of_the_choices() -> None:
    async with agent(ASKS, ask_person) as (harness, root):
        await root.submit("paint it")
        asked = await the_question(harness)
        for wrong in ("green", True):
            assert await harness.answer(asked.id, wrong) == "invalid"
        for no_answer in ("", "x" * 30_000):
            with pytest.raises(InvalidValue):
                await harness.answer(asked.id, no_answer)
        assert await the_question(harness) == asked
        both = await asyncio.gather(harness.answer(asked.id, "red"), harness.answer(asked.id, "blue"))
        assert list(both) == ["delivered", "duplicate"]
        await root.wait_idle()
        assert await results(root) == ["red"]
        assert await harness.answer(asked.id, "blue") == "closed"


async def test_ids_that_nobody_asked_under_are_refused() -> None:
    async with agent(ASKS, ask_person) as (harness, root):
        await root.submit("paint it")
        asked = await the_question(harness)
        assert await harness.answer(f"{asked.task_id}-other", "red") == "not_found"
        assert await harness.answer("4711-answer", "red") == "not_found"
        for odd in ("", "answer", "12", "12-", "-1-answer", "x-answer", "9" * 40 + "-answer", "１２-answer"):
            with pytest.raises(NoQuestion):
                await harness.answer(odd, "red")
        assert await the_question(harness) == asked


async def test_a_stop_takes_the_question_away() -> None:
    async with agent(ASKS, ask_person) as (harness, root):
        await root.submit("paint it")
        asked = await the_question(harness)
        await root.abort()
        assert await harness.questions() == []
        assert await harness.answer(asked.id, "red") == "closed"


async def test_a_question_goes_in_the_commit_that_answers_it_and_watchers_see_both() -> None:
    async with agent(ASKS, ask_person) as (harness, root):
        await root.submit("paint it")
        asked = await the_question(harness)
        async with harness.watch_tasks() as watch:
            row = watch.value["tasks"][str(asked.task_id)]
            assert [(q["id"], q["choices"]) for q in row["questions"]] == [(asked.id, ["red", "blue"])]
            assert await harness.answer(asked.id, "red") == "delivered"
            await anext(watch)
            assert watch.value["tasks"][str(asked.task_id)]["questions"] == []
        await root.wait_idle()


async def test_a_question_outlives_its_process_and_is_listed_before_anything_runs() -> None:
    storage = MemoryStorage()
    async with agent(ASKS, ask_person, storage=storage) as (harness, root):
        await root.submit("paint it")
        asked = await the_question(harness)
        left = storage.copy()
    async with Harness.open(left, registry=Registry([ask_person]), models=ScriptedModel(["fine"])) as harness:
        assert await harness.questions() == [asked]
        assert await harness.answer(asked.id, "red") == "delivered"
        root = await harness.root()
        await root.wait_idle()
        assert await results(root) == ["red"]


async def test_a_deadline_that_nobody_noticed_closes_the_question_too() -> None:
    storage, clock = MemoryStorage(), FakeClock()
    async with agent(ASKS, ask_person, storage=storage, clock=clock) as (harness, root):
        await root.submit("paint it")
        asked = await the_question(harness)
        left = storage.copy()
    late = FakeClock(clock.now() + DAY)
    async with Harness.open(left, registry=Registry([ask_person]), models=ScriptedModel(["x"]), clock=late) as harness:
        assert await harness.questions() == []
        assert await harness.answer(asked.id, "red") == "closed"


# approvals


async def test_a_call_waits_for_a_yes() -> None:
    ran: list[Any] = []
    clock = FakeClock()
    async with agent(BUYS, shop(ran), approvals(tools=["buy"], deadline=HOUR), clock=clock) as (harness, root):
        submission = await root.submit("buy tea")
        asked = await the_question(harness)
        assert (asked.kind, asked.tool, asked.arguments) == ("approval", "buy", {"what": "tea"})
        assert (asked.text, asked.until) == ("Run buy?", clock.now() + HOUR)
        assert ran == []
        assert await harness.answer(asked.id, "perhaps") == "invalid"
        assert await harness.answer(asked.id, "yes") == "delivered"
        await submission.wait()
    assert ran == ["tea"]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (False, "blocked: not approved"),
        ("no", "blocked: not approved: too dear"),
        (None, "blocked: nobody approved it within 1 hour"),
    ],
)
async def test_a_no_and_a_silence_block_the_call(given: Any, text: str) -> None:
    ran: list[Any] = []
    clock = FakeClock()
    async with agent(BUYS, shop(ran), approvals(tools=["buy"], deadline=HOUR), clock=clock) as (harness, root):
        submission = await root.submit("buy tea")
        asked = await the_question(harness)
        if given is None:
            await clock.advance(HOUR)
        else:
            await harness.answer(asked.id, given, note="too dear" if given == "no" else "")
        await submission.wait()
        assert await results(root) == [text]
        assert await harness.questions() == []
    assert ran == []


async def test_only_what_the_function_finds_risky_is_asked_about() -> None:
    ran: list[Any] = []
    seen: list[str] = []

    async def risky(made: ToolCall) -> bool | str:
        seen.append(made.name)
        return "It is expensive." if made.arguments["what"] == "gold" else False

    turns = [[call("buy", {"what": "tea"}), call("buy", {"what": "gold"})], "fine"]
    async with agent(turns, shop(ran), approvals(risky)) as (harness, root):
        await root.submit("buy both")
        asked = await the_question(harness)
        assert asked.text == "Run buy? It is expensive."
        assert ran == ["tea"]
        await harness.answer(asked.id, True)
        await root.wait_idle()
    assert ran == ["tea", "gold"]
    assert seen == ["buy", "buy", "buy"]


@pytest.mark.parametrize("nonsense", [None, 1, "", [], "raise"])
async def test_a_function_that_gives_nonsense_blocks_the_call(nonsense: Any) -> None:
    ran: list[Any] = []

    def broken(made: ToolCall) -> Any:
        if nonsense == "raise":
            raise RuntimeError("no policy")
        return nonsense

    async with agent(BUYS, shop(ran), approvals(broken)) as (harness, root):
        await (await root.submit("buy tea")).wait()
        (text,) = await results(root)
        assert text.startswith("blocked: gate ")
        assert len(reports(harness)) == 1
    assert ran == []


async def test_other_arguments_are_another_question_and_the_old_one_is_gone() -> None:
    ran: list[Any] = []
    changes = Extension("changes")
    new: list[str] = []

    @changes.before_tool
    async def change(ctx: HookContext, made: ToolCall) -> ToolCall | None:
        return made.replace(arguments={"what": new[0]}) if new else None

    clock = FakeClock()
    async with agent(BUYS, shop(ran), changes, approvals(tools=["buy"]), clock=clock) as (harness, root):
        submission = await root.submit("buy tea")
        first = await the_question(harness)
        new.append("gold")
        await clock.advance(HOUR)
        await harness.answer(first.id, True)
        second = await the_question(harness)
        assert ran == [], "a yes to tea is none to gold"
        assert second.arguments == {"what": "gold"}
        assert second.id != first.id
        assert second.since == first.since + HOUR
        await harness.answer(second.id, True)
        await submission.wait()
    assert ran == ["gold"]


async def test_asking_again_changes_neither_the_id_nor_the_times() -> None:
    ran: list[Any] = []
    clock = FakeClock()
    async with agent(BUYS, shop(ran), approvals(tools=["buy"]), clock=clock) as (harness, root):
        submission = await root.submit("buy tea")
        asked = await the_question(harness)
        await clock.advance(HOUR)
        harness.agent.registry.install(Extension("news"))  # every call at a gate looks again
        await settle()
        assert await the_question(harness) == asked
        await harness.answer(asked.id, True)
        await submission.wait()
    assert ran == ["tea"]


async def test_an_answer_that_comes_while_the_gates_are_asked_again_is_kept() -> None:
    ran: list[Any] = []
    storage = MemoryStorage()
    async with agent(BUYS, shop(ran), approvals(tools=["buy"]), storage=storage) as (harness, root):
        submission = await root.submit("buy tea")
        asked = await the_question(harness)
        async with harness.session.transaction():
            harness.agent.registry.install(Extension("news"))
        assert await harness.answer(asked.id, True) == "delivered"
        await submission.wait()
    assert ran == ["tea"]


async def test_two_approvals_ask_two_people() -> None:
    ran: list[Any] = []
    gates = [approvals(tools=["buy"], name=name) for name in ("money", "taste")]
    async with agent(BUYS, shop(ran), *gates) as (harness, root):
        submission = await root.submit("buy tea")
        first = await the_question(harness)
        await harness.answer(first.id, True)
        second = await the_question(harness)
        assert ran == []
        assert second.id != first.id
        await harness.answer(second.id, True)
        await submission.wait()
    assert ran == ["tea"]


async def test_arguments_too_large_to_be_shown_are_cut_but_all_are_approved() -> None:
    ran: list[Any] = []
    turns = [call("buy", {"what": "é" * 100_000}), "fine"]
    async with agent(turns, shop(ran), approvals(tools=["buy"])) as (harness, root):
        submission = await root.submit("buy")
        asked = await the_question(harness)
        assert asked.arguments is None
        assert len(asked.text.encode()) < 34_000
        assert asked.text.endswith(" bytes more]")
        await harness.answer(asked.id, True)
        await submission.wait()
    assert ran == ["é" * 100_000]


def test_approvals_that_make_no_sense_are_refused() -> None:
    wrong: list[dict[str, Any]] = [
        {},
        {"when": 7},
        {"tools": ["buy"], "deadline": 0},
        {"tools": ["buy"], "deadline": float("nan")},
    ]
    for odd in wrong:
        with pytest.raises(InvalidDefinition):
            approvals(**odd)


# questions of one's own


async def test_a_tool_of_ones_own_asks_several_people_at_once() -> None:
    ext = Extension("poll")

    @ext.tool(replay="safe")
    async def poll(ctx: ToolContext[Any]) -> Any:
        """Ask two."""
        states = [await ctx.read_signal(PersonAnswer, key) for key in ("ana", "ben")]
        missing = [key for key, state in zip(("ana", "ben"), states, strict=True) if state is None]
        if missing:
            return Sleep(signals=[ask(key, Question(f"{key}: tea or coffee?")) for key in missing])
        return " ".join(str(state.value.answer) for state in states if state is not None)

    async with agent([call("poll"), "fine"], ext) as (harness, root):
        submission = await root.submit("ask")
        await settle()
        ana, ben = await harness.questions()
        assert (ana.key, ben.key) == ("ana", "ben")
        await harness.answer(ben.id, "tea")
        assert (await the_question(harness)).key == "ana"
        await harness.answer(ana.id, "coffee")
        await submission.wait()
        assert await results(root) == ["coffee tea"]


@pytest.mark.parametrize(
    "question",
    [
        Question(""),
        Question("?", choices=("",)),
        Question("?", kind="\ud800"),
        Question("?", arguments="x" * 70_000),
        Question(7),  # type: ignore[arg-type]
        "what?",
    ],
)
async def test_a_question_that_cannot_be_shown_is_no_park(question: Any) -> None:
    ext = Extension("odd")

    @ext.tool
    async def odd(ctx: ToolContext[Any]) -> Any:
        """Ask oddly."""
        return Sleep(signals=[ask("q", question)])

    async with agent([call("odd"), "fine"], ext) as (harness, root):
        await (await root.submit("go")).wait()
        assert (await results(root))[0].startswith("invalid_park: ")
        assert await harness.questions() == []


async def test_a_gate_of_ones_own_may_ask_in_its_own_words() -> None:
    ran: list[Any] = []
    ext = Extension("doorman")

    @ext.before_tool
    async def doorman(ctx: HookContext, made: ToolCall) -> Any:
        state = await ctx.read_signal(PersonAnswer, "who")
        if state is None:
            return Sleep(signals=[ask("who", Question("Who pays?", choices=("me", "you")))])
        return None if state.value.answer == "me" else Block("you pay")

    async with agent(BUYS, shop(ran), ext) as (harness, root):
        submission = await root.submit("buy tea")
        asked = await the_question(harness)
        await harness.answer(asked.id, "you")
        await submission.wait()
        assert await results(root) == ["blocked: you pay"]
    assert ran == []
