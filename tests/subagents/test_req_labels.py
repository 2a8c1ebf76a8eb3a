"""Labels, and the session whose list shows a run: what the orchestrator refuses, and what processes inherit."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure import Harness, Registry
from perdure.cli.with_subagents import beside
from perdure.subagents.client import Client
from perdure.subagents.orchestrator import Orchestrator
from perdure.subagents.rendering import brief_lines, workflow_lines
from perdure.subagents.tool import parent_id
from perdure.testing.scripted_model import ScriptedModel, say
from tests.subagents.place import Place
from tests.subagents.test_req_status import brief, log, whole

pytestmark = pytest.mark.slow
Make = Callable[..., Place]


async def test_r380_r381_r382_made_by_hand_is_refused_by_the_orchestrator_too(place: Make) -> None:
    at = place({"*": [{"say": "ok"}]})
    async with Orchestrator(at.root):
        bad: list[Any] = [{"a b": "x"}, {"a": "y" * 257}, {"a": 1}, {str(n): "x" for n in range(33)}, [], "a=b"]
        for given in bad:
            outcome = await at.run(agent="worker", task="x", labels=given)
            assert outcome.state == "rejected", given
            assert outcome.reply["reason"].startswith("invalid-labels: "), outcome.reply
        for listed in ("", " ", "two\nlines", "s" * 201):
            sender = Client(at.root, "cli:me@here", listed=listed)
            outcome = await sender.ask("run", {"cwd": str(at.work), "agent": "worker", "task": "x"}, wait=30)
            assert outcome.state == "rejected", listed
            assert outcome.reply["reason"].startswith("invalid-session: "), outcome.reply
        assert await log(at) == [], "nothing of them is there"
        plain = await at.single("plain")
        other = await at.run("plain", agent="worker", task="Do it", key="a", labels={"a": "b"})
        assert other.state == "conflict", "labels are part of what is asked"
        labels = {f"name{number}": "v" * 20 for number in range(10)}
        wid = await at.single("job", labels=labels)
        await at.sealed("job")
        await at.sealed("plain")
        assert (await at.described("job"))["labels"] == labels
        assert all(one.labels == labels for one in await log(at) if one.wid == wid)
        for lines in (workflow_lines(await whole(at, wid)), brief_lines(await brief(at))):
            (line,) = [one for one in lines if one.startswith(wid)]
            shown = line.partition("(")[2].partition(")")[0]
            assert shown == " ".join(f"{name}={value}" for name, value in labels.items())[:60]
        assert (await at.client.ask("prune", {}, wait=30)).state == "applied"
        assert (await at.described(wid))["labels"] == labels
        assert (await at.described(plain))["labels"] == {}


async def test_r383_a_parents_processes_know_its_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PERDURE_SESSION", "another")
    models = ScriptedModel(lambda request: say("ok"))
    async with Harness.open(tmp_path / "s.db", registry=Registry([]), models=models) as harness, beside(harness):
        assert os.environ["PERDURE_SESSION"] == await parent_id(harness.session)
