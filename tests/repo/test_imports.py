"""The floor plan holds: imports go down, the picture tells the truth, and every dependency has its place."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.repo import tidy
from tests.repo.tidy import ROOT, Source

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
LAYERS: list[str] = PROJECT["tool"]["importlinter"]["contracts"][0]["layers"]
PICTURE = re.compile(r"```text\n(doors .*?)```", re.DOTALL)

DOORS = {"perdure", "perdure.events", "perdure.wakes"}
ABOVE_THE_PUBLIC_NAMES = {"cli", "tui", "web", "testing", "server", "subagents", "hosting"}
MAY_IMPORT_TESTING = {"testing", "perdure.cli.tour", "perdure.cli.tour_agent", "perdure.cli.chaos", "perdure.cli.bench"}
TOOLS_MAY_IMPORT = {"tools", "extensions", "env", "base"}
BROUGHT_BY_USERS = {"pydantic"}
"""Types that a user may bring; recognised, never needed."""
HOMES = {
    "apsw": {"storage", "testing"},
    "asyncssh": {"env"},
    "click": {"cli"},
    "patchdiff": {"base"},
    "platformdirs": {"cli"},
    "openai": {"models"},
    "anthropic": {"models"},
    "pydantic_ai": {"models"},
    "genai_prices": {"models"},
    "watchfiles": {"env"},
}
"""The rooms that may know a library. Elsewhere it would have to be replaced twice."""


def imported(source: Source) -> Iterator[tuple[int, str]]:
    """Every module a file imports, with the line; `from perdure import base` counts as perdure.base."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "perdure":
            rooms = {room for layer in LAYERS for room in re.findall(r"\w+", layer)}
            for name in node.names:
                yield node.lineno, f"perdure.{name.name}" if name.name in rooms else "perdure"
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.lineno, node.module


def room_of(module: str) -> str:
    """The room of a module of ours; empty for the root and for what is not ours."""
    parts = module.split(".")
    return parts[1] if parts[0] == "perdure" and len(parts) > 1 else ""


def broken_rules(sources: Iterable[Source]) -> Iterator[str]:
    """The rules that layers cannot say."""
    for source in sources:
        here = room_of(source.module)
        for line, module in imported(source) if here else ():
            place, there = f"{source.path}:{line}", room_of(module)
            if module in DOORS and here not in ABOVE_THE_PUBLIC_NAMES | {"events", "wakes"}:
                yield f"{place}: a room imports the public names of the whole"
            if there == "testing" and not {here, source.module} & MAY_IMPORT_TESTING:
                yield f"{place}: the program imports what is for tests"
            if here == "tools" and there and there not in TOOLS_MAY_IMPORT:
                yield f"{place}: a tool imports {there}, which an extension's author cannot see"
            if here not in HOMES.get(module.partition(".")[0], {here}):
                yield f"{place}: {module} is no business of {here}"


def rooms_built() -> set[str]:
    return {path.parent.name for path in (ROOT / "src/perdure").glob("*/__init__.py")}


def third_party(sources: Iterable[Source]) -> set[str]:
    tops = {module.partition(".")[0] for source in sources for _, module in imported(source) if source.in_package}
    return tops - set(sys.stdlib_module_names) - {"perdure"}


def distributions(requirements: Iterable[str]) -> set[str]:
    """Names of requirements, spelled as modules are."""
    return {re.split(r"[\[<>=~! ;]", requirement)[0].replace("-", "_") for requirement in requirements}


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(folder / "src")}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.slow
def test_rooms_import_downwards_only() -> None:
    outcome = lint_imports(ROOT)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


@pytest.mark.slow
@pytest.mark.parametrize("line", ["import perdure.session", "import perdure.models"])
def test_the_contract_refuses_an_import_upwards_and_one_to_the_side(tmp_path: Path, line: str) -> None:
    for room in re.findall(r"(?<!\()\b\w+\b(?!\))", " ".join(LAYERS)):
        folder = tmp_path / "src/perdure" / room
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("")
    (tmp_path / "src/perdure/__init__.py").write_text("")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    assert lint_imports(tmp_path).returncode == 0
    for room in ("storage", "env"):
        (tmp_path / "src/perdure" / room / "__init__.py").write_text(line)
    assert "BROKEN" in lint_imports(tmp_path).stdout


def test_the_picture_shows_the_contract() -> None:
    found = PICTURE.search((ROOT / "docs/ARCHITECTURE.md").read_text("utf-8"))
    assert found
    drawn = [re.split(r"\s{2,}", line[12:])[0] for line in found[1].splitlines()]
    assert drawn[-1] == "testing", "what stands beside is drawn last"
    assert drawn[:-1] == [layer for layer in LAYERS if layer != "testing"]


def test_a_room_in_parentheses_is_one_that_is_not_built() -> None:
    planned = {room for layer in LAYERS for room in re.findall(r"\((\w+)\)", layer)}
    assert planned & rooms_built() == set()
    assert {room for layer in LAYERS for room in re.findall(r"\w+", layer)} - planned == rooms_built()


def test_the_rules_that_layers_cannot_say_hold() -> None:
    assert list(broken_rules(tidy.repository_sources())) == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("src/perdure/agent/x.py", "from perdure import Harness"),
        ("src/perdure/agent/x.py", "from perdure.testing.clock import FakeClock"),
        ("src/perdure/cli/main.py", "from perdure.testing.clock import FakeClock"),
        ("src/perdure/tools/x.py", "from perdure.session.session import Session"),
        ("src/perdure/tools/x.py", "from perdure import session"),
        ("src/perdure/agent/x.py", "import apsw"),
    ],
)
def test_a_broken_rule_is_found(path: str, text: str) -> None:
    assert len(list(broken_rules([Source(path, text)]))) == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("src/perdure/cli/tour.py", "from perdure import Harness\nfrom perdure.testing.clock import FakeClock"),
        ("src/perdure/tools/x.py", "import perdure.base.ids\nfrom perdure.extensions.extension import Extension"),
        ("src/perdure/__init__.py", "from perdure.harness.harness import Harness"),
        ("src/perdure/storage/x.py", "import apsw"),
    ],
)
def test_what_is_allowed_passes(path: str, text: str) -> None:
    assert list(broken_rules([Source(path, text)])) == []


def test_every_declared_dependency_is_used_and_every_used_one_declared() -> None:
    used = third_party(tidy.repository_sources())
    core = distributions(PROJECT["project"]["dependencies"])
    extras = distributions(
        requirement for extra in PROJECT["project"]["optional-dependencies"].values() for requirement in extra
    )
    providers = {"pydantic_ai", "genai_prices"}
    """Modules of the distribution pydantic-ai-slim and of one that it always brings."""
    assert core - used == set()
    assert used - core - extras - providers - BROUGHT_BY_USERS == set()


def test_the_pins_name_no_address() -> None:
    lines = (ROOT / "requirements-dev.txt").read_text("utf-8").splitlines()
    assert lines
    assert [line for line in lines if not re.fullmatch(r"[a-z0-9-]+==[\w.+]+( ; [\w .'=!<>]+)?", line)] == []
