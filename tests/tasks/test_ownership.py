"""One tree: ends wait, aborts flow down, cleanup flows up, background is a boundary both ways."""

import asyncio
from dataclasses import field
from typing import Any

import pytest

from perdure.base.errors import OwnershipRefused, Refused
from perdure.base.ids import ROOT, TaskId
from perdure.tasks.decisions import Next
from perdure.tasks.definition import phase, task
from perdure.tasks.outcomes import Aborted, Completed, Failed, Faulted
from perdure.tasks.runtime import TaskRun
from perdure.testing.clock import settle
from tests.tasks.living import Living

ORDER: list[str] = []
GATES: dict[str, asyncio.Event] = {}


@pytest.fixture(autouse=True)
def _forget() -> None:
    ORDER.clear()
    GATES.clear()


@task("o.node")
class Node:
    """Does one thing and tells when it is undone."""

    name: str
    does: str = "sleep"
    below: list[str] = field(default_factory=list)

    @phase(first=True)
    async def begin(self, run: TaskRun) -> Next[Any]:
        """Creates what is below it, then does what it is told."""
        ORDER.append(f"{self.name} begins")
        async with run.transaction() as tx:
            children = [tx.create_task(Node(f"{self.name}/{does}", does)) for does in self.below]
        async with run.transaction() as tx:
            if self.does in ("all_settled", "fail_fast", "any"):
                return tx.wait(children, self.does, self.woken, children=children)  # type: ignore[arg-type]
            if self.does in ("complete", "fail"):
                return tx.complete("done") if self.does == "complete" else tx.fail("no")
            if self.does == "sleep":
                return tx.sleep(self.woken, until=run.now() + 100, children=[])
        return await self.hold(run)

    async def hold(self, run: TaskRun) -> Next[Any]:
        """Runs until its gate opens."""
        gate = GATES.setdefault(self.name, asyncio.Event())
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                if self.does == "run":
                    raise
                if self.does == "raise":
                    raise ZeroDivisionError from None
        return run.complete("done")

    @phase
    async def woken(self, run: TaskRun, children: list[TaskId]) -> Next[Any]:
        """Says how its children ended."""
        known = [(await run._tasks.session.store.task(child)).status == "terminal" for child in children]
        ended = [child for child, over in zip(children, known, strict=True) if over]
        return run.complete([outcome.status for outcome in await run.outcomes(ended)])

    async def abort(self, run: TaskRun) -> Next[Any]:
        """Tells that it is undone."""
        ORDER.append(f"{self.name} undone")
        return run.aborted()


async def living(**more: Any) -> Living:
    return await Living(Node, **more).open()


async def children(life: Living, id: TaskId) -> list[TaskId]:
    return [one.id for one in await life.storage.scan_tasks(owner=id)]


async def test_an_end_waits_for_owned_work() -> None:
    life = await living()
    id = await life.start(Node("a", "complete", ["sleep"]))
    assert await life.status(id) == "completing"
    await life.clock.advance(100)
    assert await life.outcome(id) == Completed("done")
    await life.close()


async def test_a_held_bad_end_aborts_the_work_below() -> None:
    life = await living()
    id = await life.start(Node("a", "fail", ["sleep", "run"]))
    assert await life.outcome(id) == Failed({"message": "no"})
    assert ORDER[-2:] == ["a/sleep undone", "a/run undone"] or ORDER[-2:] == ["a/run undone", "a/sleep undone"]
    assert [await life.outcome(child) for child in await children(life, id)] == [Aborted(), Aborted()]
    await life.close()


@pytest.mark.parametrize("does", ["all_settled", "sleep", "complete", "run"])
async def test_an_abort_reaches_each_state_and_cleans_up_deepest_first(does: str) -> None:
    life = await living()
    id = await life.start(Node("a", does, ["sleep", "run"]))
    await settle()
    (one, _) = await children(life, id)
    await life.start(Node("deep", "sleep"), owner=one)
    await settle()
    assert await life.abort(id)
    assert not await life.abort(id) or (await life.record(id)).status != "terminal"
    assert await life.outcome(id) == (Completed("done") if does == "complete" else Aborted())
    undone = [line.removesuffix(" undone") for line in ORDER if line.endswith("undone")]
    assert undone.index("deep") < undone.index("a/sleep")
    assert sorted(undone) == sorted(["deep", "a/sleep", "a/run", *([] if does == "complete" else ["a"])])
    if does != "complete":
        assert undone[-1] == "a"
    assert not await life.abort(id)
    assert not life.reports
    await life.close()


async def test_a_pending_task_that_is_aborted_runs_its_handler_only() -> None:
    life = await Living(Node).open(resume=False)
    id = await life.start(Node("a"))
    await life.abort(id)
    await life.tasks.resume()
    assert await life.outcome(id) == Aborted()
    assert ORDER == ["a undone"]
    await life.close()


async def test_a_task_without_a_handler_is_aborted_all_the_same() -> None:
    @task("o.plain")
    class Plain:
        @phase(first=True)
        async def begin(self, run: TaskRun) -> Next[Any]:
            await asyncio.Event().wait()
            return run.complete()

    life = await Living(Plain).open()
    id = await life.start(Plain())
    await settle()
    await life.abort(id)
    assert await life.outcome(id) == Aborted()
    await life.close()


async def test_code_that_ignores_its_cancellation_delays_the_abort() -> None:
    life = await living()
    id = await life.start(Node("a", "ignore"))
    await settle()
    await life.abort(id)
    assert await life.status(id) == "running"
    assert ORDER == ["a begins"]
    GATES["a"].set()
    assert await life.outcome(id) == Aborted(), "what it decides after the mark counts no more"
    assert ORDER == ["a begins", "a undone"]
    await life.close()


async def test_code_that_raises_when_it_is_aborted_still_cleans_up() -> None:
    life = await living()
    id = await life.start(Node("a", "raise"))
    await settle()
    await life.abort(id)
    assert await life.outcome(id) == Aborted()
    assert ORDER == ["a begins", "a undone"]
    assert [type(error) for _, error in life.reports] == [ZeroDivisionError]
    await life.close()


async def test_a_handler_that_raises_faults_the_task() -> None:
    @task("o.broken")
    class Broken:
        @phase(first=True)
        async def begin(self, run: TaskRun) -> Next[Any]:
            return run.sleep(self.begin, until=run.now() + 9)

        async def abort(self, run: TaskRun) -> Next[Any]:
            raise ZeroDivisionError

    life = await Living(Broken).open()
    id = await life.start(Broken())
    await settle()
    await life.abort(id)
    assert isinstance(await life.outcome(id), Faulted)
    await life.close()


@pytest.mark.parametrize("first", ["complete", "abort"])
async def test_an_abort_that_races_an_end_leaves_exactly_one_of_both(first: str) -> None:
    life = await living()
    id = await life.start(Node("a", "run"))
    await settle()
    if first == "complete":
        GATES["a"].set()
        await asyncio.sleep(0)
    marking = asyncio.create_task(life.abort(id))
    GATES["a"].set()
    ended = await life.outcome(id)
    marked = await marking
    assert (ended == Aborted()) == marked
    assert ("a undone" in ORDER) == marked
    await life.close()


async def test_fail_fast_marks_the_rest_and_wakes_when_all_have_ended() -> None:
    life = await living()
    id = await life.start(Node("a", "fail_fast", ["sleep", "complete", "fail", "run"]))
    assert await life.outcome(id) == Completed(["aborted", "completed", "failed", "aborted"])
    await life.close()


async def test_all_settled_waits_for_all_and_any_for_the_first() -> None:
    life = await living()
    every = await life.start(Node("a", "all_settled", ["sleep", "fail"]))
    some = await life.start(Node("b", "any", ["sleep", "fail"]))
    assert await life.status(every) == "waiting"
    assert await life.status(some) == "completing", "woken by the first, it waits for the other to end"
    await life.clock.advance(100)
    assert await life.outcome(every) == Completed(["completed", "failed"])
    assert await life.outcome(some) == Completed(["failed"])
    await life.close()


async def test_background_is_a_boundary_downwards_and_upwards() -> None:
    life = await living()
    owner = await life.start(Node("owner", "run"))
    await settle()
    async with life.session.transaction() as tx:
        own = tx.create_conversation(owner=owner)
        front = tx.create_task(Node("front", "sleep"), conversation=own)
        back = tx.create_task(Node("back", "sleep"), conversation=own, background=True)
    GATES["owner"].set()
    assert await life.status(owner) == "completing", "its end waits for the foreground it owns"
    await life.abort(owner)
    assert await life.outcome(front) == Aborted()
    await life.outcome(owner)
    assert await life.status(back) == "sleeping", "background work goes on as its conversation's own"
    more = await life.start(Node("more", "complete"), owner=back)
    assert await life.outcome(more) == Completed("done")
    with pytest.raises(OwnershipRefused):
        await life.start(Node("no"), conversation=own)
    side = await life.start(Node("side", "complete"), conversation=own, background=True)
    assert await life.outcome(side) == Completed("done")
    await life.abort(back)
    assert await life.outcome(back) == Aborted()
    await life.close()


async def test_an_abort_with_background_crosses_the_boundary_also_the_second_time() -> None:
    life = await living()
    owner = await life.start(Node("owner", "ignore"))
    await settle()
    async with life.session.transaction() as tx:
        own = tx.create_conversation(owner=owner)
        back = tx.create_task(Node("back", "sleep"), conversation=own, background=True)
    await life.abort(owner)
    assert await life.status(back) == "sleeping"
    await life.abort(owner, background=True)
    assert await life.outcome(back) == Aborted()
    GATES["owner"].set()
    assert await life.outcome(owner) == Aborted()
    await life.close()


@pytest.mark.parametrize("state", ["completing", "aborting", "ended"])
async def test_new_work_is_refused_under_an_owner_that_is_ending(state: str) -> None:
    life = await living()
    owner = await life.start(Node("owner", "ignore"))
    await settle()
    async with life.session.transaction() as tx:
        own = tx.create_conversation(owner=owner)
        tx.create_task(Node("below", "ignore"), owner=owner)
    if state == "aborting":
        await life.abort(owner)
    GATES["owner"].set()
    await settle()
    if state == "ended":
        GATES["below"].set()
        await life.outcome(owner)
    before = life.session.seq
    for how in ({"owner": owner}, {"conversation": own}):
        with pytest.raises(OwnershipRefused):
            await life.start(Node("late"), **how)
    with pytest.raises(OwnershipRefused):
        async with life.session.transaction() as tx:
            tx.create_conversation(owner=owner)
    assert life.session.seq == before
    GATES["below"].set()
    await life.outcome(owner)
    await life.close()


async def test_work_must_have_exactly_one_owner() -> None:
    life = await living()
    owner = await life.start(Node("owner"))
    async with life.session.transaction() as tx:
        for how in ({}, {"owner": owner, "conversation": ROOT}, {"owner": owner, "background": True}):
            with pytest.raises(Refused):
                tx.create_task(Node("x"), **how)  # type: ignore[arg-type]
    await life.close()


async def test_an_owned_conversation_that_was_idle_at_open_still_belongs_to_its_owner() -> None:
    life = await living()
    owner = await life.start(Node("owner", "sleep"))
    await settle()
    async with life.session.transaction() as tx:
        own = tx.create_conversation(owner=owner)
    life = await life.again(Node)
    work = await life.start(Node("work", "sleep"), conversation=own)
    await settle()
    await life.abort(owner)
    assert await life.outcome(work) == Aborted()
    assert await life.outcome(owner) == Aborted()
    assert ORDER[-2:] == ["work undone", "owner undone"]
    await life.close()
