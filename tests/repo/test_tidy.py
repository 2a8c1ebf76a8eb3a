"""The house stays tidy: what the style rules can count is counted. Each rule is also shown something bad."""

from collections.abc import Callable, Iterable, Iterator

import pytest

from tests.repo import tidy
from tests.repo.tidy import ROOT, Source

Check = Callable[[Iterable[Source]], Iterator[str]]

LONG_FUNCTION = "def f():\n" + "    x = 1\n" * 60
WIDE_CLASS = "class Wide:\n" + "".join(f"    def m{n}(self): pass\n" for n in range(16))
CONTRACT = "class Contract(Protocol):\n" + "".join(f"    def m{n}(self): ...\n" for n in range(16))
WIDE_CONTRACT = "class Contract(Protocol[T]):\n" + "".join(f"    def m{n}(self): ...\n" for n in range(21))

BAD: list[tuple[Check, str, str, str]] = [
    (tidy.sizes, "src/perdure/base/x.py", "x = 1\n" * 401, "401 lines"),
    (tidy.sizes, "tests/base/test_x.py", "#" * 121, "121 characters"),
    (tidy.sizes, "src/perdure/base/x.py", LONG_FUNCTION, "f has 61 lines"),
    (tidy.public_methods, "src/perdure/base/x.py", WIDE_CLASS, "Wide has 16 public methods"),
    (tidy.public_methods, "src/perdure/base/x.py", WIDE_CONTRACT, "Contract has 21 public methods"),
    (tidy.imports, "src/perdure/base/x.py", "async def f():\n    import os", "an import inside f"),
    (tidy.imports, "src/perdure/base/x.py", "from typing import TYPE_CHECKING", "hides a cycle"),
    (tidy.imports, "src/perdure/base/x.py", "import typing\nif typing.TYPE_CHECKING: pass", "hides a cycle"),
    (tidy.names, "src/perdure/base/x.py", "class TaskManager: pass", "'manager' says nothing"),
    (tidy.names, "src/perdure/base/x.py", "class JSONBase: pass", "'base' says nothing"),
    (tidy.names, "src/perdure/base/json_utils.py", "", "'utils' says nothing"),
    (tidy.docstrings, "src/perdure/base/x.py", "x = 1", "no docstring"),
    (tidy.docstrings, "src/perdure/base/__init__.py", '"""Base."""\nx = 1', "a docstring only"),
    (tidy.unfinished, "src/perdure/base/x.py", "x = 1  # TO" + "DO later", "a note for later"),
    (tidy.unfinished, "src/perdure/base/x.py", 'def f():\n    """Doc."""\n    ...', "f has no body"),
    (tidy.dead_modules, "src/perdure/base/x.py", "", "nothing reaches this module"),
    (tidy.test_places, "tests/nowhere/test_x.py", "", "mirrors no room"),
    (tidy.test_places, "tests/test_x.py", "", "mirrors no room"),
]  # fmt: skip

GOOD: list[tuple[Check, str, str]] = [
    (tidy.sizes, "src/perdure/base/x.py", "x = 1\n" * 400),
    (tidy.public_methods, "src/perdure/base/x.py", CONTRACT + CONTRACT.replace("Contract(Protocol)", "Filled")),
    (tidy.imports, "src/perdure/models/provider.py", "def f():\n    import openai"),
    (tidy.names, "src/perdure/base/x.py", "class Database(BaseModel): pass\nclass Utility: pass"),
    (tidy.docstrings, "src/perdure/tools/__init__.py", '"""Tools."""\nfrom x import y'),
    (tidy.unfinished, "src/perdure/base/x.py", CONTRACT + "@overload\ndef f(): ...\nprefix = 'todo'"),
    (tidy.test_places, "tests/repo/test_x.py", ""),
]


def report(findings: Iterable[str]) -> None:
    found = sorted(findings)
    assert not found, "\n".join([f"{len(found)} findings", *found])


@pytest.fixture(scope="module")
def sources() -> list[Source]:
    return tidy.repository_sources()


@pytest.mark.parametrize("check", tidy.CHECKS, ids=lambda check: check.__name__)
def test_the_repository_is_tidy(check: Check, sources: list[Source]) -> None:
    assert sources
    report(check(sources))


def test_no_file_names_a_machine_or_a_registry() -> None:
    def readable() -> Iterator[tuple[str, str]]:
        for name in tidy.repository_files():
            content = (ROOT / name).read_bytes()
            if b"\0" not in content:
                yield name, content.decode("utf-8")

    report(tidy.texts(readable()))


@pytest.mark.parametrize(
    ("path", "most"), [("AGENTS.md", 80), ("docs/ARCHITECTURE.md", 120), ("src/perdure/__init__.py", 120)]
)
def test_what_must_be_short_is_short(path: str, most: int) -> None:
    assert len((ROOT / path).read_text("utf-8").splitlines()) <= most


def test_a_decision_is_told_in_thirty_lines() -> None:
    records = sorted((ROOT / "docs/decisions").glob("*.md"))
    assert records
    assert {path.name for path in records if len(path.read_text("utf-8").splitlines()) > 30} == set()


@pytest.mark.parametrize(("check", "path", "text", "finding"), BAD, ids=lambda value: getattr(value, "__name__", None))
def test_a_check_finds_what_is_bad(check: Check, path: str, text: str, finding: str) -> None:
    assert any(finding in found for found in check([Source(path, text)]))


@pytest.mark.parametrize(("check", "path", "text"), GOOD, ids=lambda value: getattr(value, "__name__", None))
def test_a_check_lets_pass_what_is_good(check: Check, path: str, text: str) -> None:
    report(check([Source(path, text)]))


def test_a_module_that_is_loaded_by_name_is_not_dead() -> None:
    root = Source("src/perdure/cli/main.py", "COMMANDS = {'tour': 'perdure.cli.tour:tour'}")
    report(tidy.dead_modules([root, Source("src/perdure/cli/tour.py", "")]))


def test_two_dead_modules_do_not_keep_each_other_alive() -> None:
    one = Source("src/perdure/base/one.py", "import perdure.base.two")
    two = Source("src/perdure/base/two.py", "import perdure.base.one")
    assert len(list(tidy.dead_modules([one, two]))) == 2


def test_a_module_that_only_tests_use_is_dead_unless_it_is_for_testing() -> None:
    test = Source("tests/base/test_x.py", "import perdure.base.x, perdure.testing.y")
    found = list(tidy.dead_modules([test, Source("src/perdure/base/x.py", ""), Source("src/perdure/testing/y.py", "")]))
    assert found == ["src/perdure/base/x.py:1: nothing reaches this module"]


@pytest.mark.parametrize("line", ["in '/ro" + "ot/x'", "/home" + "/ann", "see py" + "pi.org/x", "--index" + "-url x"])
def test_a_place_on_one_machine_and_a_registry_are_found(line: str) -> None:
    assert list(tidy.texts([("README.md", line)]))


@pytest.mark.parametrize("line", ["cwd='/srv/repo'", "https://example.com/root/x", "docs/work/x", "/homepage/x"])
def test_other_places_pass(line: str) -> None:
    report(tidy.texts([("README.md", line)]))
