"""Sends by their rules: what is accepted reaches the call once, whatever ends when."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.subagents import rows, spool
from perdure.subagents.client import Client, reading
from perdure.subagents.spool import Outbox, Sent
from perdure.subagents.state import Call, Request, RequestDoc
from tests.subagents.hosting import Bench, until
from tests.subagents.place import Place

pytestmark = pytest.mark.slow
Make = Callable[..., Place]
SLOW = {"call": "bash", "args": {"command": "while [ ! -e go ]; do sleep 0.05; done"}}
ASK = {"call": "ask", "args": {"question": "Which color?"}}


def users(here: Place) -> list[str]:
    return [text for role, text in here.requests[-1]["messages"] if role == "user"]


def go(here: Place) -> None:
    (here.work / "go").touch()


async def send(here: Place, kind: Any, to: str, message: str = "", request: str | None = None, **more: Any) -> Any:
    body = {"to": to, "message": message, **more}
    return await here.client.ask(kind, {name: value for name, value in body.items() if value}, request=request)


async def request_row(here: Place, request: str) -> Request:
    async with reading(here.root) as reader:
        assert reader is not None
        return await rows.need(reader, RequestDoc, request)


async def row(here: Place, wid: str, condition: Callable[[Call], bool]) -> Call:
    async with asyncio.timeout(60):
        while not condition(found := await here.call(wid)):  # noqa: ASYNC110 - another process works
            await asyncio.sleep(0.02)
    return found


async def test_r125_r124_a_steer_is_pending_until_its_receipt_and_then_nothing_of_it_is_left(place: Make) -> None:
    here = place({"a": [SLOW, {"say": "done"}]})
    wid = await here.single("job")
    await here.asked(1)
    await send(here, "steer", f"{wid}/a", "Mind the gap", "s1")
    await row(here, wid, lambda call: any(one.handed for one in call.deliveries))
    pending = (await here.described("job"))["calls"][0]["deliveriesPending"]
    assert pending == [{"request": "s1", "kind": "steer"}]
    go(here)
    found = await here.sealed("job")
    assert "deliveriesPending" not in found["calls"][0]
    assert users(here) == ["Do it", "Mind the gap"]
    assert list(here.root.inbox.glob("*/*.json")) == []


async def test_r131_r135_what_was_not_taken_is_pending_again_once_its_host_is_gone(place: Make) -> None:
    here = place({"a": [SLOW, {"say": "done"}]})
    wid = await here.single("job")
    await here.asked(1)
    await send(here, "notify", f"{wid}/a", "Use TOML", "n1")
    forwarded = await send(here, "follow-up", f"{wid}/a", "And then?", "f1")
    await send(here, "follow-up", f"{wid}/a", "And after?", "f2")
    assert forwarded.reply["delivery"] == "forwarded"
    await row(here, wid, lambda call: all(one.handed for one in call.deliveries))
    assert (await here.client.ask("stop-all", {})).state == "applied", "it is cut off with all of it in its session"
    await here.until("job", lambda found: bool(found["calls"][0].get("paused")))
    assert [one.request for one in (await here.call(wid)).deliveries] == ["n1", "f1", "f2"]
    assert not any(one.handed for one in (await here.call(wid)).deliveries)


async def test_r131_r135_a_timeout_leaves_a_note_and_an_opening(place: Make) -> None:
    here = place({"a": [SLOW, {"say": "two"}, {"say": "three"}]})
    wid = await here.single("job", timeoutMs=3000)
    await here.asked(1)
    await send(here, "notify", f"{wid}/a", "Use TOML", "n1")
    await send(here, "follow-up", f"{wid}/a", "And then?", "f1", model="other/two")
    await send(here, "follow-up", f"{wid}/a", "And after?", "f2")
    await row(here, wid, lambda call: call.generation == 2)
    go(here)
    await here.until("job", lambda found: found["calls"][0].get("output") == "two")
    assert users(here) == [
        "Do it",
        "Notes recorded after your last turn:\n- Use TOML\n\nAnd then?\n\nAnd after?",
    ], "each once, and nothing that still waited in the session"
    assert here.requests[-1]["model"] == "other:two", "R-136: the model came with the message"
    again = await send(here, "follow-up", f"{wid}/a", "And then?", "f1", model="other/two")
    assert (again.reply["generation"], again.reply["call"]) == (2, f"{wid}/a@2")
    await send(here, "follow-up", f"{wid}/a", "Last")
    await here.until("job", lambda found: found["calls"][0].get("output") == "three")
    assert users(here)[-1] == "Last"


async def test_r135_r131_a_stop_drops_follow_ups_and_keeps_notes(place: Make) -> None:
    here = place({"a": [SLOW, {"say": "two"}]})
    wid = await here.single("job")
    await here.asked(1)
    await send(here, "notify", f"{wid}/a", "Use TOML")
    await send(here, "follow-up", f"{wid}/a", "And then?")
    await row(here, wid, lambda call: all(one.handed for one in call.deliveries))
    await send(here, "stop", f"{wid}/a")
    await here.sealed("job")
    call = await here.call(wid)
    assert (call.generation, call.notes, call.deliveries) == (1, ["Use TOML"], [])


async def test_r144_a_send_that_waits_in_the_session_is_taken_back_from_there(place: Make) -> None:
    here = place({"a": [SLOW, {"say": "done"}]})
    wid = await here.single("job")
    await here.asked(1)
    await send(here, "steer", f"{wid}/a", "first", "s1")
    await row(here, wid, lambda call: any(one.handed for one in call.deliveries))
    await send(here, "steer", f"{wid}/a", "second", "s2", replaces=["s1"])
    await row(here, wid, lambda call: [one.request for one in call.deliveries] == ["s2"])
    first = await request_row(here, "s1")
    assert (first.applied, first.reply) == (False, {"reason": "withdrawn", "by": "s2"})
    go(here)
    await here.sealed("job")
    assert users(here) == ["Do it", "second"]
    late = await send(here, "follow-up", f"{wid}/a", "More", replaces=["s2"])
    assert late.state == "applied"
    assert (await request_row(here, "s2")).applied, "what was applied stays"


async def test_r145_another_senders_request_is_not_withdrawn(place: Make) -> None:
    here = place({"a": [SLOW, {"say": "done"}]})
    wid = await here.single("job")
    await here.asked(1)
    await send(here, "steer", f"{wid}/a", "mine", "s1")
    other = Client(here.root, "cli:other@here")
    refused = await other.ask("steer", {"to": f"{wid}/a", "message": "no", "replaces": ["s1"]})
    assert refused.state == "rejected"
    go(here)
    await here.sealed("job")
    assert users(here) == ["Do it", "mine"]


async def test_r121_r124_a_gap_holds_back_and_what_is_no_request_is_skipped(place: Make) -> None:
    here = place({"a": [{"say": "done"}]})
    wid = await here.single("job")
    await here.sealed("job")
    outbox = Outbox(here.root, "cli:gap@here")
    notes = [
        Sent(request=f"g{n}", kind="notify", body={"to": f"{wid}/a", "message": f"{n}"}, sender="g") for n in (1, 2)
    ]
    second = outbox.folder / "000000000002.json"
    outbox.folder.mkdir(parents=True)
    spool.write_durably(second, msgspec.json.encode(notes[1]))
    assert (await send(here, "notify", f"{wid}/a", "between")).state == "applied", "others are not held up"
    assert second.exists()
    outbox.record(notes[0])
    async with asyncio.timeout(30):
        while second.exists():
            await send(here, "notify", f"{wid}/a", "nudge")
    found = [note for note in (await here.call(wid)).notes if note in "12"]
    assert found == ["1", "2"]
    odd = Outbox(here.root, "cli:odd@here")
    odd.folder.mkdir(parents=True)
    spool.write_durably(odd.folder / "000000000001.json", b"{")
    spool.write_durably(
        odd.folder / "000000000002.json",
        json.dumps({"request": "not ok!", "kind": "stop", "body": {}, "sender": "x"}).encode(),
    )
    stop = await here.client.ask("stop", {"to": "no address!"})
    assert (stop.state, "not an address" in stop.reply["reason"]) == ("rejected", True)
    listed = await here.client.ask("steer", {"to": ["x"], "message": "y"})
    assert listed.state == "rejected"
    async with asyncio.timeout(30):
        while list(odd.folder.glob("*.json")):
            await send(here, "notify", f"{wid}/a", "nudge")
    assert (await here.client.known("not-there")) is None


async def test_r123_a_send_to_a_run_that_is_on_its_way_is_not_decided_yet(place: Make) -> None:
    here = place({"a": [{"say": "done"}]})
    outbox = Outbox(here.root, "cli:late@here")
    outbox.folder.mkdir(parents=True)
    body = {"cwd": str(here.work), "agent": "worker", "task": "Do it", "key": "a"}
    run = Sent(request="later", kind="run", body=body, sender="cli:late@here")
    spool.write_durably(outbox.folder / "000000000002.json", msgspec.json.encode(run))
    waits = await here.client.ask("notify", {"to": "later/a", "message": "x"}, request="n1", wait=1.0)
    assert waits.state == "pending"
    outbox.record(Sent(request="first", kind="resume", body={}, sender="cli:late@here"))
    decided = await here.client.ask("notify", {"to": "later/a", "message": "x"}, request="n1", wait=30.0)
    assert decided.state == "applied"


async def test_r132_r139_r140_refusals_leave_nothing_and_name_what_is_wrong(place: Make) -> None:
    here = place({"a": [{"say": "done"}]})
    wid = await here.single("job")
    await here.sealed("job")
    empty = await send(here, "notify", f"{wid}/a", "  ")
    assert (empty.state, (await here.call(wid)).notes) == ("rejected", [])
    wrong = await send(here, "follow-up", f"{wid}/a", "x", model="nonsense")
    assert wrong.reply["reason"].startswith("unknown-model")
    named = await send(here, "model", f"{wid}/a", model="other/two")
    assert (named.reply["model"], named.reply["effect"]) == ("other:two", "next-generation")
    follow_up = await send(here, "follow-up", f"{wid}/a", "x", model="other/three")
    assert (follow_up.reply["model"], follow_up.reply["effect"]) == ("other:three", "next-generation")
    assert (await here.call(wid)).generation == 2


async def test_r131_a_message_counts_as_taken_whenever_its_host_died(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"a": [{"call": "bash", "args": {"command": "sleep 0.5"}}, SLOW, {"say": "done"}]})
    launch = bench.launch()
    async with bench.host(launch) as link:
        await until(link, "tool")
        assert await link.deliver("s1", "steer", "one") == "taken"
        assert await link.deliver("s2", "notify", "two") == "taken"
        assert await link.withdraw("s2") == "withdrawn"
        assert await link.deliver("s2", "notify", "two") == "withdrawn", "it must not come in again"
        await until(link, "took")
        assert await link.deliver("s1", "steer", "one") == "placed"
        assert await link.withdraw("s1") == "placed"
        (bench.work / "go").touch()
        await until(link, "settled")
    assert (await bench.evidence(launch)).taken == ["s1"]


async def test_r440_r445_ids_are_one_space_and_requests_without_one_are_new(place: Make) -> None:
    here = place({"a": [{"say": "done"}]})
    wid = await here.single("job")
    await here.sealed("job")
    assert (await send(here, "notify", f"{wid}/a", "x", "job")).state == "conflict"
    again = [
        await Client(here.root, f"cli:{n}@x").ask("notify", {"to": f"{wid}/a", "message": "x"}, request="n")
        for n in range(5)
    ]
    assert {one.state for one in again} == {"applied"}
    assert (await here.call(wid)).notes == ["x"]
    await send(here, "notify", f"{wid}/a", "y")
    await send(here, "notify", f"{wid}/a", "y")
    assert (await here.call(wid)).notes == ["x", "y", "y"]
