"""What an orchestrator finds when it starts: what runs on, what has to be proven gone, and what is due."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure import Harness
from perdure.env import containment
from perdure.subagents import events, rows, starter
from perdure.subagents.client import reading
from perdure.subagents.engine import call_steps, call_task, processes
from perdure.subagents.evidence import read_evidence
from perdure.subagents.orchestrator import Orchestrator
from perdure.subagents.paths import StateRoot
from perdure.subagents.state import EndedDoc, ExecutionDoc, ResultDoc, Workflow, recent_key
from perdure.subagents.tool import deliver_notices
from tests.subagents.mortal import VARIABLE
from tests.subagents.place import Place

MARK = {"call": "bash", "args": {"command": "echo begun >> marks; sleep 1; echo done >> marks"}}


async def found_executions(at: Place) -> list[Any]:
    async with reading(at.root) as reader:
        return [] if reader is None else await rows.rows(reader, ExecutionDoc)


async def log(at: Place, wid: str, type: str) -> int:
    """How many events of a type a workflow has."""
    async with reading(at.root) as reader:
        return 0 if reader is None else sum(one.type == type for one in await events.of_workflow(reader, wid))


async def settled(at: Place, wid: str) -> bool:
    execution = (await found_executions(at))[0]
    return (await read_evidence(at.root.call_store(wid, "a"), execution.exec, 1)).settled


def started(root: StateRoot) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PERDURE_HOME": str(root.path)}
    return subprocess.Popen([sys.executable, "-m", starter.MODULE], env=environment, cwd="/")


async def test_r200_one_orchestrator_at_most_and_the_kernel_knows_when_it_is_gone(place: Callable[..., Place]) -> None:
    at = place({"*": [{"say": "done"}]}, k={"idleExitMs": 60_000})
    await starter.ensure(at.root)
    first = starter.running(at.root)
    assert first is not None
    second = started(at.root)
    assert await asyncio.to_thread(second.wait, 20) == 0
    assert starter.running(at.root) == first, "the card is the first one's"
    at.kill_orchestrator()
    third = started(at.root)
    async with asyncio.timeout(20):
        while (card := starter.running(at.root)) is None or card.pid != third.pid:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    await starter.ensure(at.root)
    third.terminate()
    assert await asyncio.to_thread(third.wait, 20) == 0


async def test_r208_r214_an_orchestrator_told_to_end_seals_nothing_and_its_host_goes_on(
    place: Callable[..., Place],
) -> None:
    at = place({"*": [MARK, {"say": "done"}]})
    wid = await at.single()
    await at.asked(1)
    execution = (await found_executions(at))[0]
    at.kill_orchestrator(15)
    await at.gone()
    assert (await at.call(wid)).phase == "running"
    assert [one.exec for one in await found_executions(at)] == [execution.exec], "held until it is proven gone"
    await starter.ensure(at.root)
    await at.sealed(wid)
    assert (await at.call(wid)).losses == 0
    assert (at.work / "marks").read_text() == "begun\ndone\n"
    assert {one["exec"] for one in at.requests} == {execution.exec}


async def test_r202_r209_what_ended_while_no_orchestrator_ran_is_read_from_its_session_once(
    place: Callable[..., Place],
) -> None:
    told = {"say": "all well", "hold": 0.5, "usage": {"input": 70, "output": 7}}
    at = place({"*": [told]})
    wid = await at.single()
    await at.asked(1)
    at.kill_orchestrator()
    async with asyncio.timeout(30):
        while not await settled(at, wid):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    at.kill_hosts()
    for _ in range(2):  # the second time, the store has it all
        await starter.ensure(at.root)
        assert (await at.sealed(wid))["calls"][0]["status"] == "ok"
        at.kill_orchestrator()
    assert len(at.requests) == 1, "no model was asked again"
    async with reading(at.root) as reader:
        assert reader is not None
        result = await rows.need(reader, ResultDoc, f"{wid}/a@1")
    assert (result.output, result.usage.input, result.usage.output, result.losses) == ("all well", 70, 7, 0)


async def test_r204_a_seal_and_what_follows_from_it_are_one_commit(place: Callable[..., Place]) -> None:
    at = place({"*": [{"call": "bash", "args": {"command": "echo begun >> marks; sleep 30"}}, {"say": "done"}]})
    wid = await at.single(once=True)
    await at.until(wid, lambda _: (at.work / "marks").exists())
    at.kill_orchestrator()
    at.kill_hosts()
    await at.gone()
    async with Orchestrator(at.root) as orchestrator:
        whole: list[bool] = []

        def published(publication: Any) -> None:
            kinds = {change.key[0] for change in publication.documents}
            if ResultDoc.kind in kinds:
                whole.append({"agents.notice", "agents.event", "agents.call", "agents.workflow"} <= kinds)

        orchestrator.harness.session.listeners.append(published)
        assert (await at.sealed(wid))["calls"][0]["status"] == "unknown"
    assert whole == [True]
    await starter.ensure(at.root)  # and whoever comes later adds nothing
    assert await log(at, wid, "sealed") == 1
    assert len([one for one in at.requests if one["done"]]) == 0


async def test_r205_what_cannot_be_killed_holds_its_call_and_no_other(
    place: Callable[..., Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    at = place({"a": [{"say": "a", "hold": 0.2}], "b": [{"say": "b", "hold": 0.2}]}, providers={"test": {"slots": 2}})
    stuck = True
    end_marked = containment.end_marked

    def ends(variable: str, value: str) -> tuple[str, ...]:
        return ("4711 (stuck)",) if stuck and "/a@" in value else end_marked(variable, value)

    monkeypatch.setattr(processes, "end_marked", ends)
    monkeypatch.setattr(call_steps, "FENCE_RETRY", 0.3)
    async with Orchestrator(at.root):
        first, second = await at.single(key="a"), await at.single(key="b")
        await at.sealed(second)
        found = await at.until(first, lambda found: found["calls"][0].get("waiting") is not None)
        assert found["calls"][0]["waiting"]["reason"] == "unconfirmed-stop"
        await asyncio.sleep(1.0)  # several tries
        assert (await at.call(first)).phase != "sealed"
        assert await at.slots() == {"test": 1}
        assert await log(at, first, "waiting") == 1, "told once"
        stuck = False
        found = await at.sealed(first)
        assert found["calls"][0]["status"] == "ok"
        assert await at.slots() == {}
    assert len([one for one in at.requests if one["key"] == "a"]) == 1, "nothing was started beside it"


async def test_r206_a_machine_that_cannot_list_its_processes_is_no_proof_that_one_is_gone(
    place: Callable[..., Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(variable: str, value: str, session: int | None = None) -> list[containment.Marked]:
        raise OSError(24, "Too many open files")

    at = place({"*": [{"say": "done"}]})
    works = containment.marked
    monkeypatch.setattr(containment, "marked", failing)
    monkeypatch.setattr(containment, "REAP_SECONDS", 0.2)
    monkeypatch.setattr(call_steps, "FENCE_RETRY", 0.3)
    async with Orchestrator(at.root):
        wid = await at.single()
        found = await at.until(wid, lambda found: found["calls"][0].get("waiting") is not None)
        assert "Too many open files" in found["calls"][0]["waiting"]["detail"]
        monkeypatch.setattr(containment, "marked", works)
        assert (await at.sealed(wid))["calls"][0]["status"] == "ok"


async def test_r072_a_host_that_the_machine_cannot_start_is_tried_again(
    place: Callable[..., Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    at = place({"*": [{"say": "done"}]})
    works = processes.spawn_host

    def failing(root: StateRoot, execution: Any, cwd: str) -> Any:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(call_task, "spawn_host", failing)
    monkeypatch.setattr(call_steps, "START_RETRY", 0.3)
    async with Orchestrator(at.root):
        wid = await at.single()
        found = await at.until(wid, lambda found: found["calls"][0].get("waiting") is not None)
        assert "Resource temporarily unavailable" in found["calls"][0]["waiting"]["detail"]
        monkeypatch.setattr(call_task, "spawn_host", works)
        await at.sealed(wid)
        call = await at.call(wid)
        assert (call.status, call.losses) == ("ok", 0)


async def test_r210_a_process_that_has_an_execution_s_number_is_not_touched(place: Callable[..., Place]) -> None:
    at = place({"*": [{"say": "done", "hold": 1}]})
    wid = await at.single()
    await at.asked(1)
    at.kill_orchestrator()
    at.kill_hosts()
    await at.gone()
    innocent = subprocess.Popen(["sleep", "60"])  # noqa: ASYNC220
    try:
        async with Harness.open(str(at.root.store)) as harness, harness.session.transaction() as tx:
            execution = (await rows.rows(tx, ExecutionDoc))[0]
            execution.pid, execution.boot = innocent.pid, "another boot"
            await rows.write(tx, ExecutionDoc, execution.exec, execution)
        await starter.ensure(at.root)
        assert (await at.sealed(wid))["calls"][0]["status"] == "ok"
        assert innocent.poll() is None
    finally:
        innocent.kill()
        innocent.wait()


async def test_r212_work_that_lies_still_goes_on_when_any_client_opens(
    place: Callable[..., Place], tmp_path: Path
) -> None:
    at = place({"*": [{"say": "done", "hold": 1}]}, k={"idleExitMs": 100})
    wid = await at.single()
    await at.asked(1)
    at.kill_orchestrator()
    assert await starter.has_work(at.root)
    async with Harness.open(tmp_path / "parent.db") as harness, deliver_notices(harness, at.root):
        assert (await at.sealed(wid))["calls"][0]["status"] == "ok"
        await at.gone()
        assert not await starter.has_work(at.root)
        await asyncio.sleep(1.0)
        assert starter.running(at.root) is None, "nothing is under way: nothing is started"


async def test_r213_a_thousand_finished_workflows_do_not_slow_a_start(place: Callable[..., Place]) -> None:
    at = place({"*": [{"say": "done"}]})
    async with Orchestrator(at.root) as orchestrator:
        for batch in range(10):
            async with orchestrator.harness.session.transaction() as tx:
                for number in range(batch * 100, batch * 100 + 100):
                    wid = f"01old{number:011}"
                    ended = time.time() - 1000 + number / 10
                    row = Workflow(
                        wid=wid, request=wid, sender="s", digest="", form="single", cwd="/", created=ended,
                        status="done", ended=ended,
                    )  # fmt: skip
                    await rows.put_workflow(tx, row)
                    await rows.write(tx, EndedDoc, recent_key(ended, wid), {"wid": wid})
    before = time.monotonic()
    await starter.ensure(at.root)
    took = time.monotonic() - before
    assert took < 3.0, f"{took:.2f} s"


FIRST, EVERY = 2, 13
"""The orchestrator makes about 35 commits for such a workflow; `make crash` stops it before each of them."""


@pytest.mark.parametrize("number", range(FIRST, 40, EVERY))
async def test_r214_an_orchestrator_killed_before_a_commit_is_followed_by_one_that_goes_on(
    place: Callable[..., Place], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    await killed_before(place, monkeypatch, number)


@pytest.mark.long
@pytest.mark.parametrize("number", range(1, 45))
async def test_r214_an_orchestrator_killed_before_any_commit(
    place: Callable[..., Place], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    await killed_before(place, monkeypatch, number)


async def killed_before(place: Callable[..., Place], monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    marks = {"call": "bash", "args": {"command": "echo $PERDURE_CALL >> marks"}}
    at = place({"*": [marks, {"say": "done"}]})
    with monkeypatch.context() as patched:
        patched.setenv(VARIABLE, str(number))
        patched.setattr(starter, "MODULE", "tests.subagents.mortal_orchestrator")
        steps = [
            {"agent": "worker", "task": "One", "key": "a"},
            {"agent": "worker", "task": "Two {previous}", "key": "b"},
        ]
        asked = asyncio.create_task(at.run("once", chain=steps, wait=60.0))
        await asyncio.sleep(0)
        async with asyncio.timeout(30):  # it may be killed before it listens, or live to the end
            while starter.running(at.root) is None and not at.root.store.exists():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await asyncio.sleep(1.5)
    await starter.ensure(at.root)
    outcome = await asked
    if outcome.state == "pending":  # each one that it started was killed at once: whoever asks again gets that run
        outcome = await at.run("once", chain=steps, wait=60.0)
    assert outcome.state == "applied"
    wid = outcome.reply["wid"]
    async with asyncio.timeout(90):
        while (found := await at.described(wid))["state"] != "sealed":
            await starter.ensure(at.root)  # on a slow machine it is killed only now
            await asyncio.sleep(0.05)
    assert [call["status"] for call in found["calls"]] == ["ok", "ok"]
    assert sorted((at.work / "marks").read_text().split()) == [f"{wid}/a", f"{wid}/b"]
    assert [await log(at, wid, type) for type in ("started", "sealed", "workflow-done")] == [2, 2, 1]
    assert [(await at.call(wid, key)).losses for key in "ab"] == [0, 0]
    assert await at.slots() == {}
