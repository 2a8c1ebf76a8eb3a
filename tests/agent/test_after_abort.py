"""What is handed in while a run is being stopped is not lost with it and does not wait for ever."""

import asyncio
from typing import Any

from perdure import Extension, Harness, Registry, UserMessage
from perdure.testing.scripted_model import ScriptedModel, call, say


def stubborn(entered: asyncio.Event, may_end: asyncio.Event) -> Extension:
    ops = Extension("ops")

    @ops.tool
    async def work(ctx: Any) -> str:
        """Take a while to stop."""
        entered.set()
        try:
            await asyncio.sleep(3600)
        finally:
            await may_end.wait()
        return "never"

    return ops


async def test_a_message_right_after_stop_is_answered_and_the_stop_returns_when_the_old_work_ended() -> None:
    entered, may_end = asyncio.Event(), asyncio.Event()
    model = ScriptedModel.by_progress([call("work"), say("here")])
    registry = Registry([stubborn(entered, may_end)])
    async with Harness.open("memory:", registry=registry, models=model) as harness:
        root = await harness.root(model="scripted:model")
        first = await root.submit("work")
        queued = await root.submit("and then this")
        await entered.wait()
        stopping = asyncio.create_task(root.abort())
        assert (await queued.settled()).reason == "withdrawn"
        late = await root.submit("forget it, where are you?")
        assert await late.status() == "queued"
        may_end.set()
        assert (await late.wait()).text == "here"
        await stopping
        assert (await first.settled()).reason == "aborted"
        assert [type(m).__name__ for m in await root.messages()][-2:] == ["UserMessage", "AssistantMessage"]


async def test_what_was_kept_queued_at_a_stop_goes_before_what_came_after_it() -> None:
    entered, may_end = asyncio.Event(), asyncio.Event()
    model = ScriptedModel.by_progress([call("work"), say("both")])
    registry = Registry([stubborn(entered, may_end)])
    async with Harness.open("memory:", registry=registry, models=model) as harness:
        root = await harness.root(model="scripted:model")
        await root.submit("work")
        kept = await root.submit("kept")
        await entered.wait()
        stopping = asyncio.create_task(root.abort(keep_queued=True))
        await asyncio.sleep(0.01)
        late = await root.submit("late")
        may_end.set()
        assert (await late.wait()).text == (await kept.wait()).text == "both"
        await stopping
        said = [m.content for m in await root.messages() if isinstance(m, UserMessage)]
        assert said == ["work", "kept", "late"]


async def test_a_kept_queue_alone_waits_for_the_next_message() -> None:
    entered, may_end = asyncio.Event(), asyncio.Event()
    may_end.set()
    model = ScriptedModel.by_progress([call("work"), say("now")])
    registry = Registry([stubborn(entered, may_end)])
    async with Harness.open("memory:", registry=registry, models=model) as harness:
        root = await harness.root(model="scripted:model")
        first = await root.submit("work")
        kept = await root.submit("kept")
        await entered.wait()
        await root.abort(keep_queued=True)
        assert (await first.settled()).reason == "aborted"
        assert await kept.status() == "queued"
        await (await root.submit("go on")).wait()
        assert await kept.status() == "done"
