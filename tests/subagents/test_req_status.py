"""What describe, status and events tell."""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from perdure import InvalidValue
from perdure.subagents import events, rows, starter
from perdure.subagents.client import Client, reading
from perdure.subagents.doctor import examine
from perdure.subagents.engine import call_steps
from perdure.subagents.orchestrator import Orchestrator
from perdure.subagents.pruning import delete_pruned
from perdure.subagents.rendering import brief_lines, event_line, workflow_lines
from perdure.subagents.state import Event, ExecutionDoc, TombstoneDoc, Workflow
from perdure.subagents.status import status, total, workflow_status
from tests.subagents.place import Place
from tests.subagents.test_at_scale import fill

pytestmark = pytest.mark.slow
Make = Callable[..., Place]


async def log(at: Place) -> list[Event]:
    async with reading(at.root) as reader:
        assert reader is not None
        epoch = (await events.head(reader)).partition(".")[0]
        return (await events.after(reader, f"{epoch}.0")).events


async def brief(at: Place) -> dict[str, Any]:
    async with reading(at.root) as reader:
        return await status(reader, at.root)


async def whole(at: Place, wid: str, **options: Any) -> dict[str, Any]:
    async with reading(at.root) as reader:
        assert reader is not None
        workflow = await rows.workflow(reader, wid)
        assert workflow is not None
        return await workflow_status(reader, workflow, **options)


async def test_r450_r451_r453_r463_describe_tells_each_state_whole(place: Make) -> None:
    long, question = "x" * 1_000_000, "Which color?\nRed,\tor blue?"
    at = place({"a": [{"say": long}], "b": [{"call": "ask", "args": {"question": question}}, {"say": "ok"}]})
    assert (await at.described("job"))["state"] == "absent"
    async with Orchestrator(at.root) as orchestrator:
        wid = await at.single("job", labels={"issue": "7"})
        found = await at.sealed("job")
        assert found["calls"][0]["output"] == long
        assert (await at.described(wid))["state"] == "sealed"
        outcome = await at.client.ask("stop", {"to": wid}, request="stop-it")
        assert outcome.state == "rejected"
        rejected = await at.described("stop-it")
        assert (rejected["state"], rejected["reason"]) == ("rejected", "terminal:done")
        other = await at.single("two", key="b")
        asking = await at.until("two", lambda found: found["state"] == "asking")
        shown = asking["calls"][0]["question"]
        assert (shown["text"], shown["rev"], shown["to"]) == (question, 1, f"{other}/b")
        note = await at.client.ask("notify", {"to": f"{other}/b", "message": "n"}, request="note")
        assert (note.state, (await at.described("note"))["state"]) == ("applied", "applied")
        await at.client.ask("stop", {"to": other}, wait=30)
        pruned = await at.client.ask("prune", {"to": wid}, wait=30)
        assert pruned.state == "applied"
        for name in ("job", wid):
            gone = await at.described(name)
            assert (gone["state"], gone["status"], gone["labels"]) == ("pruned", "done", {"issue": "7"})
            assert gone["ended"] > 0
            assert gone["request"] == "job"
        stone = await rows.need(orchestrator.harness.session, TombstoneDoc, wid)
        assert (stone.request, stone.status, stone.digest) == ("job", "done", gone["digest"])

    pending = await Client(at.root, "cli:other@here").ask(
        "run", {"agent": "worker", "task": "x", "cwd": str(at.work)}, request="late", wait=0.0
    )
    assert pending.state == "pending"
    assert (await at.described("late"))["state"] in ("pending", "running", "sealed")


async def test_r350_r360_r381_r243_the_log_of_a_run_from_its_start_to_its_end(place: Make) -> None:
    ask = {"call": "ask", "args": {"question": "Which?"}}
    report = {"call": "report", "args": {"outcome": "ok", "summary": "s", "data": {"big": "y" * 20_000}}}
    at = place({"a": [ask, report, {"say": "done", "usage": {"input": 5, "output": 6}}]})
    schema = {"type": "object", "properties": {"big": {"type": "string"}}, "required": ["big"]}
    wid = await at.single("job", schema=schema, labels={"issue": "7"})
    await at.until("job", lambda found: found["state"] == "asking")
    answering = Client(at.root, "s-parent", via="ui")
    assert (await answering.ask("answer", {"to": f"{wid}/a", "message": "a secret"})).state == "applied"
    await at.sealed("job")
    found = [one for one in await log(at) if one.type not in ("model", "delivered")]
    assert [one.type for one in found] == ["submitted", "started", "asking", "answered", "sealed", "workflow-done"]
    assert all((one.wid, one.request, one.labels) == (wid, "job", {"issue": "7"}) for one in found)
    asked, answered, sealed, done = found[2:]
    assert (asked.data["text"], asked.data["address"]) == ("Which?", f"{wid}/a")
    assert (answered.data["by"], answered.data["via"], answered.data["length"]) == ("s-parent", "ui", 8)
    assert "secret" not in json.dumps(msgspec.to_builtins(found))
    assert sealed.data["status"] == "ok"
    assert "data" not in sealed.data
    assert sealed.data["data_bytes"] > 20_000
    call = (await at.described("job"))["calls"][0]
    assert done.data["usage"] == call["usage"], "the sum of its calls"
    line = event_line(sealed)
    assert f"{wid}/a@1" in line
    assert "\n" not in line


async def test_r361_r452_r186_only_what_was_cut_off_is_told_as_an_interruption(place: Make) -> None:
    cut = {"call": "bash", "args": {"command": "echo begun >> marks; sleep 20"}}
    at = place(
        {
            "cut": [cut, {"say": "ok"}],
            "once": [cut, {"say": "ok"}],
            "*": [{"say": "ok"}],
            "slow": [{"say": "x", "hold": 60}],
        }
    )
    await at.single("plain", key="plain")
    await at.sealed("plain")
    slow = await at.single("slow", key="slow")
    await at.until("slow", lambda found: bool(found["calls"]) and found["calls"][0]["phase"] == "running")
    await at.client.ask("stop", {"to": slow}, wait=30)
    late = await at.single("late", key="slow", timeoutMs=300)
    assert (await at.sealed("late"))["calls"][0]["status"] == "timeout"
    names = {"cut": await at.single("cut", key="cut"), "once": await at.single("once", key="once", once=True)}
    async with asyncio.timeout(30):
        while marks(at) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    for key, wid in names.items():
        await at.kill_host(wid, key)
    assert (await at.sealed("once"))["calls"][0]["status"] == "unknown"
    again = await at.until("cut", lambda found: len([one for one in at.requests if one["key"] == "cut"]) > 1)
    assert again["calls"][0]["lastFence"]["reason"] == "process-died"
    for name in ("plain", "slow", "late"):
        assert "lastFence" not in (await at.described(name))["calls"][0]
    assert (await at.described("once"))["calls"][0]["lastFence"]["reason"] == "process-died"
    fenced = [one for one in await log(at) if one.type == "fenced"]
    assert [(one.key, one.data["reason"]) for one in fenced] == [("cut", "process-died")]
    assert late


async def test_r454_r456_r458_the_brief_status_is_small_and_names_what_matters(place: Make) -> None:
    ask, fails = {"call": "ask", "args": {"question": "Which?"}}, {"fail": "no such key", "kind": "fatal"}
    at = place({"b": [ask, {"say": "x"}], "c": [fails], "*": [{"say": "ok"}]})
    async with Orchestrator(at.root) as orchestrator:
        await fill(orchestrator, at, 300, time.time() - 86_400)
        tasks = [{"agent": "worker", "task": "x", "key": key} for key in "abc"]
        outcome = await at.run("three", tasks=tasks)
        wid = outcome.reply["wid"]
        await at.until("three", lambda found: {call["phase"] for call in found["calls"]} == {"sealed", "asking"})
        found = await brief(at)
        assert len(json.dumps(found)) < 6000
        assert len(found["recent"]) == 5
        (live,) = found["live"]
        assert (live["done"], live["total"]) == (2, "3")
        shown = {call["key"]: call for call in live["calls"]}
        assert set(shown) == {"b", "c"}, "what asks and what failed"
        assert shown["b"]["question"]["to"] == f"{wid}/b"
        assert shown["c"]["status"] == "failed"
        assert found["config"]["digest"]
        assert found["orchestrator"] is not None
        text = "\n".join(brief_lines(found))
        assert "asks: Which?" in text
        assert f"perdure agents send answer --to {wid}/b" in text
        seen = json.loads(json.dumps(found))
        again = json.loads(json.dumps(await brief(at)))
        for one in (seen, again):
            one.pop("orchestrator")
        assert seen == again, "of what is committed, and of nothing else"
        await at.client.ask("stop", {"to": wid}, wait=30)
    script = Workflow(wid="w", request="r", sender="s", digest="", form="script", cwd="/", created=0.0)
    assert total(script, 2) == "2+"
    script.status, script.planned = "done", 2
    assert total(script, 2) == "2"


async def test_r455_outputs_are_clipped_whole_searched_or_by_their_ends(place: Make) -> None:
    lines = [f"line {number}" for number in range(10_000)]
    at = place({"a": [{"say": "\n".join(lines)}]})
    wid = await at.single("job")
    await at.sealed("job")
    clipped = (await whole(at, wid))["calls"][0]["output"]
    assert len(clipped) < 1000
    assert clipped.startswith("line 0\n")
    assert clipped.endswith("line 9999")
    for options in ({"full": True}, {"key": "a"}):
        assert (await whole(at, wid, **options))["calls"][0]["output"] == "\n".join(lines)
    assert (await whole(at, wid, tail=2))["calls"][0]["output"] == "line 9998\nline 9999"
    found = (await whole(at, wid, grep="99$"))["calls"][0]["output"].splitlines()
    assert found[0] == "[5000 earlier lines not searched]"
    assert found[1] == "line 5099"
    assert (await whole(at, wid, grep="99$", tail=1))["calls"][0]["output"].splitlines()[-1] == "line 9999"
    for bad in ({"grep": "("}, {"tail": 1, "key": "a"}, {"grep": "x", "full": True}, {"key": "none"}):
        with pytest.raises(InvalidValue):
            await whole(at, wid, **bad)
    began = time.monotonic()
    slow = (await whole(at, wid, grep="(l|i|n|e| |[0-9])*$x"))["calls"][0]["output"]
    assert time.monotonic() - began < 20
    assert "took too long" in slow or "not searched" in slow
    assert "\x1b" not in "\n".join(workflow_lines(await whole(at, wid)))


async def test_r531_r532_r534_a_broken_file_is_shown_beside_the_settings_in_effect(
    place: Make,
) -> None:
    at = place({"*": [{"say": "ok"}]})
    async with Orchestrator(at.root):
        first = (await brief(at))["config"]
        good = at.root.config.read_text()
        for broken in (
            "[]",
            "null",
            '{"providers": {',
            '{"k": {"nonsense": 1}}',
            '{"providers": {"test": {"slots": 0}}}',
        ):
            at.root.config.write_text(broken)
            found = await settings(at, lambda one: one["problem"])
            assert (found["digest"], found["since"]) == (first["digest"], first["since"]), broken
        assert (await brief(at))["config_problem"]
        at.root.config.write_text(good)
        assert (await settings(at, lambda one: not one["problem"]))["digest"] == first["digest"]
        one, two = good.replace("{", '{"a": 1, ', 1), good.replace("{", '{"a": 2, ', 1)
        at.root.config.write_text(one)
        at.root.config.write_text(two)  # of the same size, at once
        changed = await settings(at, lambda found: found["digest"] != first["digest"])
        assert changed["since"] >= first["since"]
        await at.single("job")
        await at.sealed("job")


def marks(at: Place) -> int:
    path = at.work / "marks"
    return path.read_text().count("begun") if path.exists() else 0


async def settings(at: Place, condition: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    async with asyncio.timeout(20):
        while not condition(found := (await brief(at))["config"]):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return dict(found)


async def test_r460_r461_r462_r086_prune_removes_what_has_ended_and_only_that(
    place: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = place({"asks": [{"call": "ask", "args": {"question": "?"}}], "*": [{"say": "ok"}]})
    async with Orchestrator(at.root) as orchestrator:
        asking, ended = await at.single("one", key="asks"), await at.single("two")
        await at.until("one", lambda found: found["state"] == "asking")
        await at.sealed("two")

        async def prune(to: str, **more: Any) -> tuple[str, Any]:
            outcome = await at.client.ask("prune", {"to": to, **more}, wait=30)
            return outcome.state, outcome.reply.get("reason", outcome.reply.get("pruned"))

        assert await prune(asking) == ("rejected", "it is running")
        assert (await prune("nothing"))[0] == "rejected"
        assert await prune(ended, olderThanDays=1) == ("rejected", "it ended less than 1 days ago")
        assert at.root.call_store(ended, "a").exists()
        monkeypatch.setattr("perdure.subagents.orchestrator.delete_pruned", nothing)
        assert await prune(ended) == ("applied", [ended])
        assert (await prune(ended))[0] == "rejected", "it is no more"
        assert at.root.call_store(ended, "a").exists(), "cut off before its files were deleted"
        monkeypatch.undo()
        await delete_pruned(at.root, orchestrator.harness)
        assert not at.root.workflow(ended).exists()
        again = await at.run("two", agent="worker", task="Do it", key="a")
        assert again.state == "applied"
        assert again.created is False
        assert (await at.described("two"))["state"] == "pruned", "it does not come back"
        await at.client.ask("stop", {"to": asking}, wait=30)


async def nothing(*given: Any) -> None:
    """The orchestrator is cut off here."""


async def test_r470_r471_doctor_finds_what_needs_a_hand_and_nothing_else(
    place: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = place({"*": [{"say": "ok", "hold": 60}]})
    async with Orchestrator(at.root) as orchestrator:
        await fill(orchestrator, at, 20, time.time() - 86_400)
        healthy = await examine(at.root)
        assert healthy["findings"] == []
        assert healthy["workflows"]["ended"] == 20
        assert len(healthy["largest"]) == 5
        wid = await at.single("job")
        await at.asked(1)
        async with orchestrator.harness.session.transaction() as tx:
            execution = (await rows.rows(tx, ExecutionDoc))[0]
            execution.fence_failed = time.time()
            await rows.write(tx, ExecutionDoc, execution.exec, execution)
        at.root.config.write_text("[]")
        found = (await examine(at.root))["findings"]
        assert [one["what"].split(" ")[0] for one in found] == ["config.json", "processes"]
        assert all(one["command"] for one in found)
        monkeypatch.setattr(call_steps, "FENCE_RETRY", 0.3)
        await at.client.ask("stop", {"to": wid}, wait=30)
    before = {path: path.read_bytes() for path in at.root.path.rglob("*") if path.is_file() and "-shm" not in path.name}
    await examine(at.root)
    assert {path: path.read_bytes() for path in before} == before, "read only"
    assert starter.running(at.root) is None
