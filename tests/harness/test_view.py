"""What a conversation's view holds, and how it gets to those who watch."""

import asyncio
from typing import Any

import pytest

from perdure import Extension, NotFound, ResetEntry, SessionClosed, Settings, ToolContext, ToolResult
from perdure.base.errors import Error
from perdure.session.watch import FRAMES_KEPT
from perdure.testing.clock import FakeClock, settle
from perdure.testing.scripted_model import ScriptedModel, call, say
from tests.agent.kit import Gate, agent, ask
from tests.harness.viewers import Client, fresh_graph, fresh_view
from tests.session.kit import FailingStorage, FlushingStorage

LONG = " ".join(f"word {number}" for number in range(60))


def tools(gate: Gate) -> Extension:
    extension = Extension("tools")

    @extension.tool
    async def work(ctx: ToolContext, what: str) -> ToolResult:
        """Work."""
        ctx.output(f"working on {what}\n")
        await ctx.details({"what": what})
        await gate.stop()
        ctx.diagnostic("slowly")
        return ToolResult("done", details={"what": what, "done": True})

    return extension


async def test_a_newcomer_gets_the_whole_present() -> None:
    gate, clock = Gate(), FakeClock()
    async with agent([call("work", {"what": "a"}), say("ok")], tools(gate), clock=clock) as (_, root):
        await root.submit("first")
        await gate.reached.wait()
        await clock.advance(0.2)
        await root.submit("second", when_busy="steer")
        async with root.watch() as watch:
            view = watch.value
            assert view["conversation"] == {"id": 1, "parent": None, "fork_entry": None, "owner": None}
            kinds = [entry["kind"] for entry in view["entries"]]
            assert kinds == ["perdure.user", "perdure.system", "perdure.assistant"]
            assert view["docs"]["agent"] == {"model": "scripted:model"}
            assert view["docs"]["usage"]["models"]["scripted:model"]["requests"] == 1
            assert [item["how"] for item in view["docs"]["inbox"]["items"]] == ["steer"]
            assert view["docs"]["live"]["run"]["turns"] == 1
            [slot] = view["docs"]["live"]["tools"].values()
            assert (slot["status"], slot["output"], slot["details"]) == ("running", "working on a\n", {"what": "a"})
        gate.go.set()
        await root.wait_idle()


async def test_each_frame_is_one_commit_and_holds_its_exact_operations() -> None:
    clock = FakeClock()
    async with agent(ScriptedModel([say(LONG).after(0, between=0.02)], clock=clock), clock=clock) as (harness, root):
        async with Client(root.watch()) as client:
            await root.submit("go")
            await settle()
            await clock.advance(2)
            await client.drain()
            assert [frame.seq for frame in client.frames] == sorted({frame.seq for frame in client.frames})
            assert {frame.epoch for frame in client.frames} == {harness.session.epoch}
            deltas = [op for frame in client.frames for op in frame.ops if op["path"].endswith("/blocks/0/text")]
            assert len(deltas) > 3
            assert {op["op"] for op in deltas} == {"append"}
            assert client.value == await fresh_view(harness, root)
            told = [op for frame in client.frames for op in frame.ops if op["op"] == "copy"]
            assert len(told) == 1, "the entry's text is copied from what had streamed"
            assert client.bytes < 3 * len(LONG) + 2000


async def test_a_fork_shows_what_it_inherits_and_nothing_that_came_after() -> None:
    async with agent([say("one"), say("two"), say("three")]) as (harness, root):
        await ask(root, "first")
        answer = (await root.entries())[-1]
        await ask(root, "second")
        fork = await root.fork(answer.id)
        async with Client(fork.watch()) as client:
            assert [entry["id"] for entry in client.value["entries"]][-1] == answer.id
            assert {entry["conversation"] for entry in client.value["entries"]} == {root.id}
            assert client.value["docs"]["agent"] == {"model": "scripted:model"}
            assert client.value["docs"]["usage"] is None
            await ask(fork, "third")
            await client.drain()
            assert {entry["conversation"] for entry in client.value["entries"]} == {root.id, fork.id}
            assert client.value == await fresh_view(harness, fork)


async def test_a_head_moves_the_active_transcript_forward_and_back() -> None:
    async with agent([say("x")] * 2) as (harness, root):
        await ask(root, "first")
        first = (await root.entries())[0]
        async with Client(root.watch()) as client:
            await root.write(ResetEntry(None), head=True)
            await client.drain()
            assert [entry["kind"] for entry in client.value["entries"]] == ["perdure.reset"]
            async with harness.session.transaction() as tx:
                tx.append_entry(root.id, ResetEntry(None), head=first.id)
            await client.drain()
            assert client.value["entries"][0]["id"] == first.id
            assert client.value == await fresh_view(harness, root)


async def test_attaching_waits_for_what_is_committed_and_shows_nothing_before_it_is_stored() -> None:
    storage = FlushingStorage()
    async with agent([], storage=storage) as (_, root):
        storage.at_once = False
        early = asyncio.create_task(root.configure(instructions="early"))
        await settle()
        opening = root.watch()
        attaching = asyncio.create_task(opening.__aenter__())
        await settle()
        late = asyncio.create_task(root.configure(instructions="late"))
        await settle()
        assert not attaching.done()
        storage.at_once = True
        storage.flush()
        await asyncio.gather(early, late)
        watch = await attaching
        assert watch.value["docs"]["agent"]["instructions"] in ("early", "late")
        while watch.value["docs"]["agent"]["instructions"] != "late":
            await asyncio.wait_for(anext(watch), 1)
        watch.stop()


async def test_an_attachment_that_is_cancelled_leaves_nothing_behind() -> None:
    storage = FlushingStorage()
    async with agent([], storage=storage) as (harness, root):
        storage.at_once = False
        early = asyncio.create_task(root.configure(instructions="early"))
        await settle()
        attaching = asyncio.create_task(root.watch().__aenter__())
        await settle()
        attaching.cancel()
        await settle()
        assert harness.views._feeds._feeds == {}
        storage.at_once = True
        storage.flush()
        await early


async def test_a_slow_client_gets_one_whole_view_in_place_of_what_it_missed() -> None:
    async with agent([]) as (harness, root), Client(root.watch()) as slow, Client(root.watch()) as other:
        for number in range(FRAMES_KEPT + 5):
            await root.configure(instructions=str(number))
            await other.drain()
        await slow.drain()
        assert len(slow.frames) == 5
        assert [op["path"] for op in slow.frames[0].ops] == [""]
        assert slow.value == other.value == await fresh_view(harness, root)
        assert slow.watch.ended is None


async def test_ends_are_explicit() -> None:
    async with agent([]) as (harness, root):
        async with root.watch() as stopped, root.watch() as closed, harness.watch_tasks() as graph:
            await root.configure(instructions="once")
            stopped.stop()
            assert [frame async for frame in stopped] == []
            await harness.close()
            assert len([frame async for frame in closed]) == 1
            assert [frame async for frame in graph] == []
            assert (stopped.ended, closed.ended, graph.ended) == ("stopped", "closed", "closed")
        with pytest.raises(SessionClosed):
            async with root.watch():
                pass


async def test_a_commit_that_fails_is_never_shown_and_ends_the_watch() -> None:
    storage = FailingStorage()
    async with agent([], storage=storage) as (_, root):
        async with root.watch() as watch:
            storage.before = OSError("full")
            with pytest.raises(OSError, match="full"):
                await root.configure(instructions="unheard")
            assert [frame async for frame in watch] == []
            assert watch.ended == "closed"
            assert "instructions" not in watch.value["docs"]["agent"]
        with pytest.raises(Error):
            async with root.watch():
                pass


async def test_there_is_nothing_to_watch_of_a_conversation_that_does_not_exist() -> None:
    async with agent([]) as (harness, root):
        ghost = type(root)(harness, 77)  # type: ignore[arg-type]
        for opening in (ghost.watch(), ghost.events()):
            with pytest.raises(NotFound):
                async with opening:
                    pass
        assert harness.views._feeds._feeds == {}


async def test_what_is_handed_out_in_debug_mode_refuses_to_be_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_DEBUG", "1")
    async with agent([say("x")]) as (harness, root), Client(root.watch()) as client, root.events() as events:
        await ask(root)
        await client.drain()
        for value in (client.watch.value, client.frames[-1].value):
            with pytest.raises(Error):
                value["entries"].append("no")
        assert client.value == await fresh_view(harness, root)
        assert (await anext(events)).view["entries"] == []


async def test_the_graph_shows_what_runs_and_waits_and_who_owns_whom() -> None:
    gate = Gate()
    settings = Settings(parallel_tools=True)
    async with agent([call("work", {"what": "a"}), say("ok")], tools(gate), settings=settings) as (harness, root):
        async with Client(harness.watch_tasks()) as client:
            assert client.value == {"tasks": {}}
            await root.submit("go")
            await gate.reached.wait()
            async with harness.session.transaction() as tx:
                owner = max(harness.tasks.index.running)
                owned = tx.put_conversation(owner=owner)
            rows: dict[str, Any] = (await client.drain())["tasks"]
            generation, work = sorted(rows.values(), key=lambda row: int(row["id"]))
            assert (generation["kind"], generation["status"], generation["phase"]) == (
                "perdure.generation",
                "waiting",
                "boundary",
            )
            assert (generation["waits_for"], generation["policy"]) == ([work["id"]], "all_settled")
            assert (work["kind"], work["status"], work["owner"]) == ("perdure.tool", "running", generation["id"])
            assert work["conversations"] == [owned]
            assert client.value == await fresh_graph(harness)
            stopping = asyncio.create_task(root.abort())
            await stopping
            await client.drain()
            assert any(op["path"].endswith("/abort_requested") for frame in client.frames for op in frame.ops)
            assert client.value == {"tasks": {}}


async def test_usage_of_owned_conversations_is_told_apart_and_forks_stand_for_themselves() -> None:
    gate = Gate()

    def script(request: Any) -> Any:
        return (
            say("x") if "child" in str(request.messages) or len(request.messages) > 2 else call("work", {"what": "a"})
        )

    async with agent(ScriptedModel(script), tools(gate)) as (harness, root):
        await root.submit("go")
        await gate.reached.wait()
        async with harness.session.transaction() as tx:
            owned = tx.put_conversation(owner=max(harness.tasks.index.running))
        child = await harness.conversation(owned)
        [row] = [row for row in harness.inspect()["tasks"] if row["id"] == max(harness.tasks.index.running)]
        assert row["conversations"] == [owned]
        assert row["phase"]
        await child.configure(model="scripted:model")
        await ask(child, "child")
        fork = await child.fork((await child.entries())[-1].id)
        await ask(fork, "child's fork")
        gate.go.set()
        await root.wait_idle()
        used = await root.total_usage()
        assert (used["own"]["requests"], used["owned"]["requests"]) == (2, 1)
        assert (await child.total_usage())["owned"]["requests"] == 0
        assert (await harness.usage())["requests"] == 4
