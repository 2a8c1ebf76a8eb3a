"""Generations, revisions, results, and what a script's run leaves."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.env import containment
from perdure.subagents import events, rows, starter
from perdure.subagents.client import Client, reading
from perdure.subagents.engine import call_steps, processes
from perdure.subagents.orchestrator import Orchestrator
from perdure.subagents.spool import Outbox, Sent
from perdure.subagents.state import NoticeDoc, ResultDoc, WorkflowDoc
from perdure.subagents.status import workflow_status
from tests.subagents.place import Place

pytestmark = pytest.mark.slow
Make = Callable[..., Place]


async def send(at: Place, kind: Any, to: str, message: str = "", request: str | None = None, **more: Any) -> Any:
    body = {"to": to, **({"message": message} if message else {}), **more}
    return await at.client.ask(kind, body, request=request, wait=30)


async def log(at: Place, wid: str, type: str) -> list[Any]:
    async with reading(at.root) as reader:
        assert reader is not None
        return [one for one in await events.of_workflow(reader, wid) if one.type == type]


SPENDS = {"call": "bash", "args": {"command": "true"}, "usage": {"input": 90, "output": 90}}
STATUSES: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "ok": ([{"say": "fine"}], {}),
    "failed": ([{"fail": "no such key", "kind": "fatal"}], {}),
    "gate-failed": ([{"say": "fine"}], {"gate": "exit 1"}),
    "timeout": ([{"say": "late", "hold": 60}], {"timeoutMs": 500}),
    "budget": ([SPENDS, {"say": "x"}], {"budget": {"tokens": 100}}),
    "stopped": ([{"say": "late", "hold": 60}], {}),
    "unknown": ([{"call": "bash", "args": {"command": "echo begun >> marks; sleep 60"}}], {"once": True}),
}  # fmt: skip


async def test_r093_r110_r090_r101_results_of_every_status_have_one_shape(place: Make) -> None:
    at = place({key: turns for key, (turns, _) in STATUSES.items()})
    tasks = [{"agent": "worker", "task": "x", "key": key, **more} for key, (_, more) in STATUSES.items()]
    mine = Client(at.root, "s-parent", origin="s-parent")
    outcome = await mine.ask("run", {"cwd": str(at.work), "tasks": tasks}, request="job", wait=30)
    wid = outcome.reply["wid"]
    await at.until("job", lambda _: (at.work / "marks").exists())
    await at.until("job", lambda found: {call["key"]: call["phase"] for call in found["calls"]}["stopped"] == "running")
    await at.kill_host(wid, "unknown")
    assert (await send(at, "stop", f"{wid}/stopped")).state == "applied"
    found = await at.sealed("job")
    assert found["status"] == "done"
    for call, shown in zip(found["calls"], found["result"], strict=True):
        assert call["status"] == call["key"]
        assert {"key", "gen", "status", "ok", "output"} <= set(shown)
        assert (shown["key"], shown["gen"], shown["ok"]) == (call["key"], 1, call["status"] == "ok")
        assert (shown.get("error") is None) == (call["status"] == "ok"), shown
        assert set(shown["usage"]) <= {"input", "output", "costUsd"}
    assert (await at.workflow(wid)).status == "done"
    followed = await send(at, "follow-up", f"{wid}/ok", "More")
    assert followed.reply["generation"] == 2
    await at.sealed("job")
    async with reading(at.root) as reader:
        assert reader is not None
        finished = [one for one in await rows.rows(reader, NoticeDoc) if one.kind == "finished"]
    assert len(finished) == 2, "one of the workflow, and one of the generation after it"
    for key in STATUSES:
        sealed = [one for one in await log(at, wid, "sealed") if one.key == key]
        assert len(sealed) == (2 if key == "ok" else 1), key


async def test_r111_b125_a_long_output_is_whole_for_the_store_and_for_the_script(place: Make) -> None:
    text = "".join(chr(33 + number % 90) for number in range(1_000_000))
    at = place({"a": [{"say": text}]})
    source = (
        "async def main(runs, args):\n"
        '    r = await runs.run("a", {"agent": "worker", "task": "x"})\n'
        "    return [len(r.output), r.output[-9:]]\n"
    )
    outcome = await at.run("job", source=source)
    assert outcome.state == "applied"
    found = await at.sealed("job")
    assert found["result"] == [1_000_000, text[-9:]]
    assert found["calls"][0]["output"] == text


async def test_r112_r113_r114_reports_gates_and_caches_in_a_result(place: Make) -> None:
    report = {"call": "report", "args": {"outcome": "ok", "summary": "All is well.", "data": {"n": 1}}}
    cached = {"input": 100, "output": 10, "cache_read": 40, "cache_write": 5}
    at = place({"a": [report, {"say": "Last line."}], "b": [{"say": "text", "usage": cached}], "c": [{"say": "text"}]})
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    gate = {"command": "echo '[1, 2]'", "output": "json"}
    tasks = [
        {"agent": "worker", "task": "x", "key": "a", "schema": schema, "gate": gate},
        {"agent": "worker", "task": "x", "key": "b"},
        {"agent": "worker", "task": "x", "key": "c", "gate": gate},
    ]
    outcome = await at.run("job", tasks=tasks)
    wid = outcome.reply["wid"]
    found = {call["key"]: call for call in (await at.sealed("job"))["calls"]}
    assert found["a"]["data"] == {"n": 1, "gate": [1, 2]}
    assert found["a"]["output"].startswith("All is well.")
    assert found["c"]["data"] == {"gate": [1, 2]}, "where there is no object, there is one that holds only the gate's"
    total = found["b"]["usage"]["input"]
    assert total >= 100
    for _ in range(2):
        at.kill_orchestrator()
        await at.gone()
        await starter.ensure(at.root)
    async with reading(at.root) as reader:
        assert reader is not None
        assert (await rows.need(reader, ResultDoc, f"{wid}/b@1")).usage.input == total


async def test_r084_r083_r115_r053_a_refused_call_says_the_same_everywhere_and_the_script_goes_on(place: Make) -> None:
    at = place({"*": [{"say": "ok"}]})
    source = (
        "async def main(runs, args):\n"
        '    bad = await runs.run("bad", {"agent": "worker", "tsak": "x"})\n'
        '    who = await runs.run("who", {"agent": "nobody", "task": "x"})\n'
        '    good = await runs.run("good", {"agent": "worker", "task": "x"})\n'
        "    return [bad.error, who.error, good.status]\n"
    )
    outcome = await at.run("job", source=source)
    found = await at.sealed("job")
    errors = {call["key"]: call.get("error") for call in found["calls"]}
    assert found["result"] == [errors["bad"], errors["who"], "ok"]
    assert "tsak" in errors["bad"]
    assert "nobody" in errors["who"]
    assert [call["gen"] for call in found["calls"]] == [0, 0, 1]
    async with reading(at.root) as reader:
        assert reader is not None
        workflow = await rows.need(reader, WorkflowDoc, outcome.reply["wid"])
        shown = await workflow_status(reader, workflow)
    assert {call["key"]: call.get("error") for call in shown["calls"]} == errors


async def test_r070_r071_r098_r084_a_revision_takes_over_what_is_unchanged(place: Make) -> None:
    turns = {"a": [{"say": "one"}], "b": [{"say": "two"}, {"say": "more"}, {"say": "x"}]}
    at = place({**turns, "c": [{"say": "never", "hold": 60}]})
    outcome = await at.run("job", tasks=[{"agent": "worker", "task": key, "key": key} for key in "abc"])
    wid = outcome.reply["wid"]
    await at.until("job", lambda found: [call["phase"] for call in found["calls"]] == ["sealed", "sealed", "running"])
    assert (await send(at, "follow-up", f"{wid}/b", "More")).reply["generation"] == 2
    await at.until("job", lambda found: found["calls"][1]["gen"] == 2 and found["calls"][1]["phase"] == "sealed")
    asked = len(at.requests)
    revised = await at.client.ask(
        "revise",
        {
            "to": wid, "cwd": str(at.work),
            "tasks": [{"agent": "worker", "task": "a", "key": "a"}, {"agent": "worker", "task": "changed", "key": "b"}],
        },
        wait=30,
    )  # fmt: skip
    assert (revised.state, revised.reply["revision"]) == ("applied", 2)
    await at.until("job", lambda found: found["revision"] == 2 and found["state"] == "sealed")
    assert [one["key"] for one in at.requests[asked:]] == ["b"], "a stands, c was given up"
    assert (await at.call(wid, "b")).generation == 3, "numbering goes on"
    async with reading(at.root) as reader:
        assert reader is not None
        assert await rows.read(reader, ResultDoc, f"{wid}/c@1") is None, "retired, never sealed"
    stale = await send(at, "steer", f"{wid}@1/a@1", "x")
    assert stale.reply["reason"] == "stale-revision"
    nowhere = {"to": wid, "cwd": "/nowhere/at/all", "tasks": [{"agent": "worker", "task": "x"}]}
    broken = await at.client.ask("revise", nowhere, wait=30)
    assert broken.state == "rejected"
    assert broken.reply["reason"].startswith("pin-failed")
    assert (await at.workflow(wid)).revision == 2
    assert await at.slots() == {}


async def test_r098_r099_r100_r103_a_generation_on_a_finished_workflow_is_work_of_its_own(place: Make) -> None:
    usage = {"input": 10, "output": 1}
    at = place({"a": [{"say": "one", "usage": usage}, {"say": "two", "usage": usage}]})
    wid = await at.single("job")
    await at.sealed("job")
    assert (await at.client.ask("drain", {}, wait=30)).state == "applied"
    sent = await asyncio.gather(*(send(at, "follow-up", f"{wid}/a", "More", "again") for _ in range(3)))
    assert {one.reply["generation"] for one in sent} == {2}, "a name opens one generation"
    await at.sealed("job")
    assert (await at.workflow(wid)).status == "done"
    assert (await at.workflow(wid)).result["output"] == "one"
    async with reading(at.root) as reader:
        assert reader is not None
        first, second = [await rows.need(reader, ResultDoc, f"{wid}/a@{number}") for number in (1, 2)]
    assert (first.usage.input, second.usage.input) == (10, 10)
    assert len(at.requests) == 2
    texts = [text for _, text in at.requests[-1]["messages"]]
    assert texts == ["Do it", "one", "More"], "the same conversation"


async def test_r091_r092_no_execution_of_a_sealed_generation_starts(
    place: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = place({"*": [{"say": "ok", "hold": 0.3}]})
    alive: list[str] = []
    async with Orchestrator(at.root) as orchestrator:

        def published(publication: Any) -> None:
            for change in publication.documents:
                if change.key[0] == ResultDoc.kind:
                    name = str(change.key[3])
                    for pid in at.processes():
                        try:
                            environment = Path(f"/proc/{pid}/environ").read_bytes()
                        except OSError:
                            continue
                        if f"PERDURE_EXEC={name}".encode() in environment:
                            alive.append(name)

        orchestrator.harness.session.listeners.append(published)
        outcome = await at.run("job", tasks=[{"agent": "worker", "task": "x", "key": key} for key in "abc"])
        wid = outcome.reply["wid"]
        await at.sealed("job")
        assert alive == [], "whatever is sealed is proven gone before"
        count = len(at.requests)
        await orchestrator.intake.reconsider()
        await asyncio.sleep(0.3)
        assert len(at.requests) == count
        assert [len([one for one in await log(at, wid, "sealed") if one.key == key]) for key in "abc"] == [1, 1, 1]


async def test_r163_a_stop_returns_at_once_though_processes_do_not_die(
    place: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = place({"*": [{"say": "x", "hold": 60}]})
    stuck, works = True, containment.end_marked

    def ends(variable: str, value: str) -> tuple[str, ...]:
        return ("4711 (stuck)",) if stuck else tuple(works(variable, value))

    monkeypatch.setattr(processes, "end_marked", ends)
    monkeypatch.setattr("perdure.subagents.engine.call_task.FENCE_RETRY", 0.2)
    monkeypatch.setattr(call_steps, "FENCE_RETRY", 0.2)
    async with Orchestrator(at.root):
        wid = await at.single("job")
        await at.asked(1)
        began = time.monotonic()
        assert (await send(at, "stop", f"{wid}/a")).state == "applied"
        assert time.monotonic() - began < 5
        await at.until("job", lambda found: found["calls"][0].get("waiting") is not None)
        assert (await at.call(wid)).phase != "sealed"
        stuck = False
        assert (await at.sealed("job"))["calls"][0]["status"] == "stopped"


async def test_r051_r052_r123_r059_a_run_that_is_not_decided_yet_is_known_by_its_request(place: Make) -> None:
    at = place({"a": [{"say": "ok"}, {"say": "more"}]}, k={"idleExitMs": 60_000})
    await starter.ensure(at.root)
    card = starter.running(at.root)
    assert card is not None
    os.kill(card.pid, signal.SIGSTOP)
    try:
        pending = await at.run("job", wait=1.0, agent="worker", task="x", key="a", name="The job")
        assert pending.state == "pending"
        assert (await at.described("job"))["state"] == "pending"
        early = await Client(at.root, "cli:other@here").ask(
            "notify", {"to": "job/a", "message": "hello"}, request="early", wait=0.5
        )
        assert early.state == "pending"
    finally:
        os.kill(card.pid, signal.SIGCONT)
    found = await at.sealed("job")
    assert found["name"] == "The job"
    assert (await send(at, "steer", "job/a", "x")).state == "rejected"
    assert (await send(at, "follow-up", "job/a", "More")).reply["generation"] == 2
    await at.sealed("job")
    assert (await send(at, "stop", "job")).reply["reason"] == "terminal:done"
    assert (await send(at, "resume", "job")).reply["reason"] == "terminal:done"
    rejected = await at.run("bad", agent="nobody", task="x")
    assert rejected.state == "rejected"
    assert "nobody" in (await send(at, "steer", "bad/a", "x")).reply["reason"]


async def test_r069_a_script_s_lines_are_kept_each_on_one_line_and_not_without_end(place: Make) -> None:
    at = place({})
    source = (
        "async def main(runs, args):\n"
        '    print("one\\ntwo\\x1b[31m")\n'
        "    for n in range(2200):\n"
        '        print("x" * 1000)\n'
        "    return 1\n"
    )
    outcome = await at.run("job", source=source)
    assert (await at.sealed("job"))["result"] == 1
    console = at.root.console(outcome.reply["wid"]).read_text()
    lines = console.splitlines()
    assert "\x1b" not in console
    assert "one" in lines[0]
    assert "two" in lines[0], "a newline is escaped"
    assert len(console) <= 1024 * 1024 + 200
    assert "is full" in lines[-1]


async def test_r074_b066_calls_run_side_by_side_and_those_without_a_slot_are_queued(place: Make) -> None:
    at = place({"*": [{"say": "ok", "hold": 3.0}]})
    outcome = await at.run("job", tasks=[{"agent": "worker", "task": "x", "key": f"k{n}"} for n in range(8)])
    await at.asked(8)
    found = await at.described("job")
    assert {call["phase"] for call in found["calls"]} == {"running"}, "all at once"
    at.configure(providers={"test": {"slots": 1}})
    await asyncio.sleep(0.5)
    await at.single("late", key="late")
    shown = await at.until("late", lambda found: found["calls"][0].get("waiting") is not None)
    assert (shown["calls"][0]["phase"], shown["calls"][0]["waiting"]["reason"]) == ("queued", "slot")
    assert outcome.state == "applied"
    await at.sealed("late")


async def test_r097_b039_a_finished_tool_s_result_is_kept_over_a_dropped_stream(place: Make) -> None:
    shell = {"call": "bash", "args": {"command": "echo found-it"}}
    at = place({"a": [shell, {"say": "done", "once": {"fail": "connection lost"}}]})
    await at.single("job")
    assert (await at.sealed("job"))["calls"][0]["status"] == "ok"
    results = [text for role, text in at.requests[-1]["messages"] if role == "tool_result"]
    assert len(results) == 1
    assert "found-it" in results[0]


async def test_r444_what_a_sender_recorded_before_it_died_is_done_once_and_found_by_any_other(place: Make) -> None:
    at = place({"a": [{"say": "ok"}]})
    body = {"cwd": str(at.work), "agent": "worker", "task": "Do it", "key": "a"}
    Outbox(at.root, "cli:gone@here").record(Sent(request="job", kind="run", body=body, sender="cli:gone@here"))
    assert await starter.has_work(at.root)
    again = await Client(at.root, "cli:other@here").ask("run", body, request="job", wait=30)
    assert again.state == "applied"
    await at.sealed("job")
    async with reading(at.root) as reader:
        assert reader is not None
        assert len(await rows.keys(reader, WorkflowDoc)) == 1
    assert len(at.requests) == 1


async def test_r007_each_kind_of_send_has_its_place(place: Make) -> None:
    shell = {"call": "bash", "args": {"command": "echo begun >> marks; sleep 1.5"}}
    at = place({"a": [shell, {"say": "first answer"}, {"say": "second answer"}]})
    wid = await at.single("job")
    await at.until("job", lambda _: (at.work / "marks").exists())
    for kind, text in (("follow-up", "Then this"), ("steer", "Turn left"), ("notify", "By the way")):
        assert (await send(at, kind, f"{wid}/a", text)).state == "applied"
    await at.sealed("job")
    said = [(role, text) for role, text in at.requests[-1]["messages"] if role in ("user", "assistant") and text]
    order = [text for _, text in said]
    assert order.index("Turn left") < order.index("By the way") < order.index("first answer") < order.index("Then this")
