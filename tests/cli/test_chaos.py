"""`perdure agents chaos` and `smoke`: the whole, and that their checks can fail."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perdure.testing import chaos
from perdure.testing.chaos_world import Broken, World

pytestmark = pytest.mark.slow


def agents(home: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {"PATH": os.environ["PATH"], "HOME": str(home / "nosuch"), "PERDURE_HOME": str(home / "untouched")}
    source = str(Path(__file__).parents[2] / "src")
    return subprocess.run(
        [sys.executable, "-m", "perdure.cli", "agents", *arguments], env={**environment, "PYTHONPATH": source},
        capture_output=True, text=True, timeout=200, cwd=home,
    )  # fmt: skip


def test_r490_all_nine_scenarios_hold_offline_and_touch_nothing_of_the_users(tmp_path: Path) -> None:
    done = agents(tmp_path, "chaos", "--json")
    found: Any = json.loads(done.stdout)
    assert [one["problem"] for one in found["scenarios"]] == [""] * 9
    assert done.returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_r491_a_bad_option_starts_nothing(tmp_path: Path) -> None:
    assert agents(tmp_path, "chaos", "--scenario", "10").returncode == 2


async def test_r491_a_broken_invariant_is_named_and_its_evidence_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    async def failing(world: World) -> dict[str, Any]:
        raise Broken("this does not hold")

    monkeypatch.setattr(chaos, "SCENARIOS", (chaos.SCENARIOS[6]._replace(play=failing),))
    verdict = await chaos.run_scenario(1)
    assert (verdict.passed, verdict.problem) == (False, "this does not hold")
    assert os.path.isdir(verdict.evidence)  # noqa: ASYNC240
    shutil.rmtree(verdict.evidence)


def test_r480_smoke_passes_here_and_says_what_it_checked(tmp_path: Path) -> None:
    done = agents(tmp_path, "smoke")
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("ok  ") == 5
