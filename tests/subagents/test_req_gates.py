"""Gates, outputs, choice of models, and limits on real processes."""

import asyncio
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.subagents import events, rows, starter
from perdure.subagents.client import reading
from perdure.subagents.config import AgentsConfig
from perdure.subagents.engine import admission, call_steps, call_task, processes
from perdure.subagents.engine.call_steps import model_for
from perdure.subagents.engine.outputs import publish
from perdure.subagents.orchestrator import Orchestrator
from perdure.subagents.state import Call, ExecutionDoc, NoticeDoc, Pins, Workflow
from perdure.subagents.status import status
from tests.subagents.place import Place

pytestmark = pytest.mark.slow
Make = Callable[..., Place]

SHAPE = {"type": "object", "properties": {"n": {"type": "integer"}}}
CAUSES: dict[str, tuple[Any, str]] = {
    "exit": ("echo no good; exit 3", "the gate ended with 3: no good"),
    "late": ({"command": "sleep 30", "timeoutMs": 200}, "the gate took longer than 0.2 s"),
    "words": ({"command": "echo hello", "output": "json"}, "the gate printed no JSON"),
    "bytes": ({"command": "printf '\\377\\376'", "output": "json"}, "the gate printed no JSON"),
    "shape": (
        {"command": "echo '{\"n\": \"one\"}'", "output": "json", "schema": SHAPE},
        "the gate's JSON does not fit",
    ),
}  # fmt: skip


async def test_r301_r324_each_cause_of_a_gate_is_told_and_the_output_is_published(place: Make) -> None:
    at = place({"*": [{"say": "the text"}]})
    tasks = [
        {"agent": "worker", "task": "x", "key": key, "gate": gate, "output": "out.txt"}
        for key, (gate, _) in CAUSES.items()
    ]
    outcome = await at.run("job", tasks=tasks)
    assert outcome.state == "applied", outcome
    found = await at.sealed("job")
    for call in found["calls"]:
        assert call["status"] == "gate-failed"
        assert CAUSES[call["key"]][1] in call["error"], call["error"]
        assert call["output"] == "the text"
        (artifact,) = call["artifacts"]
        assert await asyncio.to_thread(Path(artifact).read_text) == "the text"


async def test_r305_r324_a_gate_runs_for_what_would_be_ok_and_a_stopped_call_publishes_nothing(place: Make) -> None:
    at = place({"bad": [{"fail": "no such key", "kind": "fatal"}], "slow": [{"say": "x", "hold": 60}]})
    gate = {"gate": "touch gated", "output": "out.txt"}
    await at.single("bad", key="bad", **gate)
    wid = await at.single("slow", key="slow", **gate)
    assert (await at.sealed("bad"))["calls"][0]["status"] == "failed"
    await at.until("slow", lambda found: bool(found["calls"]) and found["calls"][0]["phase"] == "running")
    await at.client.ask("stop", {"to": wid}, wait=30)
    assert (await at.sealed("slow"))["calls"][0]["status"] == "stopped"
    assert not (at.work / "gated").exists()
    assert not at.root.artifacts(wid).exists()


async def test_r302_a_gate_that_was_cut_off_is_not_run_again(place: Make) -> None:
    at = place({"*": [{"say": "ok"}]})
    wid = await at.single("job", gate="echo once >> counter; sleep 60 & sleep 60")
    await begun(at)
    at.kill_orchestrator()
    await at.gone()
    async with Orchestrator(at.root):
        call = (await at.sealed("job"))["calls"][0]
    assert (call["status"], call["error"]) == ("unknown", "its gate was cut off, and is not run again")
    assert (at.work / "counter").read_text() == "once\n"
    assert processes_of(at, wid) == []


async def begun(at: Place) -> None:
    async with asyncio.timeout(30):
        while not (at.work / "counter").exists():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def processes_of(at: Place, wid: str) -> list[int]:
    """Processes of a workflow's executions."""
    found = []
    for pid in at.processes():
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if f"PERDURE_EXEC={wid}".encode() in environment:
            found.append(pid)
    return found


@pytest.mark.parametrize("by", ["stop", "timeout"])
async def test_r303_r161_a_stop_and_the_calls_time_end_a_gate_with_all_its_processes(place: Make, by: str) -> None:
    at = place({"*": [{"say": "ok"}]})
    more: dict[str, Any] = {"timeoutMs": 1500} if by == "timeout" else {}
    wid = await at.single("job", gate="echo once >> counter; (setsid sleep 60 &) ; sleep 60", **more)
    await begun(at)
    began = time.monotonic()
    if by == "stop":
        assert (await at.client.ask("stop", {"to": f"{wid}/a"}, wait=30)).state == "applied"
    call = (await at.sealed("job"))["calls"][0]
    assert time.monotonic() - began < 15
    assert call["status"] == ("stopped" if by == "stop" else "timeout")
    assert processes_of(at, wid) == []
    assert (await at.call(wid)).active_ms < 20_000


async def test_r304_b041_b084_a_gate_that_cannot_be_killed_keeps_its_call_open_and_is_told_once(
    place: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = place({"*": [{"say": "ok"}]})
    stuck, works = True, processes.fence

    async def fence(execution: str, pid: int | None) -> tuple[str, ...]:
        return ("4711 (stuck)",) if stuck and execution.endswith("#gate") else await works(execution, pid)

    monkeypatch.setattr(call_task, "fence", fence)
    monkeypatch.setattr(call_steps, "FENCE_RETRY", 0.2)
    async with Orchestrator(at.root):
        body = {"cwd": str(at.work), "agent": "worker", "task": "x", "key": "a", "gate": "echo once >> counter"}
        outcome = await at.client.ask("run", body, request="job", wait=30)
        wid = outcome.reply["wid"]
        shown = await at.until("job", lambda found: found["calls"][0].get("waiting") is not None)
        assert shown["calls"][0]["waiting"]["reason"] == "unconfirmed-stop"
        await asyncio.sleep(1.0)
        assert (await at.call(wid)).phase != "sealed"
        async with reading(at.root) as reader:
            assert reader is not None
            assert [one.rev for one in await rows.rows(reader, NoticeDoc) if one.kind == "unknown"] == [1]
        stuck = False
        assert (await at.sealed("job"))["calls"][0]["status"] == "ok"
    assert (at.work / "counter").read_text() == "once\n"


async def test_r322_b126_b127_what_cannot_be_written_leaves_the_result_as_it_is(place: Make, tmp_path: Path) -> None:
    at = place({"*": [{"say": "the text"}]})
    async with Orchestrator(at.root) as orchestrator:
        wid = await at.single("job", output="out.txt")
        call = (await at.sealed("job"))["calls"][0]
        session, row = orchestrator.harness.session, await at.call(wid)
        workflow = await at.workflow(wid)
        given = {"status": "ok", "output": "the text"}
        again = await publish(session, at.root, workflow, row, given)
        assert again.draft == {"artifacts": call["artifacts"]}, "a repetition is the same"
        other = await publish(session, at.root, workflow, row, {**given, "output": "another"})
        assert "another text" in str(other.problem)
        blocked = await at.run("two", agent="worker", task="x", key="a", output=str(at.work / "is-a-file" / "out.txt"))
        (at.work / "is-a-file").write_text("x")
        assert blocked.state == "applied"
        told = (await at.sealed("two"))["calls"][0]
        assert (told["status"], told["output"]) == ("ok", "the text")
        folder = at.root.artifacts(wid).parent
        broken = Workflow(wid="broken", request="r", sender="s", digest="", form="single", cwd="/", created=0.0)
        (folder.parent / "broken").write_text("no folder")
        failed = await publish(session, at.root, broken, row, given)
        assert failed.problem
        assert failed.draft == {}


def test_r250_the_model_of_a_launch() -> None:
    def chosen(*, wanted: str | None = None, kept: str | None = None, **named: str) -> str:
        call = Call(wid="w", key="a", agent="worker", spec={}, fingerprint="f", created=0.0)
        call.wanted, call.model = wanted, kept
        if "spec" in named:
            call.spec = {"model": named["spec"]}
        pins = Pins(agents={"worker": {"model": named["agent"]} if "agent" in named else {}})
        return model_for(AgentsConfig(default_model=named.get("default")), call, pins).name

    assert chosen(default="p/default") == "p:default"
    assert chosen(default="p/default", agent="p/agent") == "p:agent"
    assert chosen(default="p/default", agent="p/agent", spec="p/spec") == "p:spec"
    assert chosen(default="p/default", agent="p/agent", spec="p/spec", kept="p:kept") == "p:kept"
    assert chosen(default="p/default", spec="p/spec", kept="p:kept", wanted="p:wanted") == "p:wanted"


async def test_r258_r259_r261_one_call_probes_a_used_up_provider_and_the_others_wait_for_it(place: Make) -> None:
    refused = {"fail": "You have hit your usage limit", "kind": "quota_exhausted"}
    at = place({"a": [{"say": "a", "first": [refused] * 3}], "*": [{"say": "x"}]}, k={"probeMs": 1500})
    async with Orchestrator(at.root):
        await at.single("a", key="a")
        known = await used_up(at)
        assert (known["provider"], "usage limit" in known["error"]) == ("test", True)
        await at.single("b", key="b")
        await at.single("c", key="c")
        shown = await at.until("b", lambda found: found["calls"][0].get("waiting") is not None)
        assert shown["calls"][0]["waiting"]["reason"] == "provider-exhausted"
        until = known["next_try"]
        assert [one["key"] for one in at.requests] == ["a"] * len(at.requests), "nobody else is sent there"
        for name in "abc":
            assert (await at.sealed(name))["calls"][0]["status"] == "ok"
        assert time.time() >= until
        assert (await at_status(at))["exhausted"] == []
    assert await at.slots() == {}


async def at_status(at: Place) -> dict[str, Any]:
    async with reading(at.root) as reader:
        return await status(reader, at.root)


async def used_up(at: Place) -> dict[str, Any]:
    async with asyncio.timeout(30):
        while not (found := (await at_status(at))["exhausted"]):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return dict(found[0])


async def test_r532_calls_wait_while_settings_that_they_need_are_broken(place: Make) -> None:
    at = place({"*": [{"say": "x"}]}, k={"nonsense": 1})
    async with Orchestrator(at.root):
        await at.single("job")
        shown = await at.until("job", lambda found: found["calls"][0].get("waiting") is not None)
        assert "nonsense" in shown["calls"][0]["waiting"]["detail"]
        at.configure()
        assert (await at.sealed("job"))["calls"][0]["status"] == "ok"


async def test_r266_r267_nothing_that_runs_ends_for_want_of_memory_and_waiting_is_logged_once(
    place: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = place({"*": [{"say": "x", "hold": 1.0}]})
    left = 10_000.0
    async with Orchestrator(at.root) as orchestrator:
        orchestrator.orchestration.memory = lambda: left
        await at.single("one", key="a")
        await at.asked(1)
        left = 0.0
        monkeypatch.setattr(admission, "MEMORY_RETRY", 0.2)
        await at.single("two", key="b")
        shown = await at.until("two", lambda found: found["calls"][0].get("waiting") is not None)
        assert "memory" in shown["calls"][0]["waiting"]["detail"]
        call = await at.call((await at.sealed("one"))["wid"])
        assert (call.status, call.losses) == ("ok", 0)
        wid = (await at.described("two"))["wid"]
        await asyncio.sleep(1.0)  # several tries
        left = 10_000.0
        await at.sealed("two", seconds=30)
        async with reading(at.root) as reader:
            assert reader is not None
            told = [one.type for one in await events.of_workflow(reader, wid)]
        assert told.count("waiting") == 1
        assert told.count("started") == 1


async def test_r410_r411_r412_everything_that_a_finished_call_started_is_gone_and_nothing_else(place: Make) -> None:
    escape = (
        "nohup sleep 611 >/dev/null 2>&1 & setsid sleep 612 & (setsid sh -c 'sleep 613 & sleep 614' &) ;"
        " python3 -c 'import os,time; os.fork() or (os.setsid(), os.fork() or time.sleep(615))' & sleep 0.3;"
        " echo $PERDURE_EXEC > tag"
    )
    at = place({"a": [{"call": "bash", "args": {"command": escape}}, {"say": "done"}]})
    ours = subprocess.Popen(["sleep", "616"], env={**os.environ, "PERDURE_HOME": str(at.root.path)})  # noqa: ASYNC220
    try:
        wid = await at.single("job")
        assert (await at.sealed("job"))["calls"][0]["status"] == "ok"
        assert (at.work / "tag").read_text().startswith(wid)
        found = await asyncio.create_subprocess_exec("pgrep", "-f", "sleep 61[1-5]", stdout=asyncio.subprocess.PIPE)
        assert (await found.communicate())[0] == b""
        assert processes_of(at, wid) == []
        assert ours.poll() is None
        assert starter.running(at.root) is not None
        async with reading(at.root) as reader:
            assert reader is not None
            assert await rows.keys(reader, ExecutionDoc) == []
    finally:
        ours.kill()
        ours.wait()
