"""A deploy is not a failure: however the process stops, work goes on in the next one, to one answer."""

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from perdure import Extension, Harness, Next, Registry, Settings, TaskRun, UserMessage, phase, task
from perdure.agent.entries import SummaryEntry, UserEntry, put
from perdure.agent.pairing import check_pairing
from perdure.base.ids import ROOT
from perdure.models.messages import ToolResultMessage
from perdure.storage.memory import MemoryStorage
from perdure.storage.records import Task
from perdure.tasks.states import outcome_of, state_of
from perdure.testing.clock import FakeClock
from perdure.testing.laws import check_records
from perdure.testing.scripted_model import ScriptedModel, call, say
from tests.agent.compacting import Counting, small, talk

CALLS = ("look", "pay", "look", "pay", "look")
RESTARTS = 10
STEP = 0.1


@task("test.reminder", version=1)
class Reminder:
    """Parked work: sleeps, then says so in the transcript."""

    @phase(first=True)
    async def begin(self, run: TaskRun) -> Next[Any]:
        return run.sleep(self.remind, until=run.now() + 3)

    @phase
    async def remind(self, run: TaskRun) -> Next[Any]:
        async with run.transaction() as tx:
            put(tx, run.conversation_id, UserEntry, UserMessage("reminder"))
            return tx.complete(None)


class Deploys:
    """One store over many processes; what each of them really did, and what it told."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.storage = MemoryStorage()
        self.clock = FakeClock()
        self.process = 0
        self.dead: set[int] = set()
        self.ledger: list[tuple[str, int]] = []
        self.settlements: list[str] = []
        self.killed = False
        self.models: list[ScriptedModel] = []

    def extension(self) -> Extension:
        """The newest version: its tools are described anew, and say who answered."""
        mine = self.process
        shop = Extension("shop")
        shop.add(Reminder)

        async def work(what: str, number: int) -> str:
            if mine not in self.dead:
                self.ledger.append((what, number))
            await self.clock.sleep(1)
            return f"{what} {number} by version {mine}"

        @shop.tool(replay="safe", description=f"Look (version {mine}).")
        async def look(ctx: Any, number: int) -> str:
            return await work("look", number)

        @shop.tool(description=f"Pay (version {mine}).")
        async def pay(ctx: Any, number: int) -> str:
            return await work("pay", number)

        return shop

    def script(self) -> ScriptedModel:
        turns = [call(name, {"number": number}).after(0.4) for number, name in enumerate(CALLS)]
        return ScriptedModel.by_progress([*turns, say("all done").after(0.4, between=0.1)], clock=self.clock)

    async def start(self, models: Any = None, settings: Settings | None = None) -> Harness:
        self.process += 1
        mine = self.process
        self.models.append(models or self.script())
        harness = await Harness.open(
            self.storage,
            registry=Registry([self.extension()]),
            models=self.models[-1],
            settings=settings or Settings(restart_limit=RESTARTS + 1 if self.killed else 1),
            clock=self.clock,
        )

        def published(publication: Any) -> None:
            if mine not in self.dead:
                self.settlements += [s.status for s in publication.submissions if s.status in ("done", "unanswered")]

        harness.session.listeners.append(published)
        return harness

    async def stop(self, harness: Harness, how: str) -> None:
        """Close in good order, or die: what is stored at that moment is all that is left."""
        if how == "kill":
            left = self.storage.copy()
            self.dead.add(self.process)
            await harness.close()
            self.storage = left
            return
        assert await asyncio.wait_for(harness.close(), 5) == []
        live = [state_of(one) for one in await self.tasks() if one.status not in ("waiting", "sleeping", "terminal")]
        assert all(type(state).__name__ in ("Pending", "Completing") for state in live), "nothing is left running"
        if not self.killed:
            assert all(getattr(state, "restarts", 0) == 0 for state in live), "a close is no restart"

    async def go_on(self, seconds: float) -> None:
        """Let time pass in small steps, so that what wakes can begin its own waiting."""
        for _ in range(round(seconds / STEP)):
            await self.clock.advance(STEP)

    async def finish(self, harness: Harness) -> None:
        """Let time pass until nothing is left to do, however long threads of the real world take for their part."""
        async with asyncio.timeout(60):
            while harness.inspect()["tasks"]:
                await self.clock.advance(STEP)
                await asyncio.sleep(0.001)

    async def tasks(self) -> list[Task]:
        looking = self.storage.copy()
        await looking.open()
        found = list(await looking.scan_tasks(conversation=ROOT, limit=1000))
        await looking.close()
        return found


@pytest.mark.slow
@pytest.mark.parametrize("how", ["close", "kill", "either"])
@pytest.mark.parametrize("seed", range(6))
async def test_ten_restarts_at_random_points_of_five_calls_end_in_one_answer(how: str, seed: int) -> None:
    deploys = Deploys(seed)
    deploys.killed = how != "close"
    for number in range(RESTARTS + 1):
        harness = await deploys.start()
        root = await harness.root(model="scripted:model")
        submission = await root.submit("go", request_id="job")
        if number == 0:
            async with harness.session.transaction() as tx:
                tx.create_task(Reminder(), conversation=ROOT, background=True)
        await harness.resume()
        if number < RESTARTS:
            await deploys.go_on(deploys.dice.random() * 2.5)
            stop = deploys.dice.choice(("close", "kill")) if how == "either" else how
            await deploys.stop(harness, stop)
    await deploys.finish(harness)
    assert (await submission.wait()).text == "all done"
    await check_records(harness)
    messages = await root.messages()
    check_pairing(messages)
    results = [str(m.content) for m in messages if isinstance(m, ToolResultMessage)]
    done = Counter(deploys.ledger)
    assert len(results) == len(CALLS)
    for count, (name, text) in enumerate(zip(CALLS, results, strict=True)):
        if name == "look":
            assert text.startswith(f"look {count} by version")
            assert done[name, count] >= 1
        else:
            assert done[name, count] <= 1
            assert text.startswith((f"pay {count} by version", "interrupted"))
            assert done[name, count] == 1 or text.startswith("interrupted")
    outcomes = {outcome_of(one).status for one in await deploys.tasks() if one.status == "terminal"}
    assert outcomes == {"completed"}
    assert [m.content for m in messages if isinstance(m, UserMessage)].count("reminder") == 1
    assert deploys.settlements == ["done"]
    await harness.close()


@pytest.mark.parametrize("how", ["close", "kill"])
@pytest.mark.parametrize("during", ["the first request", "a safe tool", "the second request", "an unsafe tool"])
async def test_a_stop_during_a_request_a_safe_and_an_unsafe_tool_is_taken_up(how: str, during: str) -> None:
    deploys = Deploys(0)
    harness = await deploys.start()
    root = await harness.root(model="scripted:model")
    await root.submit("go", request_id="job")
    calls, asked = {"the first request": (0, 1), "a safe tool": (1, 1), "the second request": (1, 2)}.get(
        during, (2, 2)
    )
    requests = deploys.models[-1].requests
    async with asyncio.timeout(60):
        while (len(deploys.ledger), len(requests)) != (calls, asked):
            await deploys.clock.advance(STEP)
            await asyncio.sleep(0.001)
    await deploys.stop(harness, how)
    harness = await deploys.start()
    await harness.resume()
    await deploys.finish(harness)
    root = await harness.root()
    submission = await root.submit("go", request_id="job")
    assert (await submission.wait()).text == "all done"
    assert deploys.settlements == ["done"]
    messages = await root.messages()
    results = [str(m.content).split(":")[0] for m in messages if isinstance(m, ToolResultMessage)]
    looked_by = 2 if during in ("the first request", "a safe tool") else 1
    assert results[:2] == [
        f"look 0 by version {looked_by}",
        "interrupted" if during == "an unsafe tool" else "pay 1 by version 2",
    ]
    assert Counter(deploys.ledger)["pay", 1] == 1
    assert Counter(deploys.ledger)["look", 0] == (2 if during == "a safe tool" else 1)
    await harness.close()


@pytest.mark.parametrize("how", ["close", "kill"])
async def test_a_stop_during_a_compaction_leaves_one_summary_in_the_end(how: str) -> None:
    deploys = Deploys(0)

    def model() -> Counting:
        return Counting(summary=lambda request: say("NOTES").after(1), clock=deploys.clock)

    settings = small(automatic=False, keep_tokens=100)
    harness = await deploys.start(model(), settings)
    root = await harness.root(model="scripted:model")
    await talk(root, 6)
    await root.compact()
    await deploys.go_on(0.5)
    await deploys.stop(harness, how)
    harness = await deploys.start(model(), settings)
    await harness.resume()
    await deploys.finish(harness)
    root = await harness.root()
    assert [entry.kind for entry in await root.entries(limit=500)].count(SummaryEntry.KIND) == 1
    assert "NOTES" in str(next(iter(await root.messages())))
    assert {outcome_of(one).status for one in await deploys.tasks() if one.status == "terminal"} == {"completed"}
    check_pairing(await root.messages())
    await harness.close()
