"""An orchestrator that is replaced: nothing is cut off, and what waits goes on under the next one."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from perdure.subagents import starter
from tests.cli.agents_place import Commands
from tests.subagents.place import Place

pytestmark = pytest.mark.slow
Make = Callable[..., Place]
ASK = {"call": "ask", "args": {"question": "Which?"}}


def restarted(at: Place, *words: str, code: int = 0) -> Any:
    return Commands(at).json("restart", "--json", *words, code=code)


async def test_r510_r514_r515_r576_what_runs_asks_and_waits_goes_on_under_the_next_one(place: Make) -> None:
    slow = {"call": "bash", "args": {"command": "echo x >> count; sleep 3"}}
    script = {"ask": [ASK, {"say": "it is blue"}], "run": [slow, {"say": "done"}], "queued": [{"say": "late"}]}
    at = place(script, providers={"test": {"slots": 1}}, k={"hibernateMs": 0})
    await at.single("ask", key="ask")
    asked = await at.until("ask", lambda found: bool(found["calls"]) and found["calls"][0].get("hibernated"))
    held = await at.single("held", key="held")
    await at.sealed("held")
    await at.single("run", key="run")
    await at.asked(3)
    await at.single("queued", key="queued")
    await at.until("queued", lambda found: bool(found["calls"]) and "waiting" in found["calls"][0])
    before = starter.running(at.root)
    assert before is not None
    told = restarted(at)
    assert told["restarted"] is True
    assert told["pid"] != before.pid
    card = starter.running(at.root)
    assert card is not None
    assert card.pid == told["pid"]
    again = await at.described("ask")
    for name in ("qid", "rev", "text", "to"):
        assert again["calls"][0]["question"][name] == asked["calls"][0]["question"][name]
    ran = (await at.sealed("run"))["calls"][0]
    assert (ran["status"], "lastFence" in ran) == ("ok", False), "nothing was cut off"
    assert (at.work / "count").read_text() == "x\n"
    assert (await at.sealed("queued"))["calls"][0]["output"] == "late"
    assert (await at.client.ask("answer", {"message": "blue"})).state == "applied"
    assert (await at.sealed("ask"))["calls"][0]["output"] == "it is blue"
    assert (await at.described(held))["state"] == "sealed"
    assert sum(one["key"] == "run" for one in at.requests) == 2


async def test_r512_r513_there_is_nothing_to_force_and_a_subagent_may_restart(place: Make) -> None:
    inside = {"call": "bash", "args": {"command": "perdure agents restart --json > told 2> errors"}}
    at = place({"a": [inside, {"say": "done"}]})
    for words in (("--force",), ("--force", "0123456789ab"), ("--force", "0123456789ab", "--reason", "why")):
        refused = Commands(at).run("restart", *words)
        assert refused.returncode == 2
        assert "No such option" in refused.stderr
        assert refused.stdout == ""
    assert not at.root.store.exists(), "nothing is recorded"
    await at.single("job")
    await at.asked(1)
    before = starter.running(at.root)
    found = (await at.sealed("job"))["calls"][0]
    assert (found["status"], "lastFence" in found) == ("ok", False)
    assert (at.work / "errors").read_text() == ""
    told = json.loads((at.work / "told").read_text())
    assert before is not None
    assert told["restarted"] is True
    assert told["pid"] != before.pid


async def test_r517_one_that_does_not_end_in_time_is_told_and_can_be_asked_again(place: Make) -> None:
    at = place({"*": [{"say": "ok"}]}, k={"idleExitMs": 60_000})
    await at.single("job")
    await at.sealed("job")
    card = starter.running(at.root)
    assert card is not None
    os.kill(card.pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        told = restarted(at, "--wait-ms", "500", code=75)
        assert time.monotonic() - began < 20
        assert (told["restarted"], told["pending"]) == (False, True)
    finally:
        os.kill(card.pid, signal.SIGCONT)
    async with asyncio.timeout(30):
        while (fresh := starter.running(at.root)) is None or fresh.pid == card.pid:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert (await at.described("job"))["state"] == "sealed", "the first one was heard"
