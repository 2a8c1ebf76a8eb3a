"""What a run keeps of the files that it names, and which settings count while it runs; on real processes."""

import asyncio
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perdure.subagents.intake.decision import NotYet
from perdure.subagents.intake.run import prepare
from perdure.subagents.paths import StateRoot
from perdure.subagents.pins import PinFailed, pin_file, pinned
from perdure.subagents.spool import Sent
from tests.subagents.place import Place

Make = Callable[..., Place]
AGENT = "---\nname: mine\ndescription: d\n---\n{prompt}\n"


def sent(folder: Path, **body: object) -> Sent:
    return Sent(request="r", kind="run", body={"cwd": str(folder), **body}, sender="s")


@contextmanager
def no_more_files() -> Iterator[None]:
    """As if all that the process may open were open."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open("/dev/null", os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_r072_b129_a_machine_short_of_something_is_asked_again_and_loses_no_request(tmp_path: Path) -> None:
    root, script = StateRoot(tmp_path / "home"), tmp_path / "flow.py"
    script.write_text("return 1")
    run = sent(tmp_path, workflow="flow.py")
    with no_more_files():
        with pytest.raises(OSError, match="Too many open files"):
            pin_file(root, script)
        with pytest.raises(NotYet):
            await prepare(root, run)
    prepared = await prepare(root, run)
    assert prepared.problem is None
    assert prepared.pins is not None
    assert prepared.pins.script is not None
    assert pinned(root, prepared.pins.script) == b"return 1"


async def test_r072_what_stays_wrong_rejects_the_run_and_names_it(tmp_path: Path) -> None:
    root = StateRoot(tmp_path / "home")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "bytes.py").write_bytes(b"return '\xff'")
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "large.py").touch()
    os.truncate(tmp_path / "large.py", 65 * 1024 * 1024)
    for name in ("nosuch.py", "folder.py", "pipe.py", "bytes.py", "large.py", "x" * 300):
        prepared = await prepare(root, sent(tmp_path, workflow=name))
        assert (prepared.problem or "").startswith(f"pin-failed: {tmp_path / name}:"), (name, prepared.problem)
    for body in ({"workflow": "a\0b"}, {"source": "x", "inputs": {"a": "\0"}}, {"workflow": 5}, {"source": ["x"]}):
        assert (await prepare(root, sent(tmp_path, **body))).problem, body
    prepared = await prepare(root, sent(tmp_path / "gone", source="return 1"))
    assert prepared.problem == f"pin-failed: {tmp_path / 'gone'}: no such folder"
    with pytest.raises(PinFailed):
        pin_file(root, tmp_path / "pipe.py")


async def test_r062_inputs_and_scripts_are_kept_as_they_were(tmp_path: Path) -> None:
    root = StateRoot(tmp_path / "home")
    (tmp_path / "in.txt").write_bytes(b"one\r\n\xff")
    (tmp_path / "flow.py").write_text("return 1")
    prepared = await prepare(root, sent(tmp_path, workflow="flow.py", inputs={"data": "in.txt"}, args={"n": 1}))
    for name in ("in.txt", "flow.py"):
        (tmp_path / name).unlink()
    pins = prepared.pins
    assert pins is not None
    assert pinned(root, pins.inputs["data"]) == b"one\r\n\xff"
    assert pins.script is not None
    assert (pinned(root, pins.script), pins.args) == (b"return 1", {"n": 1})


@pytest.mark.slow
async def test_r035_agents_are_those_of_the_runs_beginning_whatever_becomes_of_their_files(place: Make) -> None:
    here = place({"one": [{"say": "first", "hold": 0.3}], "two": [{"say": "second"}]})
    file = here.work / ".agents/mine.md"
    file.parent.mkdir()
    file.write_text(AGENT.format(prompt="The old prompt."))
    steps = [{"agent": "mine", "task": "x", "key": key} for key in ("one", "two")]
    outcome = await here.run("job", chain=steps)
    assert outcome.state == "applied"
    file.write_text(AGENT.format(prompt="The new prompt."))
    await here.asked(1)
    file.unlink()
    found = await here.sealed("job")
    assert [result["status"] for result in found["result"]] == ["ok", "ok"]
    assert all("The old prompt." in request["system"] for request in here.requests)
    outcome = await here.run("again", tasks=steps)
    assert (outcome.state, "unknown agent 'mine'" in str(outcome.reply)) == ("rejected", True)


@pytest.mark.slow
async def test_r031_r053_an_override_is_what_a_run_uses(place: Make) -> None:
    here = place({"a": [{"say": "done"}]})
    (here.work / "perdure.toml").write_text(
        "[agents.override.worker]\nsystemPrompt = 'Be as this file says.'\n[agents.override.scout]\ndisabled = true\n"
    )
    await here.single("job")
    await here.sealed("job")
    assert "Be as this file says." in here.requests[0]["system"]
    outcome = await here.run("other", agent="scout", task="x")
    assert "unknown agent 'scout'" in str(outcome.reply)


@pytest.mark.slow
async def test_r531_r533_b052_a_limit_that_is_raised_lets_a_waiting_call_go_and_a_broken_file_changes_nothing(
    place: Make,
) -> None:
    here = place({"a": [{"say": "done", "hold": 30.0}], "b": [{"say": "done"}]}, providers={"test": {"slots": 1}})
    first = await here.single("one", key="a")
    await here.asked(1)
    second = await here.single("two", key="b")
    await here.until("two", lambda found: bool(found["calls"]) and found["calls"][0].get("waiting") is not None)
    here.root.config.write_text("{")
    await asyncio.sleep(1.5)
    assert (await here.call(second, "b")).phase == "queued"
    here.configure(providers={"test": {"slots": 2}})
    assert (await here.sealed("two"))["status"] == "done"
    assert (await here.call(first)).phase == "running"
    await here.client.ask("stop", {"to": first}, wait=30)
