"""A close in good order, also while somebody still hands in work."""

import asyncio
from typing import Any

from perdure import Extension, Harness, Registry, Settings, configure
from perdure.storage.memory import MemoryStorage
from perdure.storage.records import Task
from perdure.tasks.states import state_of
from perdure.testing.scripted_model import ScriptedModel, call

MODEL = "scripted:model"


async def test_an_input_that_comes_during_a_close_is_stored_and_starts_nothing() -> None:
    slow = Extension("slow")
    started, stopping, go = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @slow.tool
    async def tidy(ctx: Any) -> str:
        """Takes its time to stop."""
        try:
            started.set()
            await asyncio.Event().wait()
        finally:
            stopping.set()
            await go.wait()
        return "never"

    storage = MemoryStorage()
    model = ScriptedModel([call("tidy"), "done", "done"])
    registry = Registry([slow])
    harness = await Harness.open(storage, registry=registry, models=model, settings=Settings(close_timeout=30))
    root = await harness.root(model=MODEL)
    await root.submit("tidy up")
    await started.wait()
    closing = asyncio.create_task(harness.close())
    await stopping.wait()
    async with harness.session.transaction() as tx:
        id = tx.create_conversation(owner=None)
        await configure(tx, id, model=MODEL)
    late = await (await harness.conversation(id)).submit("and this")
    go.set()
    assert await closing == []
    assert len(model.requests) == 1

    async with Harness.open(storage, registry=registry, models=model) as harness:
        assert (await harness.session.store.submission(late.id)) is not None
        found = [await harness.session.store.task(id) for id in harness.session.store.working.tasks]
        states = [state_of(task) for task in found if isinstance(task, Task) and task.status == "pending"]
        assert len(states) == 2
        assert [state.restarts for state in states] == [0, 0]
