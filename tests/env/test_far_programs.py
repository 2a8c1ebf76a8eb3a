"""The programs that are sent to the far side, run beside us by their own words."""

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from perdure.env import far_exec, far_program
from perdure.env.containment import EXECUTION_VARIABLE
from perdure.env.far_files import SIZES


def begun(program: bytes, request: Mapping[str, object]) -> subprocess.Popen[bytes]:
    command = far_program.words(sys.executable, {EXECUTION_VARIABLE: "test-far-programs"})
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    text = json.dumps(request).encode()
    process.stdin.write(program + SIZES.pack(len(text), 0) + text)
    process.stdin.flush()
    return process


@pytest.mark.slow
def test_a_command_ends_when_nobody_has_spoken_to_it_for_the_length_of_its_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line may be cut so that the far side is never told."""
    source = far_program._source("far_exec")
    assert f"LEASE_SECONDS = {far_exec.LEASE_SECONDS}" in source
    short = source.replace(f"LEASE_SECONDS = {far_exec.LEASE_SECONDS}", "LEASE_SECONDS = 1.0")
    monkeypatch.setattr(
        far_program, "_source", lambda name, kept=far_program._source: short if name == "far_exec" else kept(name)
    )
    beat = "while :; do echo x >> beat; sleep 0.1; done"
    request = {"argv": ["sh", "-c", f"setsid sh -c '{beat}' & sleep 1111"], "cwd": [str(tmp_path)], "env": {}}
    process = begun(far_program.program("far_exec", b"magic"), request)
    assert process.wait(20) == 0  # our end of its input is open all the while
    size = (tmp_path / "beat").stat().st_size
    time.sleep(0.3)  # another process would act meanwhile
    assert (tmp_path / "beat").stat().st_size == size
    process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("name", list(far_program.MODULES))
def test_a_program_imports_nothing_but_the_standard_library_and_itself(name: str) -> None:
    process = begun(far_program.program(name, b"magic"), {"id": 1, "op": "hello", "argv": [], "cwd": ["."], "env": {}})
    out, _ = process.communicate(timeout=20)
    assert out.startswith(b"magic")
