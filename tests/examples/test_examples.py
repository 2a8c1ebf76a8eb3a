"""Every example runs offline, as a process of its own, and prints what lies beside it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("[0-9]*.py"))


def test_the_examples_are_numbered_without_gaps() -> None:
    assert [int(name.split("_")[0]) for name in NAMES] == list(range(len(NAMES)))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_example_prints_its_result(name: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent / "src"), "PYTHONWARNINGS": "error"}
    for key in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        environment.pop(key, None)
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py")], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout == (EXAMPLES / f"{name}.out").read_text()
