"""Calls that park on work of their own: tasks that they own, and calls of other tools."""

from typing import Any

from perdure import (
    Extension,
    Harness,
    Next,
    Registry,
    Signal,
    Sleep,
    Task,
    TaskId,
    TaskRun,
    ToolResult,
    Wait,
    phase,
    task,
)
from perdure.storage.memory import MemoryStorage
from perdure.testing.clock import settle
from perdure.testing.scripted_model import ScriptedModel, call
from tests.agent.kit import agent, results

Done: Signal[str] = Signal("p.done", schema=str)


async def parked_call(harness: Harness) -> TaskId:
    """The call that waits."""
    await settle()
    (found,) = [t.id for t in harness.tasks.index.tasks.values() if t.kind == "perdure.tool"]
    return found


@task("p.child")
class Child(Task[str]):
    """Ends when its key comes."""

    name: str

    @phase(first=True)
    async def begin(self, run: TaskRun) -> Next[Any]:
        """Sleeps."""
        return run.sleep(self.end, [Done.key("go")])

    @phase
    async def end(self, run: TaskRun) -> Next[str]:
        """Ends."""
        return run.complete(self.name)


def waiting(log: list[Any], *, replay: Any = "safe", keyed: bool = True) -> Extension:
    ext = Extension("waits", tasks=[Child], signals=[Done])

    @ext.tool(replay=replay)
    async def both(ctx: Any) -> Any:
        """Wait for two."""
        a, b = [await ctx.create_task(Child(name), key=name if keyed or ctx.wake is None else None) for name in "ab"]
        done = set(ctx.checkpoint or []) | set(getattr(ctx.wake, "ended", ()))
        log.append((type(ctx.wake).__name__, sorted(done)))
        left = [id for id in (a, b) if id not in done]
        if left:
            return Wait(on=left, policy="any", checkpoint=sorted(done))
        return " and ".join([(await ctx.wait_task(id)).result() for id in (a, b)])

    return ext


async def test_it_waits_for_the_first_of_its_children_and_then_for_the_other() -> None:
    log: list[Any] = []
    async with agent([call("both"), "fine"], waiting(log)) as (harness, root):
        submission = await root.submit("go")
        id = await parked_call(harness)
        a, b = sorted(harness.tasks.index.children(id))
        assert (await root.live())["tools"][str(id)]["status"] == "waiting"
        await harness.signal(b, Done, "go", "x")
        await settle()
        await harness.signal(a, Done, "go", "x")
        await submission.wait()
        assert log == [("NoneType", []), ("Tasks", [b]), ("Tasks", [a, b])]
        assert await results(root) == ["a and b"]


async def test_after_a_wake_work_needs_a_key() -> None:
    async with agent([call("both"), "fine"], waiting([], keyed=False)) as (harness, root):
        submission = await root.submit("go")
        id = await parked_call(harness)
        for child in sorted(harness.tasks.index.children(id)):  # the call ends once what it owns has ended
            await harness.signal(child, Done, "go", "x")
        await submission.wait()
        assert "work without a key, in a call that has parked" in (await results(root))[0]


async def test_a_task_that_has_woken_the_call_is_not_waited_for_again() -> None:
    ext = Extension("waits", tasks=[Child], signals=[Done])

    @ext.tool
    async def forgets(ctx: Any) -> Any:
        """Wait for two, and forget who has ended."""
        return Wait(on=[await ctx.create_task(Child(name), key=name) for name in "ab"], policy="any")

    async with agent([call("forgets"), "fine"], ext) as (harness, root):
        submission = await root.submit("go")
        id = await parked_call(harness)
        a, b = sorted(harness.tasks.index.children(id))
        await harness.signal(a, Done, "go", "x")
        await settle()
        await harness.signal(b, Done, "go", "x")  # the call ends once what it owns has ended
        await submission.wait()
        assert (await results(root))[0].startswith(f"invalid_park: task {a} has ended and has woken this task already")


async def test_children_of_an_unsafe_call_live_on_while_it_is_parked_over_a_crash() -> None:
    log: list[Any] = []
    storage = MemoryStorage()
    async with agent([call("both"), "fine"], waiting(log, replay="unsafe"), storage=storage) as (harness, root):
        await root.submit("go")
        id = await parked_call(harness)
        left = storage.copy()
    registry = Registry([waiting(log, replay="unsafe")])
    async with Harness.open(left, registry=registry, models=ScriptedModel(["fine"])) as harness:
        await harness.resume()
        children = sorted(harness.tasks.index.children(id))
        assert len(children) == 2
        for child in children:
            await harness.signal(child, Done, "go", "x")
        root = await harness.root()
        await root.wait_idle()
        assert await results(root) == ["a and b"]


async def test_a_call_whose_tool_is_gone_when_it_wakes_fails_with_what_it_owns() -> None:
    async with agent([call("both"), "fine"], waiting([])) as (harness, root):
        submission = await root.submit("go")
        id = await parked_call(harness)
        a, b = sorted(harness.tasks.index.children(id))
        late = Extension("late", tasks=[Child], signals=[Done])
        harness.agent.registry.install(late)
        harness.agent.registry.uninstall("waits")
        await harness.signal(a, Done, "go", "x")
        assert (await submission.wait()).text == "fine"
        assert (await results(root))[0].startswith("tool_unavailable: ")
        assert (await harness.tasks.wait(b)).status == "aborted"


async def test_a_nested_call_parks_as_well() -> None:
    ext = Extension("nest", signals=[Done])

    @ext.tool
    async def inner(ctx: Any) -> Any:
        """Ask."""
        state = await ctx.read_signal(Done, "done")
        return Sleep(signals=[Done.key("done")]) if state is None else f"got {state.value}"

    @ext.tool
    async def outer(ctx: Any) -> Any:
        """Ask another."""
        asked = await ctx.start_tool("inner", key="q")
        if ctx.wake is None:
            return Wait(on=[asked.task_id])
        result: ToolResult = await asked.result()
        return f"outer: {result.content}"

    async with agent([call("outer"), "fine"], ext) as (harness, root):
        submission = await root.submit("go")
        await settle()
        (nested,) = [t.id for t in harness.tasks.index.tasks.values() if t.kind == "perdure.nested_tool"]
        assert harness.wake() == (False, None)
        await harness.signal(nested, Done, "done", "it")
        await submission.wait()
        assert await results(root) == ["outer: got it"]
