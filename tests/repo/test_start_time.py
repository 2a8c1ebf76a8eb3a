"""Starting is quick. What is measured is the processor time of a child, best of several.

Processor time is the wall time of a machine with nothing else to do, for starting waits for nothing once the files are
cached; unlike wall time it stays nearly the same while the rest of the suite runs beside it. The cost of an import is
what it adds to a bare interpreter; a command counts as a whole, as a person waits for it.

The limits hold for a machine on which `asyncio`, `msgspec` and `apsw`, which nothing of ours can start without, take
`LIBRARIES_MS`. A machine that is slower at the moment is slower for them too: the limits grow by that factor.
"""

import os
import sys
from collections.abc import Sequence

import pytest

from tests.repo.tidy import ROOT

pytestmark = pytest.mark.slow

ROUNDS = 9
IMPORT_MS = 150.0
HELP_MS = 300.0
LIBRARIES = "import asyncio, msgspec, apsw"
LIBRARIES_MS = 65.0
"""What they take on a quiet machine of the kind that these limits are meant for."""
HEAVY = ["pydantic", "pydantic_ai", "openai", "anthropic", "click", "hypothesis"]

IMPORT = "from perdure import Harness"
HELP = "import sys; from perdure.cli.main import main; sys.argv[0] = 'perdure'; sys.exit(main())"


def cpu_ms(code: str, *arguments: str) -> float:
    """User and system time of one interpreter that runs the code, in milliseconds. Its output is thrown away."""
    environment = {"PYTHONPATH": str(ROOT / "src"), "PATH": os.environ.get("PATH", ""), "HOME": "/nonexistent"}
    quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    command = [sys.executable, "-c", code, *arguments]
    pid = os.posix_spawn(sys.executable, command, environment, file_actions=quiet)
    _, status, usage = os.wait4(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    return (usage.ru_utime + usage.ru_stime) * 1000


def best_ms(limit: float, code: str, *arguments: str, over: str | None = None) -> float:
    """The least of several rounds, over the least of another program. Stops as soon as it is below the limit."""
    took: list[float] = []
    bare: list[float] = []
    for _ in range(ROUNDS):
        bare.append(0.0 if over is None else cpu_ms(over))
        took.append(cpu_ms(code, *arguments))
        if min(took) - min(bare) < limit:
            break
    return min(took) - min(bare)


def slowness() -> float:
    """How much slower than usual the machine is now; at least 1."""
    return max(1.0, best_ms(0.0, LIBRARIES, over="pass") / LIBRARIES_MS)


def loaded(names: Sequence[str], code: str) -> None:
    check = f"{code}\nimport sys\nfound = sorted(set({list(names)!r}) & set(sys.modules))\nassert not found, found"
    cpu_ms(check)


def test_importing_the_harness_takes_150_ms_at_most_scaled_by_how_slow_the_machine_is() -> None:
    limit = IMPORT_MS * slowness()
    assert best_ms(limit, IMPORT, over="pass") < limit


def test_help_takes_300_ms_at_most_scaled_by_how_slow_the_machine_is() -> None:
    limit = HELP_MS * slowness()
    assert best_ms(limit, HELP, "--help") < limit


def test_importing_the_harness_loads_no_provider_and_no_library_of_the_user() -> None:
    loaded(HEAVY, IMPORT)


def test_the_measurement_sees_a_slow_start() -> None:
    slow = "import time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass"
    assert best_ms(IMPORT_MS, slow, over="pass") > IMPORT_MS


def test_the_measurement_sees_a_program_that_fails() -> None:
    with pytest.raises(AssertionError):
        cpu_ms("raise SystemExit(3)")
