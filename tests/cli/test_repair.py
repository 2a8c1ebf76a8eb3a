"""`perdure repair`: the way out of a damaged file of lines."""

import asyncio
import json
from pathlib import Path

import pytest

from perdure import Harness
from perdure.testing.scripted_model import ScriptedModel
from tests.agent.kit import MODEL, ask
from tests.cli.kit import Cli


async def talk(path: Path) -> None:
    """A session of two answers."""
    async with Harness.open(f"jsonl:{path}", models=ScriptedModel(["first", "second"])) as harness:
        root = await harness.root(model=MODEL)
        await ask(root, "one")
        await ask(root, "two")


@pytest.mark.slow
def test_a_damaged_session_is_refused_with_the_way_out_and_repaired_beside(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    path, new = tmp_path / "s.jsonl", tmp_path / "new.jsonl"
    asyncio.run(talk(path))
    damaged = path.read_bytes().replace(b'"two"', b'"twO"', 1)
    path.write_bytes(damaged)
    refused = cli.run("log", str(path))
    assert refused.returncode == 1
    assert "damaged at byte" in refused.stderr
    assert "perdure repair" in refused.stderr
    done = cli.run("repair", str(path), str(new), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rest"] == f"{new}.rest"
    assert path.read_bytes() == damaged
    log = cli.run("log", str(new)).stdout
    assert "first" in log
    assert "second" not in log
    assert "second" in (tmp_path / "new.jsonl.rest").read_text("utf-8")
    again = cli.run("repair", str(path), str(new))
    assert again.returncode == 1
    assert "exists already" in again.stderr
