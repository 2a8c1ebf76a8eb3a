"""A request id stands for one submission for ever, whoever retries it and whenever."""

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perdure import Extension, RequestConflict, Settings
from perdure.base.ids import ROOT
from perdure.models.errors import AuthFailed
from perdure.session.entries import entry
from perdure.storage.memory import MemoryStorage
from perdure.storage.sqlite.store import SqliteStorage
from perdure.testing.clock import FakeClock
from perdure.testing.crash import Scenario, explore
from perdure.testing.ledger import FileLedger
from perdure.testing.scripted_model import ScriptedModel, fail, say
from tests.agent.kit import agent, ask, said
from tests.cli.kit import Cli, server
from tests.traps import crowd

PROCESSES = 20


async def ask_again(process: Any) -> None:
    """The client asks again at every start of the process, until it is told an outcome."""
    await process.settled(await process.submit("do it", request_id="job-1"))


@pytest.mark.slow
def test_a_client_that_asks_again_after_a_crash_at_any_write_gets_the_one_outcome() -> None:
    explore(Scenario("job", ask_again, turns=["a"], finish=ask_again), ["memory", "power"], snapshots=True)


async def test_twenty_at_once_undecided_settled_and_restarted_are_one_entry_and_one_request() -> None:
    storage, go = MemoryStorage(), asyncio.Event()
    model = ScriptedModel([say("a").held_by(go)])
    async with agent(model, storage=storage) as (_, root):
        submissions = await asyncio.gather(*(root.submit("do it", request_id="job-1") for _ in range(20)))
        assert await submissions[0].status() == "placed"
        go.set()
        answers = {(await submission.wait()).entry_id for submission in submissions}
        assert len(answers) == 1
    async with agent(model, storage=storage) as (_, root):
        again = await root.submit("do it", request_id="job-1")
        assert (await again.wait()).entry_id in answers
        with pytest.raises(RequestConflict) as caught:
            await root.submit("something else", request_id="job-1")
        assert caught.value.code == "request_conflict"
        assert "do it" not in f"{caught.value} {caught.value.hint}"
        assert await said(root) == ["do it"]
        assert len(model.requests) == 1


async def test_a_failure_stays_the_outcome_of_its_id_and_a_new_id_may_succeed() -> None:
    async with agent([fail(AuthFailed("no key")), "a"]) as (_, root):
        first = await root.submit("do it", request_id="job-1")
        assert (await first.settled()).reason == "failed"
        again = await root.submit("do it", request_id="job-1")
        assert (again.id, (await again.settled()).reason) == (first.id, "failed")
        assert (await (await root.submit("do it", request_id="job-2")).wait()).text == "a"


@entry("test.order")
@dataclass(frozen=True)
class Order:
    """A passive entry with an object in it."""

    lines: dict[str, int]

    def to_model(self) -> list[Any]:
        """Nothing: it is for people."""
        return []


async def test_the_order_of_the_keys_of_an_object_is_not_content() -> None:
    forms: list[list[Any]] = [[{"type": "text", "text": "do it"}], [{"text": "do it", "type": "text"}]]
    extension = Extension("orders")
    extension.add(Order)
    async with agent(["a"], extension) as (_, root):
        first, second = [await root.submit(form, request_id="job-1") for form in forms]
        assert first.id == second.id
        assert (await first.wait()).text == "a"
        written = [await root.write(Order(lines), request_id="w") for lines in ({"a": 1, "b": 2}, {"b": 2, "a": 1})]
        assert written[0].id == written[1].id
        with pytest.raises(RequestConflict):
            await root.write(Order({"a": 2, "b": 1}), request_id="w")
        assert len(await said(root)) == 1


async def test_an_id_is_known_when_nothing_of_its_conversation_is_in_memory_any_more() -> None:
    clock, storage = FakeClock(), MemoryStorage()
    model = ScriptedModel(["a", "b"], clock=clock)
    async with agent(model, storage=storage, clock=clock, settings=Settings(retention=10.0)) as (harness, root):
        first = await root.submit("do it", request_id="job-1")
        answer = await first.wait()
        await ask(root, "more")
        await clock.advance(60)
        assert harness.agent.transcripts.held(ROOT) is None
        again = await root.submit("do it", request_id="job-1")
        assert (again.id, (await again.wait()).entry_id) == (first.id, answer.entry_id)
        with pytest.raises(RequestConflict) as caught:
            await root.submit("something else", request_id="job-1")
        assert "do it" not in f"{caught.value} {caught.value.hint}"
        assert await said(root) == ["do it", "more"]


def told(kind: str, count: int, folder: Path, *arguments: str, environment: dict[str, str] | None = None) -> list[str]:
    """What each process of a crowd was told."""
    path = os.pathsep.join(["src", os.curdir])
    done = subprocess.run(
        [sys.executable, "-m", "tests.traps.crowd", kind, str(count), str(folder), *arguments],
        env={**os.environ, **(environment or {}), "PYTHONPATH": path},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    heard: list[str] = json.loads(done.stdout)
    assert len(heard) == count
    return heard


@pytest.mark.slow
async def test_twenty_processes_that_submit_one_id_at_once_are_one_entry_and_one_request(tmp_path: Path) -> None:
    heard = told("library", PROCESSES, tmp_path, "do it")
    assert len(set(heard)) == 1
    assert len(FileLedger(tmp_path / crowd.ASKED).lines()) == 1
    async with agent(["b"], storage=SqliteStorage(tmp_path / crowd.STORE)) as (_, root):
        assert await said(root) == ["do it"]
        with pytest.raises(RequestConflict):
            await root.submit("do that", request_id="job-1")


@pytest.mark.parametrize(
    "count", [pytest.param(4, marks=pytest.mark.slow), pytest.param(PROCESSES, marks=pytest.mark.long)]
)
def test_command_lines_with_one_request_id_at_once_print_one_answer(count: int, tmp_path: Path) -> None:
    with server({"text": "the answer"}, {"text": "another answer"}) as running:
        cli = Cli(tmp_path, running.base_url)
        words = ["ask", "do it", "--session", "job", "--request-id", "job-1", "--model", "openai:gpt-test"]
        heard = told("cli", count, tmp_path, *words, environment=cli.environment)
        assert {text.strip() for text in heard} == {"the answer"}
        assert len(running.requests) == 1
        other = cli.run("ask", "do that", "--session", "job", "--request-id", "job-1")
        assert other.returncode == 3
        assert "do it" not in other.stdout + other.stderr
        assert len(running.requests) == 1
