"""Code that is replaced between the commit that stores an intent and the moment it begins, or that no longer fits."""

from collections.abc import Callable
from typing import Any

from perdure import ROOT, Block, Extension, Harness, Next, Registry, phase, task
from perdure.session.publication import Publication
from perdure.storage.memory import MemoryStorage
from perdure.tasks.runtime import TaskRun
from perdure.testing.clock import FakeClock
from perdure.testing.scripted_model import call
from tests.agent.kit import agent, ask, results, settle


def hitting(ran: list[int]) -> Extension:
    """A tool that notes each run."""
    extension = Extension("hitting")

    @extension.tool
    async def hit(ctx: Any, a: int) -> str:
        """Hit."""
        ran.append(a)
        return "hit"

    return extension


def on_intent(harness: Harness, do: Callable[[], None]) -> None:
    """Do it once, when the intent of a call is part of the newest state but has not begun."""
    left = [do]

    def adopted(publication: Publication) -> None:
        if left and any(change.after.kind == "perdure.tool" for change in publication.tasks):
            left.pop()()

    harness.session.adopters.append(adopted)


async def test_a_gate_that_is_installed_before_a_call_begins_is_asked() -> None:
    ran: list[int] = []
    guard = Extension("guard")

    @guard.before_tool
    async def refuse(ctx: Any, call: Any) -> Block:
        return Block("not today")

    async with agent([call("hit", {"a": 1}), "done"], hitting(ran)) as (harness, root):
        on_intent(harness, lambda: harness.agent.registry.install(guard))
        await ask(root)
        assert await results(root) == ["blocked: not today"]
    assert ran == []


async def test_a_tool_that_is_replaced_before_a_call_begins_checks_the_arguments_anew() -> None:
    ran: list[int] = []
    other = Extension("hitting")

    @other.tool
    async def hit(ctx: Any, b: int) -> str:
        """Hit."""
        ran.append(b)
        return "hit"

    async with agent([call("hit", {"a": 1}), "done"], hitting(ran)) as (harness, root):
        on_intent(harness, lambda: harness.agent.registry.install(other))
        await ask(root)
        assert [text.split(":")[0] for text in await results(root)] == ["invalid_arguments"]
    assert ran == []


def counting(kind: type, name: str = "count") -> type:
    """A task that sleeps ten seconds and then completes; its input is of this type, its second phase of this name."""

    async def begin(self: Any, run: TaskRun) -> Next[Any]:
        return run.sleep(getattr(self, name), until=run.now() + 10)

    async def count(self: Any, run: TaskRun) -> Next[Any]:
        return run.complete(self.n)

    count.__name__ = name
    begun = phase(first=True)(begin)
    members = {"__annotations__": {"n": kind}, "__module__": __name__, "begin": begun, name: phase(count)}
    return task("test.counting")(type("Counting", (), members))


async def stays_blocked_until_it_fits(unfit: type, why: str) -> None:
    """A task sleeps; code that does not fit what is stored is installed; then fitting code again."""
    clock = FakeClock(1_000_000.0)
    fitting = Extension("counting", tasks=[counting(int)])
    registry = Registry([fitting])
    async with Harness.open(MemoryStorage(), registry=registry, clock=clock) as harness:
        await harness.resume()
        async with harness.session.transaction() as tx:
            id = tx.create_task(next(iter(fitting.tasks.values())).cls(n=1), conversation=ROOT)
        await settle()
        registry.install(Extension("counting", tasks=[unfit]))
        await clock.advance(11)
        await settle()
        row = harness.inspect()["tasks"][0]
        assert (row["id"], row["status"]) == (id, "pending")
        assert row["blocked"].startswith(why)
        assert not harness.wake().active
        registry.install(fitting)
        assert (await harness.tasks.wait(id)).status == "completed"


async def test_code_of_the_same_version_that_cannot_read_the_input_blocks_its_task() -> None:
    await stays_blocked_until_it_fits(counting(str), "the installed test.counting does not fit what is stored: ")


async def test_code_of_the_same_version_without_the_phase_blocks_its_task() -> None:
    await stays_blocked_until_it_fits(counting(int, "tally"), "")
