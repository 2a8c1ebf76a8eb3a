"""What wakes a parent and what it reads, and why a call does not move."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure import Harness, Registry, ToolResultMessage, UserMessage
from perdure.models.protocol import ModelRequest
from perdure.subagents import events, rows
from perdure.subagents.client import Client, reading
from perdure.subagents.config import AgentsConfig, MemoryConfig, ProviderConfig
from perdure.subagents.engine.admission import obstacle
from perdure.subagents.engine.sealing import seal
from perdure.subagents.model_names import parse_model
from perdure.subagents.notices import put_notice
from perdure.subagents.orchestrator import Orchestrator
from perdure.subagents.state import (
    Call,
    CallDoc,
    Event,
    Execution,
    ExecutionDoc,
    Exhausted,
    ExhaustedDoc,
    LiveDoc,
    NoticeDoc,
    Result,
    ResultDoc,
    Usage,
    Workflow,
)
from perdure.subagents.telling import NOTICE_LENGTH, finished_text
from perdure.subagents.tool import deliver_notices, subagents_tool
from perdure.testing.scripted_model import ScriptedModel, call, say
from tests.subagents.place import Place

pytestmark = pytest.mark.slow
Make = Callable[..., Place]
ASK = {"call": "ask", "args": {"question": "Which color?"}}


def parent(at: Place, path: Path, turn: Callable[[ModelRequest], Any]) -> Any:
    return Harness.open(path, registry=Registry([subagents_tool(at.root)]), models=ScriptedModel(turn))


def users(request: ModelRequest) -> list[str]:
    return [str(one.content) for one in request.messages if isinstance(one, UserMessage)]


async def log(at: Place, *types: str) -> list[Event]:
    async with reading(at.root) as reader:
        assert reader is not None
        epoch = (await events.head(reader)).partition(".")[0]
        return [one for one in (await events.after(reader, f"{epoch}.0")).events if one.type in types]


async def test_r330_r334_r338_ten_calls_without_incident_wake_their_parent_once_and_nobody_else(
    place: Make, tmp_path: Path
) -> None:
    at = place({"*": [{"say": "fine"}]})
    tasks = [{"agent": "worker", "task": "x", "key": f"k{number}"} for number in range(10)]
    requests: list[ModelRequest] = []

    def turn(request: ModelRequest) -> Any:
        requests.append(request)
        if any(isinstance(message, ToolResultMessage) for message in request.messages):
            return say("heard")
        return call("subagents", {"tasks": tasks, "options": {"cwd": str(at.work)}})

    other_requests: list[ModelRequest] = []

    def silent(request: ModelRequest) -> Any:
        other_requests.append(request)
        return say("x")

    async with (
        parent(at, tmp_path / "one.db", turn) as harness,
        parent(at, tmp_path / "two.db", silent) as other,
        deliver_notices(harness, at.root),
        deliver_notices(other, at.root),
    ):
        root = await harness.root(model="scripted:model")
        await other.root(model="scripted:model")
        await (await root.submit("Go")).wait()
        async with asyncio.timeout(60):
            while not any("finished" in text for text in users(requests[-1])):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        await root.wait_idle()
    told = [text for text in users(requests[-1]) if text.startswith("[subagents:")]
    assert len(told) == 1
    assert told[0].count(": ok (") == 10
    assert other_requests == []


async def test_r333_r335_r337_what_is_settled_is_never_told_as_open_and_notes_wake_nobody(
    place: Make, tmp_path: Path
) -> None:
    at = place({"a": [ASK, {"say": "blue"}]})
    requests: list[ModelRequest] = []

    def turn(request: ModelRequest) -> Any:
        requests.append(request)
        if any(isinstance(message, ToolResultMessage) for message in request.messages):
            return say("heard")
        return call("subagents", {"agent": "worker", "task": "x", "options": {"cwd": str(at.work), "key": "a"}})

    async with parent(at, tmp_path / "one.db", turn) as harness:
        root = await harness.root(model="scripted:model")
        async with deliver_notices(harness, at.root):
            await (await root.submit("Go")).wait()
            async with asyncio.timeout(30):
                while not any("asks: Which color?" in text for text in users(requests[-1])):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            await root.wait_idle()
            before = len(requests)
            await (await root.submit("And now?")).wait()
            assert "Questions of subagents that are open" in str(requests[-1].system)
            assert "Which color?" in str(requests[-1].system)
            by_hand = Client(at.root, "user", via="ui")
            assert (await by_hand.ask("answer", {"message": "blue"})).state == "applied"
            async with asyncio.timeout(30):
                while not any("finished" in text for text in users(requests[-1])):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            await root.wait_idle()
            assert len(requests) == before + 2, "the answer itself woke nobody"
            assert "all are settled" in str(requests[-1].system)
    assert len([text for text in users(requests[-1]) if "asks: Which color?" in text]) == 1


async def a_workflow(tx: Any, results: dict[str, Result], status: Any = "done") -> Workflow:
    row = Workflow(
        wid="w1", request="r", sender="s", digest="d", form="tasks", cwd="/", created=0.0, origin="s1", status=status,
        calls=list(results),
    )  # fmt: skip
    await rows.put_workflow(tx, row)
    for key, result in results.items():
        found = Call(wid="w1", key=key, agent="worker", spec={}, fingerprint="f", created=0.0)
        found.phase, found.status = "sealed", result.status
        await rows.write(tx, CallDoc, f"w1/{key}", found)
        await rows.write(tx, ResultDoc, f"w1/{key}@1", result)
    return row


async def test_r334_r243_a_notice_shares_its_room_and_keeps_errors_and_usage(tmp_path: Path) -> None:
    usage = Usage(input=10, output=20, cost_usd=0.5)
    results = {
        "short": Result(key="short", gen=1, status="ok", output="brief", usage=usage),
        "long": Result(key="long", gen=1, status="ok", output="x" * 50_000 + "the end", usage=usage),
        "bad": Result(key="bad", gen=1, status="failed", error="no such key", output="y" * 50_000, usage=usage),
        "stopped": Result(key="stopped", gen=1, status="stopped", error="stopped", usage=usage),
        "data": Result(key="data", gen=1, status="ok", output="text", data={"answer": 42}, usage=usage),
    }
    async with Harness.open("memory:") as harness, harness.session.transaction() as tx:
        text = await finished_text(tx, await a_workflow(tx, results))
        call = await rows.need(tx, CallDoc, "w1/short")
        call.generation, call.phase, call.status = 2, "running", None
        await rows.put_call(tx, call)
        workflow = await rows.workflow(tx, "w1")
        assert workflow is not None
        going = await finished_text(tx, workflow)
    assert len(text) <= NOTICE_LENGTH + 500
    assert "\nbrief" in text
    assert "the end" in text
    assert '{"answer":42}' in text
    assert "bad@1: failed: no such key" in text
    assert text.count("(10 in, 20 out, $0.5000)") == 5
    stopped = next(line for line in text.splitlines() if "stopped@1" in line)
    assert "failed" not in stopped
    assert "edited stays" in stopped
    assert "status shows all" in text
    assert "short@2: going on" in going


async def test_r359_r354_a_decision_that_cannot_be_logged_is_none(place: Make) -> None:
    at = place({"a": [{"say": "x"}]})
    async with Orchestrator(at.root) as orchestrator:
        wid = await at.single("job")
        await at.sealed("job")
        newest = (await log(at, "workflow-done"))[-1].cursor
        session = orchestrator.harness.session

        async def failing() -> None:
            async with session.transaction() as tx:
                await events.append_event(tx, "pruned")
                raise RuntimeError("before it is stored")

        with pytest.raises(RuntimeError):
            await failing()
        assert await events.head(session) == newest
        assert (await at.client.ask("prune", {"to": wid}, wait=30)).state == "applied"
        (pruned,) = await log(at, "pruned")
        assert pruned.wid == wid
        assert int(pruned.cursor.partition(".")[2]) == int(newest.partition(".")[2]) + 1


async def test_r382_r383_a_listed_run_belongs_to_its_sender_and_a_subagent_sees_no_session(
    place: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_SESSION", "s-parent")
    shows = {"call": "bash", "args": {"command": "echo session=$PERDURE_SESSION home=$PERDURE_HOME > seen"}}
    at = place({"a": [shows, {"say": "x"}]})
    body = {"cwd": str(at.work), "agent": "worker", "task": "x", "key": "a"}
    plain = Client(at.root, "cli:me@here")
    listed = Client(at.root, "cli:you@here", listed="s-parent")
    first = await plain.ask("run", body, request="one", wait=30)
    second = await listed.ask("run", body, request="two", wait=30)
    found = await at.sealed("two")
    assert (found["listed"], found.get("origin"), found["sender"]) == ("s-parent", None, "cli:you@here")
    assert first.digest == second.digest, "where it is listed is no part of what is asked"
    await at.sealed("one")
    assert (at.work / "seen").read_text() == f"session= home={at.root.path}\n"
    assert os.environ["PERDURE_SESSION"] == "s-parent"
    async with reading(at.root) as reader:
        assert reader is not None
        assert await rows.keys(reader, NoticeDoc) == []


# why a call does not move


class Queue:
    """A call of a live workflow that wants to run at `test`, and others that do."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.call = Call(wid="w1", key="a", agent="worker", spec={}, fingerprint="f", created=0.0)

    async def why(
        self, *, slots: int | None = None, memory: float = 1e9, rows_: Callable[[Any], Any] | None = None
    ) -> Any:
        config = AgentsConfig(memory=MemoryConfig(reserve_mb=100, per_child_mb=100))
        if slots is not None:
            config.providers["test"] = ProviderConfig(slots=slots)
        async with self.harness.session.transaction() as tx:
            workflow = Workflow(wid="w1", request="r", sender="s", digest="", form="single", cwd="/", created=0.0)
            workflow.calls = workflow.open = ["a"]
            await rows.put_workflow(tx, workflow)
            await rows.put_call(tx, self.call)
            await rows.write(tx, LiveDoc, "w1", {})
            if rows_ is not None:
                await rows_(tx)
            return await obstacle(tx, config, self.call, parse_model("test/one"), memory)


def running(number: int, admitted: float = 0.0) -> Callable[[Any], Any]:
    async def write(tx: Any) -> None:
        for one in range(number):
            execution = Execution(
                exec=f"e{one}", wid="w2", key=f"k{one}", generation=1, nonce="", provider="test", model="test:one",
                admitted=admitted,
            )  # fmt: skip
            await rows.write(tx, ExecutionDoc, execution.exec, execution)

    return write


def used_up(next_try: float, probe: str | None = None) -> Callable[[Any], Any]:
    async def write(tx: Any) -> None:
        found = Exhausted(provider="test", since=0.0, error="limit reached", next_try=next_try, probe=probe)
        await rows.write(tx, ExhaustedDoc, "test", found)

    return write


async def test_r370_r371_r265_the_first_reason_that_applies_is_the_one(tmp_path: Path) -> None:
    async def both(tx: Any) -> None:
        await running(1)(tx)
        await used_up(4e12)(tx)

    cases: list[tuple[dict[str, Any], tuple[str, str] | None]] = [
        ({}, None),
        ({"slots": 1}, None),
        ({"slots": 1, "rows_": running(1)}, ("slot", "test 1/1")),
        ({"slots": 2, "rows_": running(1)}, None),
        ({"rows_": used_up(4e12)}, ("provider-exhausted", "limit reached")),
        ({"rows_": used_up(0.0)}, None),
        ({"rows_": used_up(0.0, "w9/z")}, ("provider-exhausted", "limit reached")),
        ({"rows_": used_up(0.0, "w1/a")}, None),
        ({"slots": 1, "rows_": both}, ("provider-exhausted", "limit reached")),
        ({"memory": 150.0}, ("slot", "memory")),
        ({"memory": 200.0}, None),
        ({"memory": 350.0, "rows_": running(2, admitted=9e12)}, ("slot", "memory")),
        ({"memory": 350.0, "rows_": running(2, admitted=0.0)}, None),
    ]
    for given, expected in cases:
        async with Harness.open("memory:") as harness:
            found = await Queue(harness).why(**given)
        if expected is None:
            assert found is None, (given, found)
        else:
            assert found is not None, given
            waiting, _ = found
            assert (waiting.reason, expected[1] in waiting.detail) == (expected[0], True), given


async def test_r372_r373_r374_r066_waiting_and_moving_are_told_once_each_and_never_of_what_is_held_or_sealed(
    place: Make,
) -> None:
    script = {"a": [{"say": "x", "hold": 1.0}], "b": [ASK, {"say": "y"}]}
    at = place(script, providers={"test": {"slots": 1}}, k={"hibernateMs": 0})
    async with Orchestrator(at.root):
        asker = await at.single("b", key="b")
        await at.until("b", lambda found: bool(found["calls"]) and found["calls"][0].get("hibernated"))
        await at.single("a", key="a")
        await at.asked(2)
        await at.client.ask("answer", {"message": "blue"})
        shown = await at.until("b", lambda found: found["calls"][0].get("waiting") is not None)
        call = shown["calls"][0]
        assert call["waiting"]["reason"] == "slot", "the question is answered: it waits like any other"
        assert call["question"]["answered"] is True
        held = await at.client.ask("drain", {})
        assert held.state == "applied"
        async with asyncio.timeout(30):
            while not (await at.call(asker, "b")).held:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    async with Orchestrator(at.root):  # a restart tells nothing again
        await at.client.ask("resume", {})
        await at.sealed("a")
        sealed = (await at.sealed("b"))["calls"][0]
        assert "waiting" not in sealed
        found = await log(at, "waiting", "moving")
        told = [(one.type, one.key, one.data.get("reason", one.data.get("after"))) for one in found]
    assert told.count(("waiting", "b", "slot")) <= 2
    assert told.count(("moving", "b", "slot")) == told.count(("waiting", "b", "slot"))
    assert all(key == "b" for _, key, _ in told)


async def test_r190_a_seal_settles_what_was_open_and_twice_adds_nothing(tmp_path: Path) -> None:
    async with Harness.open("memory:") as harness:
        async with harness.session.transaction() as tx:
            row = await a_workflow(tx, {}, "running")
            row.calls, row.open = ["a"], ["a"]
            await rows.put_workflow(tx, row)
            await rows.put_call(tx, Call(wid="w1", key="a", agent="worker", spec={}, fingerprint="f", created=0.0))
            for kind in ("question", "stall", "unknown"):
                await put_notice(tx, row, kind, kind, key="a", detail="q1")
        for _ in range(2):
            async with harness.session.transaction() as tx:
                await seal(tx, "w1", "a", 1, {"status": "ok", "output": "x"})
            found = {one.kind: one for one in await rows.rows(harness.session, NoticeDoc)}
            assert {kind: one.resolved is None for kind, one in found.items()} == {
                "question": False, "stall": False, "unknown": True,
            }  # fmt: skip
            assert {one.rev for one in found.values()} == {1}
