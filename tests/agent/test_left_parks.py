"""A stop between a tool's return and the commit of its park: what it began outside is cleaned up."""

import asyncio
from typing import Any

import pytest

from perdure import Extension, Signal, Sleep
from perdure.testing.clock import settle
from perdure.testing.scripted_model import call
from tests.agent.kit import agent, reports, results

Done: Signal[str] = Signal("left.done", schema=str)


class Place:
    """An environment whose end takes its time."""

    def __init__(self, reached: asyncio.Event, go_on: asyncio.Event) -> None:
        self._reached, self._go_on = reached, go_on

    async def reap(self, tag: str) -> tuple[str, ...]:
        """Nothing was left running."""
        return ()

    async def close(self) -> None:
        """Slow."""
        self._reached.set()
        await self._go_on.wait()


def parking(log: list[Any], checkpoint: Any = "begun") -> Extension:
    extension = Extension("left", signals=[Done])

    @extension.tool
    async def begin(ctx: Any, ref: str) -> Any:
        """Begin something outside."""
        return Sleep(signals=[Done.key("done")], checkpoint=checkpoint)

    @begin.cancel
    async def clean(ctx: Any, ref: str) -> None:
        log.append((ref, ctx.checkpoint))
        ctx.output("cleaned up\n")

    return extension


@pytest.mark.parametrize("replaces", [False, True])
async def test_a_stop_in_a_wrap_after_the_park(replaces: bool) -> None:
    log: list[Any] = []
    reached = asyncio.Event()
    extension = parking(log)

    @extension.wrap_tool("begin")
    async def linger(ctx: Any, arguments: dict[str, Any], inner: Any) -> Any:
        park = await inner({"ref": "other"})
        reached.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if not replaces:
                raise
            asyncio.current_task().uncancel()  # type: ignore[union-attr]
        return park if not replaces else "replaced"

    async with agent([call("begin", {"ref": "main"}), "never"], extension) as (harness, root):
        await root.submit("go")
        await reached.wait()
        await root.abort()
        assert log == [("main", "begun")], "with the arguments of the call"
        assert await results(root) == ["aborted: the call was stopped"]
        assert reports(harness) == []


async def test_a_stop_while_the_environment_closes() -> None:
    log: list[Any] = []
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def env(conversation: Any) -> Any:
        return Place(reached, go_on)

    async with agent([call("begin", {"ref": "main"}), "never"], parking(log)) as (harness, root):
        harness.agent.env = env  # type: ignore[method-assign]
        await root.submit("go")
        await reached.wait()
        stopping = asyncio.ensure_future(root.abort())
        await settle()
        go_on.set()
        await stopping
        assert log == [("main", "begun")]


async def test_nothing_is_left_of_a_park_that_was_stored_or_refused() -> None:
    log: list[Any] = []
    async with agent([call("begin", {"ref": "main"}), "never"], parking(log, checkpoint={1, 2})) as (harness, root):
        await (await root.submit("go")).wait()
        assert (await results(root))[0].startswith("invalid_park")
        assert harness.agent.left_parks == {}
    async with agent([call("begin", {"ref": "main"}), "never"], parking(log)) as (harness, root):
        await root.submit("go")
        await settle()
        assert harness.agent.left_parks == {}
    assert log == []


async def test_a_clean_up_that_takes_its_time_is_no_code_that_ignores_the_stop() -> None:
    ext, cleaning, go_on = Extension("left", signals=[Done]), asyncio.Event(), asyncio.Event()

    @ext.tool
    async def begin(ctx: Any) -> Any:
        """Begin something outside."""
        return Sleep(signals=[Done.key("done")])

    @begin.cancel
    async def clean(ctx: Any) -> None:
        cleaning.set()
        await go_on.wait()

    async with agent([call("begin"), "never"], ext) as (harness, root):
        await root.submit("go")
        await settle()
        stopping = asyncio.ensure_future(root.abort())
        await cleaning.wait()
        (row,) = [row for row in harness.inspect()["tasks"] if row["kind"] == "perdure.tool"]
        assert row["cleans_up"]
        assert "ignores_cancellation" not in row
        go_on.set()
        await stopping


@pytest.mark.parametrize("by_signal", [True, False])
async def test_the_host_is_told_when_the_code_that_would_clean_up_is_gone(by_signal: bool) -> None:
    async with agent([call("begin", {"ref": "main"}), "fine"], parking([])) as (harness, root):
        submission = await root.submit("go")
        await settle()
        (id,) = [t.id for t in harness.tasks.index.tasks.values() if t.kind == "perdure.tool"]
        harness.agent.registry.uninstall("left")
        if by_signal:
            await harness.signal(id, Done, "done", "x")
            await submission.wait()
        else:
            await root.abort()
        assert reports(harness) == ["tool begin: cancel"]
