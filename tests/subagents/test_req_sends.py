"""Sends: decided once, in order, told where they went."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure import Harness, InvalidValue, Registry
from perdure.subagents import rows, spool, starter
from perdure.subagents.client import Client, Outcome, reading
from perdure.subagents.orchestrator import Orchestrator
from perdure.subagents.spool import Sent
from perdure.subagents.state import ExecutionDoc, RequestDoc
from perdure.subagents.tool import deliver_notices, live_workflows, parent_id, subagents_tool
from perdure.testing.scripted_model import ScriptedModel, say
from tests.subagents.place import Place

pytestmark = pytest.mark.slow
Make = Callable[..., Place]
ASK = {"call": "ask", "args": {"question": "Which color?"}}


async def send(at: Place, kind: Any, to: str, message: str = "", request: str | None = None, **more: Any) -> Outcome:
    body = {"to": to, **({"message": message} if message else {}), **more}
    return await at.client.ask(kind, body, request=request, wait=30)


def texts(at: Place, key: str) -> list[str]:
    """What was said to a call, as its newest request has it."""
    newest = [one for one in at.requests if one["key"] == key][-1]
    return [text for role, text in newest["messages"] if role == "user"]


async def test_r120_r122_r132_r123_each_refusal_names_what_works(place: Make) -> None:
    at = place({"*": [{"say": "ok"}]})
    async with Orchestrator(at.root):
        outcome = await at.run("job", tasks=[{"agent": "worker", "task": "x", "key": key} for key in "ab"])
        wid = outcome.reply["wid"]
        await at.sealed("job")
        cases: list[tuple[Any, str, str, str]] = [
            ("steer", f"{wid}/a", "m", "follow-up"),
            ("steer", f"{wid}/none", "m", f"{wid}/a"),
            ("steer", wid, "m", f"{wid}/b"),
            ("steer", "nothing/a", "m", "there is no workflow"),
            ("notify", f"{wid}/a", "   ", "the message is empty"),
            ("answer", f"{wid}/a", "m", "retired"),
            ("stop", f"{wid}/a", "", "already-sealed:ok"),
            ("stop", wid, "", "terminal:done"),
            ("stop", "", "", "names a workflow or a call"),
            ("steer", "a b/\x00", "m", "not"),
            ("model", f"{wid}/a", "m", "names a model"),
        ]
        for kind, to, message, expected in cases:
            refused = await send(at, kind, to, message)
            assert refused.state == "rejected", (kind, to)
            assert expected in json.dumps(refused.reply), (kind, to, refused.reply)
        bare = await at.client.ask("answer", {"message": "blue"}, wait=30)
        assert (bare.state, bare.reply["open"]) == ("rejected", [])
        unknown = await send(at, "model", f"{wid}/a", model="no slash")
        assert unknown.reply["reason"].startswith("unknown-model")
        row = await at.call(wid)
        assert row.notes == []
        assert row.generation == 1


async def test_r121_r124_b073_requests_of_a_sender_are_decided_in_order_and_leave_nothing(
    place: Make,
) -> None:
    at = place({"*": [{"say": "ok", "hold": 60}]})
    async with Orchestrator(at.root):
        wid = await at.single("job")
        await at.asked(1)
        sender, other = Client(at.root, "cli:one@here"), Client(at.root, "cli:two@here")
        notes = {f"n{number}": {"to": f"{wid}/a", "message": f"{number}"} for number in (1, 2, 3)}
        first, _ = (
            sender._outbox.record(Sent(request=name, kind="notify", body=notes[name], sender=sender.sender))
            for name in ("n1", "n2")
        )
        kept = first.with_suffix(".kept")
        first.rename(kept)
        held = await sender.ask("notify", notes["n3"], request="n3", wait=1.0)
        assert held.state == "pending", "an earlier one is missing"
        free = await other.ask("notify", {"to": f"{wid}/a", "message": "other"}, request="o1", wait=30)
        assert free.state == "applied", "another sender waits for nobody"
        kept.rename(first)
        for number in (1, 2, 3):
            async with asyncio.timeout(30):
                while (await at.described(f"n{number}"))["state"] != "applied":
                    await sender.ask(
                        "notify", {"to": f"{wid}/a", "message": f"{number}"}, request=f"n{number}", wait=1.0
                    )
        order = [one.text for one in (await at.call(wid)).deliveries if one.sender == sender.sender]
        taken = [text for text in order if text in "123"]
        assert taken == sorted(taken)
        await send(at, "stop", wid)
        await at.sealed("job")
        assert (await at.call(wid)).deliveries == []
        assert not await asyncio.to_thread(spool.any_waiting, at.root)


async def test_r124_a_request_that_cannot_be_read_is_reported_and_stops_nobody(place: Make) -> None:
    at = place({"*": [{"say": "ok"}]})
    await at.single("job")
    folder = next(iter(spool.senders(at.root)))
    rubbish = at.root.inbox / folder / f"{10**6:012}.json"
    rubbish.write_bytes(b"{not json")
    other = Client(at.root, "cli:else@here")
    body = {"cwd": str(at.work), "agent": "worker", "task": "x", "key": "a"}
    assert (await other.ask("run", body, request="two", wait=30)).state == "applied"
    await at.sealed("two")
    async with reading(at.root) as reader:
        assert reader is not None
        assert {one.request for one in await rows.rows(reader, RequestDoc)} == {"job", "two"}


async def test_r131_r135_r136_b001_b003_what_a_generation_did_not_take_goes_on_once(place: Make) -> None:
    at = place({"a": [{"say": "one", "hold": 1.0}, {"say": "two"}, {"say": "three"}]})
    wid = await at.single("job")
    await at.asked(1)
    forwarded = await send(at, "follow-up", f"{wid}/a", "More of it", "f1", model="other/two")
    assert (forwarded.state, forwarded.reply["delivery"]) == ("applied", "forwarded")
    noted = await send(at, "notify", f"{wid}/a", "By the way", "n1")
    assert noted.reply["delivery"] == "steered"
    at.kill_orchestrator()
    at.kill_hosts()
    await starter.ensure(at.root)
    await at.until("job", lambda found: found["state"] == "sealed")
    said = texts(at, "a")
    assert sum("More of it" in text for text in said) == 1
    assert sum("By the way" in text for text in said) == 1
    again = await send(at, "follow-up", f"{wid}/a", "More of it", "f1", model="other/two")
    assert again.created is False
    assert again.state == "applied"
    assert again.reply["call"] == f"{wid}/a@{(await at.call(wid)).generation}"


async def test_r137_r138_an_answer_is_applied_once_to_the_question_it_names(place: Make) -> None:
    at = place({"*": [ASK, {"say": "ok"}]}, k={"hibernateMs": 0})
    async with Orchestrator(at.root):
        one, two = await at.single("one", key="a"), await at.single("two", key="b")
        for name in ("one", "two"):
            await at.until(name, lambda found: found["state"] == "asking")
        which = await at.client.ask("answer", {"message": "blue"}, wait=30)
        assert which.state == "rejected"
        assert {item["to"] for item in which.reply["open"]} == {f"{one}/a", f"{two}/b"}
        question = (await at.call(one)).question
        assert question is not None
        stale = await send(at, "answer", f"{one}/a", "blue", qid=question.qid, rev=2)
        assert stale.reply["reason"] == "stale-rev"
        racing = await asyncio.gather(
            *(
                Client(at.root, f"cli:{n}@here").ask("answer", {"to": f"{one}/a", "message": f"b{n}"}, wait=30)
                for n in "12"
            )
        )
        assert sorted(found.state for found in racing) == ["applied", "rejected"]
        assert next(found.reply["reason"] for found in racing if found.state == "rejected") in (
            "already-answered",
            "retired",
        )
        await at.sealed("one")
        assert len([text for role, text in last(at, "a") if role == "tool_result"]) == 1
        late = await send(at, "answer", f"{one}/a", "late")
        assert late.reply["reason"] == "retired"
        bare = await at.client.ask("answer", {"message": "green"}, request="bare", wait=30)
        assert bare.state == "applied", "the only one that is open"
        await at.sealed("two")
        again = await at.client.ask("answer", {"message": "green"}, request="bare", wait=30)
        assert (again.state, again.reply["call"]) == ("applied", f"{two}/b@1")


def last(at: Place, key: str) -> list[tuple[str, str]]:
    newest = [one for one in at.requests if one["key"] == key][-1]
    return [(role, text) for role, text in newest["messages"]]


async def test_r139_r142_r143_r140_b045_b046_b049_a_switch_is_told_by_its_effect_and_counts_once(place: Make) -> None:
    shell = {"call": "bash", "args": {"command": "sleep 1"}}
    at = place(
        {"a": [shell, shell, {"say": "ok"}, {"say": "more"}, {"say": "again"}]}, providers={"full": {"slots": 1}}
    )
    async with Orchestrator(at.root):
        wid = await at.single("job")
        await at.asked(1)
        running = await send(at, "model", f"{wid}/a", model="other/two")
        while running.reply.get("reason") == "call-starting":
            running = await send(at, "model", f"{wid}/a", model="other/two")
        assert (running.state, running.reply["effect"], running.reply["model"]) == (
            "applied",
            "next-request",
            "other:two",
        )
        pending = await send(at, "model", f"{wid}/a", model="third/x")
        assert pending.reply["reason"] in ("switch-pending", "call-starting") or pending.state == "applied"
        await at.sealed("job")
        used = [one["provider"] for one in at.requests]
        assert used[0] == "test"
        assert "other" in used
        followed = await send(at, "follow-up", f"{wid}/a", "More", model="fourth/y")
        assert followed.reply["generation"] == 2
        await at.sealed("job")
        assert at.requests[-1]["provider"] == "fourth"
        assert (await at.described("job"))["calls"][0].get("switching") is None
        sealed = await send(at, "model", f"{wid}/a", model="fifth/z")
        assert sealed.reply["effect"] == "next-generation"
        await send(at, "follow-up", f"{wid}/a", "Again")
        await at.sealed("job")
        assert at.requests[-1]["provider"] == "fifth"


async def test_r141_a_switch_that_is_not_used_in_time_ends_the_execution_and_the_call_goes_on(place: Make) -> None:
    slow = {"call": "bash", "args": {"command": "sleep 3"}}
    at = place({"a": [slow, {"say": "ok"}]}, k={"switchTimeoutMs": 100})
    async with Orchestrator(at.root):
        wid = await at.single("job")
        await at.asked(1)
        switched = await send(at, "model", f"{wid}/a", model="other/two")
        while switched.reply.get("reason") == "call-starting":
            switched = await send(at, "model", f"{wid}/a", model="other/two")
        assert switched.state == "applied"
        call = (await at.sealed("job"))["calls"][0]
        assert call["status"] == "ok"
        assert len({one["exec"] for one in at.requests}) == 2
        assert at.requests[-1]["provider"] == "other"
    assert await at.slots() == {}


async def test_r145_r147_r149_b015_only_its_sender_takes_a_request_back_and_one_target_is_a_single_send(
    place: Make,
) -> None:
    at = place({"*": [ASK, {"say": "ok"}]})
    async with Orchestrator(at.root):
        wid = await at.single("job")
        await at.until("job", lambda found: found["state"] == "asking")
        await send(at, "notify", f"{wid}/a", "keep", "mine")
        other = Client(at.root, "cli:other@here")
        refused = await other.ask("notify", {"to": f"{wid}/a", "message": "x", "replaces": ["mine"]}, wait=30)
        assert refused.state == "rejected"
        assert "another sender" in refused.reply["reason"]
        assert (await at.described("mine"))["state"] == "applied"
        alone = await at.client.ask("notify", {"to": f"{wid}/a", "message": "y"}, request="single", wait=30)
        assert alone.request == "single"
        await send(at, "stop", wid)


async def test_r161_r162_b081_a_stop_after_the_seal_does_not_pretend_to_act(place: Make) -> None:
    report = {"call": "report", "args": {"outcome": "ok", "summary": "s", "data": {}}}
    at = place({"a": [report, {"say": "x", "hold": 5}], "b": [{"say": "x"}]})
    async with Orchestrator(at.root):
        wid = await at.single("job", schema={"type": "object"}, gate="echo once > gated; sleep 60")
        async with asyncio.timeout(30):
            while not (at.work / "gated").exists():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        stopped = await send(at, "stop", f"{wid}/a", request="stop")
        assert stopped.state == "applied"
        assert (await at.sealed("job"))["calls"][0]["status"] == "stopped", "also over a report"
        again = await send(at, "stop", f"{wid}/a", request="stop")
        assert (again.state, again.created) == ("applied", False)
        assert (await send(at, "stop", f"{wid}/a")).reply["reason"] == "already-sealed:stopped"


async def test_r164_r166_r169_b058_what_waits_or_is_held_is_stopped_and_resumed_without_a_launch(place: Make) -> None:
    at = place(
        {"a": [{"say": "x", "hold": 60}], "b": [{"say": "y"}]}, providers={"test": {"slots": 1}}, k={"idleExitMs": 200}
    )
    first = await at.single("one", key="a")
    await at.asked(1)
    second = await at.single("two", key="b")
    await at.until("two", lambda found: found["calls"][0].get("waiting") is not None)
    assert (await send(at, "stop", second)).state == "applied"
    assert (await at.sealed("two"))["calls"][0]["status"] == "stopped"
    third = await at.single("three", key="b")
    assert (await at.client.ask("stop-all", {}, wait=30)).state == "applied"
    async with asyncio.timeout(30):
        while at.processes():  # noqa: ASYNC110 - nothing of it is alive, the orchestrator ends too
            await asyncio.sleep(0.05)
    for _ in range(2):
        await starter.ensure(at.root)
        await asyncio.sleep(0.3)
        assert len(at.requests) == 1, "nothing of what is held is dispatched"
    shown = (await at.described("one"))["calls"][0]
    assert (shown["phase"], shown.get("paused")) == ("queued", True), "never shown as running"
    assert (await send(at, "resume", "nothing")).state == "rejected"
    mine = await at.client.ask("resume", {"session": "s-somebody"}, wait=30)
    assert set(mine.reply["held_by_others"]) == {first, third}
    assert (await send(at, "resume", third)).reply["resumed"] == [third]
    assert (await at.sealed("three"))["calls"][0]["status"] == "ok"
    assert (await send(at, "resume", third)).reply["reason"] == "terminal:done"
    assert (await send(at, "stop", first)).state == "applied"
    await at.sealed("one")
    async with reading(at.root) as reader:
        assert reader is not None
        assert await rows.keys(reader, ExecutionDoc) == []


@pytest.mark.parametrize("on_quit", ["pause", "continue"])
async def test_r170_r171_r168_quitting_a_session_holds_its_own_work_and_its_return_says_so(
    place: Make, tmp_path: Path, on_quit: str
) -> None:
    at = place({"*": [{"say": "x", "hold": 2.0}]}, onQuit=on_quit, k={"idleExitMs": 60_000})

    def opened() -> Any:
        return Harness.open(
            tmp_path / "parent.db",
            registry=Registry([subagents_tool(at.root)]),
            models=ScriptedModel(lambda _: say("x")),
        )

    body = {"cwd": str(at.work), "agent": "worker", "task": "x"}
    async with opened() as harness:
        async with deliver_notices(harness, at.root):
            session = await parent_id(harness.session)
            mine = Client(at.root, session, origin=session)
            wid = (await mine.ask("run", {**body, "key": "mine"}, wait=30)).reply["wid"]
            other = await at.single("other", key="other")
            await at.asked(2)
    assert await live_workflows(at.root, session, held=True) == ([wid] if on_quit == "pause" else [])
    assert not (await at.workflow(other)).held
    await at.sealed("other")
    if on_quit == "pause":
        async with asyncio.timeout(30):
            while (await at.call(wid, "mine")).phase != "queued":  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        async with opened() as harness, deliver_notices(harness, at.root):
            root = await harness.root(model="scripted:model")
            await (await root.submit("Hello")).wait()
            resumed = await mine.ask("resume", {"session": session}, wait=30)
            assert resumed.reply["resumed"] == [wid]
            await at.until(wid, lambda found: found["state"] == "sealed")
    assert (await at.until(wid, lambda found: found["state"] == "sealed"))["calls"][0]["status"] == "ok"
    assert (await at.call(wid, "mine")).losses == 0


async def test_what_is_no_text_is_refused_before_anything_is_recorded(place: Make) -> None:
    at = place({"*": [{"say": "ok"}]})
    wid = await at.single("job")
    await at.sealed("job")
    with pytest.raises(InvalidValue):
        await send(at, "notify", f"{wid}/a", "\ud800 text", "odd")
    assert (await at.described("odd"))["state"] == "absent"
    colored = await send(at, "notify", f"{wid}/a", "\x1b[31m text", "odd")
    assert colored.state == "applied"
