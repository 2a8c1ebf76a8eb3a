"""What a tool is handed: tasks it owns, memos, details, documents, other conversations."""

import asyncio
from typing import Any

import pytest

from perdure import Completed, Document, Extension, InvalidValue, TaskRun, entry, phase, task
from perdure.testing.clock import settle
from perdure.testing.scripted_model import call
from tests.agent.kit import agent, ask, results

Notes: Document[Any] = Document("test.notes", dict[str, int], initial=dict)


@task("test.child", version=1)
class Child:
    hang: bool

    @phase(first=True)
    async def go(self, run: TaskRun) -> Any:
        if self.hang:
            await asyncio.Event().wait()
        return run.complete("grown")


@entry("test.broken")
class Broken:
    def to_model(self) -> Any:
        return [{"role": "nobody"}]


def acting(act: Any) -> Extension:
    extension = Extension("acting", tasks=[Child])
    extension.add(Notes)

    @extension.tool(name="act")
    async def run(ctx: Any) -> str:
        """Act."""
        return str(await act(ctx))

    return extension


async def test_a_call_creates_a_task_and_waits_for_it() -> None:
    async def act(ctx: Any) -> Any:
        outcome = await ctx.wait_task(await ctx.create_task(Child(hang=False)))
        assert isinstance(outcome, Completed)
        return outcome.result(str)

    async with agent([call("act"), "end"], acting(act)) as (_, root):
        assert await ask(root) == "end"
        assert await results(root) == ["grown"]


async def test_a_task_that_a_call_owns_is_aborted_with_it() -> None:
    made: list[Any] = []

    async def act(ctx: Any) -> Any:
        made.append(await ctx.create_task(Child(hang=True)))
        await ctx.wait_task(made[0])

    async with agent([call("act")], acting(act)) as (harness, root):
        await root.submit("a")
        await settle(200)
        await root.abort()
        assert (await harness.tasks.wait(made[0])).status == "aborted"


async def test_a_memo_keeps_its_first_value_and_is_typed_on_demand() -> None:
    async def act(ctx: Any) -> Any:
        found = [await ctx.memo("n"), await ctx.memo("n", 1), await ctx.memo("n", 2), await ctx.memo("n", type=int)]
        with pytest.raises(InvalidValue):
            await ctx.memo("bad", {1})
        return found

    async with agent([call("act"), "end"], acting(act)) as (_, root):
        await ask(root)
        assert await results(root) == ["[None, 1, 1, 1]"]


async def test_documents_are_read_and_written_on_the_line() -> None:
    async def act(ctx: Any) -> Any:
        async with ctx.transaction() as tx:
            (await tx.doc(Notes, ctx.conversation_id))["n"] = 5
        return await ctx.read(Notes), ctx.conversation().id == ctx.conversation_id, ctx.agent.model

    async with agent([call("act"), "end"], acting(act)) as (_, root):
        await ask(root)
        assert await results(root) == ["({'n': 5}, True, 'scripted:model')"]


async def test_details_are_seen_while_the_call_runs_and_what_is_no_json_is_refused() -> None:
    go = asyncio.Event()

    async def act(ctx: Any) -> Any:
        await ctx.details({"step": 1})
        await ctx.details({"step": 2})
        with pytest.raises(InvalidValue):
            await ctx.details({1: 2})
        await go.wait()
        return "acted"

    async with agent([call("act"), "end"], acting(act)) as (_, root):
        submission = await root.submit("a")
        await settle(200)
        (slot,) = (await root.live())["tools"].values()
        assert slot["details"] == {"step": 2}
        go.set()
        await submission.wait()


async def test_an_entry_that_no_transcript_could_read_is_refused_and_the_conversation_goes_on() -> None:
    async def act(ctx: Any) -> Any:
        async with ctx.transaction() as tx:
            tx.append_entry(ctx.conversation_id, Broken())

    async with agent([call("act"), "end", "again"], acting(act)) as (_, root):
        assert await ask(root) == "end"
        (result,) = await results(root)
        assert "test.broken" in result
        with pytest.raises(InvalidValue):
            await root.write(Broken())
        assert await ask(root) == "again"
