"""What the pages say is true: every Python block runs, every link leads somewhere, every verb exists."""

import re
import sys
from pathlib import Path

import pytest
from sybil import Document
from sybil.parsers.markdown import PythonCodeBlockParser

from tests.repo.tidy import ROOT, repository_files

PAGES = [name for name in repository_files() if name.endswith(".md")]
WITH_PYTHON = [name for name in PAGES if "```python" in (ROOT / name).read_text("utf-8")]


def run_page(path: Path) -> int:
    """Run a page's Python blocks in order, in one namespace, as a reader would. Returns how many there were."""
    page = Document.parse(str(path), PythonCodeBlockParser(), encoding="utf-8")
    examples = list(page.examples())
    for example in examples:
        example.evaluate()
    return len(examples)


def broken_links(page: Path) -> list[str]:
    """Relative links of a page that lead nowhere."""
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
    return [target for target in targets if "://" not in target and not (page.parent / target).exists()]


def test_there_are_pages_to_look_at() -> None:
    assert {"README.md", "AGENTS.md", "CHANGELOG.md", "docs/ARCHITECTURE.md", "docs/glossary.md"} <= set(PAGES)
    assert "README.md" in WITH_PYTHON


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_PYTHON)
def test_the_python_of_a_page_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = (ROOT / name).read_text("utf-8").count("```python")
    assert run_page(ROOT / name) == blocks


def test_the_readme_example_prints_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(ROOT / "README.md")
    assert capsys.readouterr().out.splitlines()[-1] == "Charged, once."


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    assert broken_links(ROOT / name) == []


def test_the_make_verbs_that_pages_name_exist() -> None:
    verbs = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = {
        verb
        for name in PAGES
        for verb in re.findall(r"(?:`|^|\$ )make ([a-z]+)", (ROOT / name).read_text("utf-8"), re.M)
    }
    assert named
    assert named - verbs == set()


def test_the_tests_that_pages_name_exist() -> None:
    named = {
        found for name in PAGES for found in re.findall(r"`(tests/\S+\.py)::(\w+)`", (ROOT / name).read_text("utf-8"))
    }
    assert named
    missing = [f"{file}::{test}" for file, test in named if f"def {test}(" not in (ROOT / file).read_text("utf-8")]
    assert missing == []


def test_a_page_whose_code_fails_is_found(tmp_path: Path) -> None:
    page = tmp_path / "bad.md"
    page.write_text("# Bad\n\n```python\nx = 1\n```\n\n```python\nassert x == 2\n```\n")
    with pytest.raises(AssertionError):
        run_page(page)


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "bad.md"
    page.write_text("[a](missing.md#part) [b](https://example.com/x) [c](bad.md)")
    assert broken_links(page) == ["missing.md"]


def test_the_blocks_of_a_page_share_their_names(tmp_path: Path) -> None:
    page = tmp_path / "good.md"
    page.write_text("```python\nx = 1\n```\n\nand\n\n```python\nassert x == 1\n```\n")
    assert run_page(page) == 2
    assert "x" not in vars(sys.modules[__name__])
