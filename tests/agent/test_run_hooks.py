"""Hooks at the answer of a run, and the tasks that they start."""

import asyncio
from typing import Any

import pytest

from perdure import (
    Attachment,
    Budget,
    Continue,
    Extension,
    RunAnswer,
    TaskRun,
    phase,
    task,
)
from perdure.storage.memory import MemoryStorage
from perdure.testing.clock import settle
from perdure.testing.scripted_model import ScriptedModel
from tests.agent.hook_kit import Hooked, NotInstalled, gates, hooked, log, tools
from tests.agent.kit import Gate, agent, ask, reports, said


@pytest.fixture(autouse=True)
def _fresh() -> None:
    gates.clear()
    log.clear()


async def test_an_answer_that_a_hook_sends_back_does_not_stand_and_the_model_goes_on_in_the_same_run() -> None:
    seen: list[RunAnswer] = []

    def review(answer: RunAnswer) -> Any:
        seen.append(answer)
        return Continue(f"not {answer.text}") if answer.text == "one" else None

    model = ScriptedModel(["one", "two"])
    async with agent(model, hooked("on_yield", review, review)) as (_, root):
        submission = await root.submit("go")
        assert (await submission.wait()).text == "two"
        assert await said(root) == ["go", "not one"]
        assert [answer.text for answer in seen] == ["one", "two"]
        assert seen[1].entry_id == (await submission.settled()).answer
        assert [e.kind for e in await root.entries()].count("perdure.assistant") == 2


async def test_the_first_hook_that_decides_ends_the_asking_and_one_that_raises_is_passed_over() -> None:
    first = hooked("on_yield", ValueError("broken"), name="first")
    second = hooked("on_yield", None, name="second")
    third = hooked("on_yield", Continue("again"), name="third")
    fourth = hooked("on_yield", name="fourth")
    async with agent(["one", "two"], first, second, third, fourth) as (harness, root):
        assert await ask(root) == "two"
        assert await said(root) == ["go", "again"]
        everyone = ["first asked", "second asked", "third asked", "fourth asked"]
        assert log == [*everyone[:3], *everyone]
        assert reports(harness) == ["hook first.hook"]


BAD_ANSWERS: dict[str, Any] = {
    "a text": "again",
    "a task alone": Hooked("x"),
    "what is no task": ["x"],
    "a task that is not installed": [NotInstalled()],
    "a task whose input does not fit": [Hooked(name=5)],  # type: ignore[arg-type]
    "a continue with nothing": Continue(""),
    "a continue of a wrong type": Continue(5),  # type: ignore[arg-type]
    "a continue with half a character": Continue("\ud800"),
    "a continue with a file that nobody stored": Continue([Attachment("2" * 64, "image/png")]),
    "a stray cancellation": asyncio.CancelledError(),
}


@pytest.mark.parametrize("name", BAD_ANSWERS)
async def test_an_answer_of_a_hook_that_makes_no_sense_is_reported_and_the_answer_stands(name: str) -> None:
    async with agent(["one", "two"], tools(), hooked("on_yield", BAD_ANSWERS[name])) as (harness, root):
        assert await ask(root) == "one"
        assert len(reports(harness)) == 1
        assert await ask(root, "more") == "two"


async def test_an_empty_list_decides_nothing() -> None:
    async with agent(["one"], hooked("on_yield", [])) as (harness, root):
        assert await ask(root) == "one"
        assert reports(harness) == []


async def test_the_first_task_in_order_that_says_so_sends_the_model_on_when_all_have_ended() -> None:
    wanted = [
        Hooked("a", gate="a"),
        Hooked("b", result={"continue": "from b"}, gate="b"),
        Hooked("c", result={"continue": "from c"}),
    ]
    async with agent(["one", "two"], tools(), hooked("on_yield", wanted)) as (_, root):
        submission = await root.submit("go")
        await settle(100)
        gates["b"].go.set()
        await settle(100)
        assert await said(root) == ["go"]
        assert await submission.status() == "placed"
        gates["a"].go.set()
        assert (await submission.wait()).text == "two"
        assert await said(root) == ["go", "from b"]


async def test_a_task_may_complete_with_continue_itself() -> None:
    @task("test.reviewer", version=1)
    class Reviewer:
        @phase(first=True)
        async def go(self, run: TaskRun) -> Any:
            return run.complete(Continue("do it again"))

    extension = hooked("on_yield", [Reviewer()])
    extension.add(Reviewer)
    async with agent(["one", "two"], extension) as (_, root):
        assert await ask(root) == "two"
        assert await said(root) == ["go", "do it again"]


@pytest.mark.parametrize("result", [None, {}, {"continue": None}, {"continue": 5}, {"continue": []}, "continue", 7])
async def test_tasks_without_a_word_let_the_answer_stand(result: Any) -> None:
    async with agent(["one"], tools(), hooked("on_yield", [Hooked("a", result=result)])) as (_, root):
        assert await ask(root) == "one"
        assert log == ["hooks asked", "a runs"]


async def test_a_persons_word_wins_over_what_a_hook_or_its_task_wants_said() -> None:
    later = [Hooked("review", result={"continue": "from the review"}, gate="review")]
    model = ScriptedModel(["one", "two", "three"])
    async with agent(model, tools(), hooked("on_yield", later)) as (_, root):
        submission = await root.submit("go")
        await settle(100)
        steer = await root.submit("no, this", when_busy="steer")
        gates["review"].go.set()
        assert (await steer.wait()).text == "two"
        assert (await submission.wait()).text == "two"
        assert await said(root) == ["go", "no, this"]


async def test_a_follow_up_waits_until_the_answer_stands() -> None:
    later = [Hooked("review", result={"continue": "from the review"}, gate="review")]
    async with agent(["one", "two", "three"], tools(), hooked("on_yield", later)) as (_, root):
        submission = await root.submit("go")
        await settle(100)
        after = await root.submit("and then?")
        gates["review"].go.set()
        assert (await submission.wait()).text == "two"
        assert (await after.wait()).text == "three"
        assert await said(root) == ["go", "from the review", "and then?"]


async def test_a_budget_bounds_what_hooks_send_back() -> None:
    def always(answer: RunAnswer) -> Continue:
        return Continue("more")

    async with agent([str(n) for n in range(9)], hooked("on_yield", *[always] * 9)) as (_, root):
        await root.configure(budget=Budget(max_turns=3))
        settled = await (await root.submit("go")).settled()
        assert (settled.status, settled.reason, settled.detail) == ("unanswered", "budget", "3 turns of at most 3")
        assert await said(root) == ["go", "more", "more", "more"]


async def test_an_abort_while_a_review_goes_on_ends_both_and_keeps_the_answer() -> None:
    async with agent(["one", "two"], tools(), hooked("on_yield", [Hooked("review", gate="review")])) as (_, root):
        submission = await root.submit("go")
        await settle(100)
        await root.abort()
        assert (await submission.settled()).reason == "aborted"
        assert log == ["hooks asked", "review runs", "review aborted"]
        assert await ask(root, "again") == "two"


async def test_an_answer_is_asked_for_once_though_the_process_ends_between_answer_and_decision() -> None:
    """The hook is asked again, the model is not; what the hook decided before is in a memo."""
    gate, storage = Gate(), MemoryStorage()

    def code(first: bool) -> Extension:
        extension = Extension("hooks")

        @extension.on_yield
        async def review(ctx: Any, answer: RunAnswer) -> Any:
            word = await ctx.memo(f"review.{answer.entry_id}", "first" if first else "second")
            log.append(word)
            if first:
                await gate.stop()
            return Continue(word) if answer.text == "one" else None

        return extension

    model = ScriptedModel(["one", "two"])
    async with agent(model, code(True), storage=storage) as (_, root):
        await root.submit("go")
        await gate.reached.wait()
    async with agent(model, code(False), storage=storage) as (harness, root):
        await harness.resume()
        await root.wait_idle()
        assert await said(root) == ["go", "first"]
        assert len(model.requests) == 2
        assert log == ["first", "first", "second"]
