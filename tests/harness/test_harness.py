"""What a program holds: opening, closing, waking, looking."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from perdure import Extension, Harness, NotFound, Registry, SessionClosed, Settings, StorageInUse
from perdure.env.local import LocalEnv
from perdure.harness.harness import Opening
from perdure.models.errors import Overloaded
from perdure.storage.memory import MemoryStorage
from perdure.testing.clock import FakeClock, settle
from perdure.testing.scripted_model import ScriptedModel, call, fail, say
from tests.agent.kit import MODEL, Gate, agent, ask, results

MISSING: list[dict[str, Any]] = [{"key": "no"}, {"id": 99}, {"id": -1}, {}]


def working(gate: Gate, *, stubborn: bool = False) -> Extension:
    extension = Extension("working")

    @extension.tool(replay="safe")
    async def work(ctx: Any) -> str:
        """Work."""
        while True:
            try:
                await gate.stop()
                return "worked"
            except asyncio.CancelledError:
                if not stubborn:
                    raise

    return extension


async def test_it_opens_by_awaiting_and_by_a_block_and_closes_twice() -> None:
    harness = await Harness.open(MemoryStorage(), models=ScriptedModel(["one"]))
    root = await harness.root(model=MODEL)
    assert await ask(root) == "one"
    assert await harness.close() == []
    assert await harness.close() == []
    with pytest.raises(SessionClosed):
        await root.submit("a")
    async with Harness.open(MemoryStorage()) as other:
        assert isinstance(other, Harness)
    assert isinstance(Harness.open(MemoryStorage()), Opening)


async def test_agent_arguments_count_only_when_the_root_is_created() -> None:
    storage = MemoryStorage()
    async with agent([], storage=storage, instructions="first") as (harness, _):
        again = await harness.root(instructions="second", model="other:model")
        assert (await again.agent()).instructions == "first"
        assert (await again.agent()).model == MODEL


async def test_a_second_opener_is_told_who_has_it(tmp_path: Path) -> None:
    async with Harness.open(tmp_path / "a.db", models=ScriptedModel([])):
        with pytest.raises(StorageInUse):
            await Harness.open(tmp_path / "a.db", models=ScriptedModel([]))
    async with Harness.open(tmp_path / "a.db", models=ScriptedModel([])):
        pass


async def test_opening_starts_nothing_and_resume_does() -> None:
    storage, gate = MemoryStorage(), Gate()
    turns: list[Any] = [call("work"), "end"]
    async with agent(ScriptedModel.by_progress(turns), working(gate), storage=storage) as (_, root):
        await root.submit("a")
        await gate.reached.wait()
    gate.reached.clear()
    gate.go.set()
    async with agent(ScriptedModel.by_progress(turns), working(gate), storage=storage) as (harness, root):
        await settle()
        assert harness.wake().active
        assert not gate.reached.is_set()
        assert harness.inspect()["scheduling"] is False
        await harness.resume()
        await root.wait_idle()
        assert await results(root) == ["worked"]
        assert harness.wake() == (False, None)


async def test_close_ends_what_runs_within_a_bound_and_names_what_does_not_stop() -> None:
    gate = Gate()
    settings = Settings(close_timeout=0.05)
    harness = await Harness.open(
        MemoryStorage(),
        registry=Registry([working(gate, stubborn=True)]),
        models=ScriptedModel([call("work")]),
        settings=settings,
    )
    await (await harness.root(model=MODEL)).submit("a")
    await gate.reached.wait()
    (stuck,) = await asyncio.wait_for(harness.close(), 2)
    assert "perdure.tool" in stuck
    gate.go.set()
    await settle()


async def test_what_is_looked_at_is_plain_json_also_while_things_are_stuck() -> None:
    gate, extension = Gate(), working(Gate(), stubborn=True)
    async with agent([call("work")], working(gate, stubborn=True), settings=Settings(close_timeout=0.05)) as (h, root):
        await root.submit("a")
        await gate.reached.wait()
        h.agent.registry.install(extension)
        h.reports.add("somewhere", ValueError("\ud800"))
        told = json.loads(json.dumps(h.inspect()))
        assert {row["kind"] for row in told["tasks"]} == {"perdure.generation", "perdure.tool"}
        await h.actions.abort(root.id, background=False, keep_queued=False)
        await settle()
        assert any(row.get("ignores_cancellation") for row in h.inspect()["tasks"])
        gate.go.set()
        await root.wait_idle()


async def test_listeners_learn_when_to_wake_and_their_errors_stay_theirs() -> None:
    clock = FakeClock()
    async with agent([fail(Overloaded("x")), "one"], clock=clock) as (harness, root):
        wakes: list[Any] = []

        def broken(wake: Any) -> None:
            raise ValueError("a listener")

        stop = harness.on_wake(broken)
        harness.on_wake(wakes.append)
        harness.reports.listeners.append(broken)
        submission = await root.submit("a")
        await settle()
        assert wakes[-1].at is not None
        await clock.advance(60)
        assert (await submission.wait()).text == "one"
        assert wakes[-1] == (False, None)
        stop()
        stop()


async def test_conversations_are_found_by_id_and_by_key() -> None:
    async with agent(["one"]) as (harness, root):
        answer = await (await root.submit("a")).wait()
        made = await asyncio.gather(*(root.fork(answer.entry_id, key="slack:../..") for _ in range(5)))
        assert len({fork.id for fork in made}) == 1
        assert (await harness.conversation(key="slack:../..")).id == made[0].id
        assert (await harness.conversation(made[0].id)).id == made[0].id
        for missing in MISSING:
            with pytest.raises(NotFound):
                await harness.conversation(**missing)


async def test_an_environment_object_serves_all_calls_and_a_function_is_asked_for_each(tmp_path: Path) -> None:
    extension, asked = Extension("looking"), []

    @extension.tool
    async def look(ctx: Any) -> str:
        """Look."""
        return str(ctx.env.cwd)

    async def per_call(conversation: Any, cwd: Any) -> Any:
        asked.append((conversation, cwd))
        return LocalEnv(tmp_path)

    for env in (LocalEnv(tmp_path), per_call):
        models = ScriptedModel([[call("look"), call("look")], "end"])
        async with Harness.open(MemoryStorage(), registry=Registry([extension]), models=models, env=env) as harness:
            root = await harness.root(model=MODEL, cwd="/elsewhere")
            await ask(root)
            assert await results(root) == [str(tmp_path)] * 2
    assert asked == [(root.id, "/elsewhere")] * 2


@pytest.mark.parametrize("cwd", ["/no/such/place", "/dev/null", "a\x00b", "../../..", "x" * 5000])
async def test_a_working_directory_that_is_none_is_an_error_of_the_call(cwd: str) -> None:
    extension = Extension("running")

    @extension.tool
    async def run(ctx: Any) -> str:
        """Run."""
        await ctx.env.read("no-such-file")
        return "read"

    async with agent([call("run"), "end", "again"], extension, cwd=cwd) as (_, root):
        assert await ask(root) == "end"
        assert (await results(root))[0].startswith("tool_error")
        assert await ask(root) == "again"


async def test_without_models_the_usual_providers_are_there() -> None:
    async with Harness.open(MemoryStorage()) as harness:
        root = await harness.root(model="nobody:model")
        settled = await (await root.submit("a")).settled()
        assert settled.reason == "failed"
        assert "unknown_model" in (settled.detail or "")


async def test_settings_are_read_live() -> None:
    go = asyncio.Event()
    async with agent([say("one").held_by(go), "two"]) as (harness, root):
        await root.submit("a")
        last = [await root.submit(text) for text in "bc"][1]
        harness.settings.follow_up_mode = "all"
        go.set()
        assert (await last.wait()).text == "two"
        with pytest.raises(NotFound):
            await harness.conversation(12345)
