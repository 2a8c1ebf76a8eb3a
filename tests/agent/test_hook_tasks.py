"""Tasks that hooks start behind a round of tools and behind a run."""

import asyncio
from typing import Any

import pytest

from perdure import (
    ROOT,
    Extension,
    Next,
    RunAnswer,
    TaskRun,
    Terminate,
    ToolResult,
    ToolRound,
    phase,
    task,
)
from perdure.testing.clock import settle
from perdure.testing.scripted_model import ScriptedModel, call
from tests.agent.hook_kit import Hooked, gates, hooked, log, tools
from tests.agent.kit import Gate, agent, ask, reports, results, said


@pytest.fixture(autouse=True)
def _fresh() -> None:
    gates.clear()
    log.clear()


async def test_after_tools_sees_the_round_in_the_order_of_its_calls_also_calls_that_never_ran() -> None:
    seen: list[ToolRound] = []
    script = [[call("echo", {"text": "a"}), call("missing"), call("echo", {"text": "b"})], "end"]
    async with agent(script, tools(), hooked("after_tools", seen.append)) as (_, root):
        assert await ask(root) == "end"
        (found,) = seen
        assert [result.content for result in found.results] == ["a", "tool_unavailable: no tool 'missing' here", "b"]
        assert found.message.stop == "tool_calls"


async def test_all_hooks_are_asked_after_a_round_and_the_next_request_waits_for_all_their_tasks() -> None:
    first = hooked("after_tools", [Hooked("a", gate="a")], name="first")
    second = hooked("after_tools", ValueError("broken"), name="second")
    third = hooked("after_tools", [Hooked("b"), Hooked("c")], name="third")
    model = ScriptedModel([call("echo", {"text": "x"}), "end"])
    async with agent(model, tools(), first, second, third) as (harness, root):
        submission = await root.submit("go")
        await settle(100)
        assert log == ["first asked", "second asked", "third asked", "a runs", "b runs", "c runs"]
        assert len(model.requests) == 1
        gates["a"].go.set()
        assert (await submission.wait()).text == "end"
        assert reports(harness) == ["hook second.hook"]


@pytest.mark.parametrize("result", [{"terminate": True}, {"terminate": False}, None, {"continue": "x"}])
async def test_a_task_behind_a_round_may_end_the_run_with_the_answer_that_called(result: Any) -> None:
    wanted = [Hooked("a"), Hooked("b", result=result)]
    async with agent([call("echo", {"text": "x"}), "end"], tools(), hooked("after_tools", wanted)) as (_, root):
        settled = await (await root.submit("go")).settled()
        assert settled.status == "done"
        entries = {e.id: e for e in await root.entries()}
        ended = b"tool_call" in entries[settled.answer].messages  # type: ignore[index]
        assert ended == (result == {"terminate": True})


async def test_a_task_behind_a_round_may_complete_with_terminate_itself() -> None:
    @task("test.stopper", version=1)
    class Stopper:
        @phase(first=True)
        async def go(self, run: TaskRun) -> Any:
            return run.complete(Terminate())

    extension = hooked("after_tools", [Stopper()])
    extension.add(Stopper)
    model = ScriptedModel([call("echo", {"text": "x"}), "end"])
    async with agent(model, tools(), extension) as (_, root):
        assert (await (await root.submit("go")).settled()).status == "done"
        assert len(model.requests) == 1


async def test_a_steer_that_comes_while_such_a_task_runs_joins_the_next_request() -> None:
    model = ScriptedModel([call("echo", {"text": "x"}), "end"])
    async with agent(model, tools(), hooked("after_tools", [Hooked("a", gate="a")])) as (_, root):
        submission = await root.submit("go")
        await settle(100)
        steer = await root.submit("go on", when_busy="steer")
        gates["a"].go.set()
        assert (await submission.wait()).text == (await steer.wait()).text == "end"
        assert await said(root) == ["go", "go on"]


async def test_an_abort_reaches_the_tasks_behind_a_round() -> None:
    script = [call("echo", {"text": "x"}), "again"]
    async with agent(script, tools(), hooked("after_tools", [Hooked("a", gate="a")])) as (_, root):
        submission = await root.submit("go")
        await settle(100)
        await root.abort()
        assert (await submission.settled()).reason == "aborted"
        assert log[-1] == "a aborted"
        assert await results(root) == ["x"]
        assert await ask(root, "b") == "again"


# after_run


async def test_tasks_behind_a_run_begin_when_it_is_settled_and_hold_up_idleness_but_not_the_next_run() -> None:
    seen: list[RunAnswer] = []

    def deliver(answer: RunAnswer) -> Any:
        seen.append(answer)
        return [Hooked("deliver", gate="deliver")]

    async with agent(["one", "two"], tools(), hooked("after_run", deliver)) as (_, root):
        submission = await root.submit("go")
        assert (await submission.wait()).text == "one"
        assert seen[0].entry_id == (await submission.settled()).answer
        assert await ask(root, "next") == "two"
        idle = asyncio.ensure_future(root.wait_idle())
        await settle(100)
        assert not idle.done()
        assert (await root.live())["run"] is None
        gates["deliver"].go.set()
        await idle
        assert log.count("deliver runs") == 1


async def test_an_abort_behind_a_run_stops_its_tasks_and_not_what_was_answered() -> None:
    async with agent(["one", "two"], tools(), hooked("after_run", [Hooked("deliver", gate="d")])) as (_, root):
        submission = await root.submit("go")
        assert (await submission.wait()).text == "one"
        await settle(50)
        await root.abort()
        assert log[-1] == "deliver aborted"
        assert (await submission.settled()).status == "done"
        assert await ask(root, "b") == "two"


async def test_an_abort_of_what_a_run_left_behind_leaves_the_next_run_alone() -> None:
    gate, slow = Gate(), Extension("slow")

    @slow.tool
    async def wait(ctx: Any) -> str:
        """Wait."""
        await gate.stop()
        return "waited"

    script = ["one", call("wait"), "two"]
    async with agent(script, tools(), slow, hooked("after_run", [Hooked("deliver", gate="d")])) as (harness, root):
        first = await root.submit("go")
        await first.wait()
        second = await root.submit("next")
        await gate.reached.wait()
        async with harness.session.transaction() as tx:
            await tx.abort_task(min(task.id for task in harness.tasks.index.in_foreground(root.id)))
        await settle(100)
        assert log[-1] == "deliver aborted"
        gate.go.set()
        assert (await second.wait()).text == "two"


async def test_a_run_without_an_answer_starts_nothing_behind_it() -> None:
    hooks = hooked("after_run", [Hooked("a")])
    async with agent(["", ""], tools(), hooks) as (_, root):
        assert (await (await root.submit("go")).settled()).reason == "empty"
        assert log == []


async def test_a_round_that_ends_its_run_has_an_answer_that_stands() -> None:
    extension = Extension("ending")

    @extension.tool
    async def stop(ctx: Any) -> Any:
        """Stop."""
        return ToolResult("stopped", control=Terminate())

    async with agent([call("stop")], tools(), extension, hooked("after_run", [Hooked("a")])) as (_, root):
        assert (await (await root.submit("go")).settled()).status == "done"
        await root.wait_idle()
        assert log == ["hooks asked", "a runs"]


@task("talk.tell", version=1)
class Tell:
    """Says something to its conversation, once however often it runs."""

    @phase(first=True)
    async def begin(self, run: TaskRun) -> Next[Any]:
        mine, other = run.conversation(), run.conversation(ROOT)
        first = await mine.submit("late news", request_id=f"tell:{run.task_id}")
        again = await other.submit("late news", request_id=f"tell:{run.task_id}")
        return run.complete([mine.id, other.id, first.id == again.id])


async def test_a_task_talks_to_a_conversation_in_its_own_name() -> None:
    async with agent(["noted"], Extension("talk", tasks=[Tell])) as (harness, root):
        await harness.resume()
        async with harness.session.transaction() as tx:
            id = tx.create_task(Tell(), conversation=root.id, background=True)
        outcome = await harness.tasks.wait(id)
        assert outcome.result(list[Any]) == [root.id, root.id, True]
        await root.wait_idle()
        assert [message.text for message in await root.messages()] == ["late news", "noted"]
