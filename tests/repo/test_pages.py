"""Every page and every example is found, and what the harness promises names only what runs."""

import ast
import re
from pathlib import Path

import pytest

from tests.repo.test_docs import WITH_PYTHON
from tests.repo.tidy import ROOT, repository_files

PROMISES = "docs/announcement-map.md"
EXAMPLES = sorted(name for name in repository_files() if re.fullmatch(r"examples/\d\d_\w+\.py", name))
NOT_YET = "not built yet"


def links(page: str) -> set[str]:
    """The files that a page links to, by their path in the repository."""
    folder = (ROOT / page).parent
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", (ROOT / page).read_text("utf-8"))
    return {(folder / target).resolve().relative_to(ROOT).as_posix() for target in targets if "://" not in target}


def promises(text: str) -> list[tuple[str, str]]:
    """The rows of its tables: what was said, and what shows it."""
    rows = [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return [(row[0].strip(), " | ".join(row[1:]).strip()) for row in rows if not row[0].strip().startswith("---")]


def anchors(page: Path) -> set[str]:
    """What a link may name on a page: its headings, as GitHub writes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def summary(example: str) -> str:
    """The first paragraph of an example's docstring, as one line."""
    text = ast.get_docstring(ast.parse((ROOT / example).read_text("utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split())


def test_every_page_is_found_from_the_index() -> None:
    pages = {name for name in repository_files() if re.fullmatch(r"docs/(decisions/)?[^/]+\.md", name)}
    assert pages - links("docs/README.md") == {"docs/README.md"}
    assert "docs/README.md" in links("README.md")


def test_every_example_is_in_their_index_with_its_first_words() -> None:
    index = (ROOT / "examples/README.md").read_text("utf-8")
    lines = [f"- [{Path(name).stem}]({Path(name).name}): {summary(name)}" for name in EXAMPLES]
    missing = [line for line in lines if line not in index]
    assert missing == [], "add these lines to examples/README.md"
    assert links("examples/README.md") == set(EXAMPLES)


def test_each_promise_names_what_shows_it_or_says_that_it_is_missing() -> None:
    rows = [
        row
        for row in promises((ROOT / PROMISES).read_text("utf-8"))
        if row[0] not in ("it was said that", "it promises")
    ]
    assert len(rows) > 40
    empty = [said for said, shown in rows if "](" not in shown and "`" not in shown and NOT_YET not in shown]
    assert empty == []


def test_every_promise_of_the_readme_is_held_by_tests() -> None:
    def part(page: str, head: str) -> list[tuple[str, str]]:
        text = (ROOT / page).read_text("utf-8")
        return promises(text[text.index(head) :].split("\n\n")[0])[1:]

    held = dict(part(PROMISES, "| it promises | held by |"))
    assert [said for said, _ in part("README.md", "| it promises | it does not promise |")] == list(held)
    assert [said for said, shown in held.items() if "::test_" not in shown] == []


def test_what_shows_a_promise_runs() -> None:
    named = links(PROMISES)
    run = {name for name in named if name.startswith("examples/") and name.endswith(".py")}
    assert len(run) > 25
    assert [name for name in run if not (ROOT / name).with_suffix(".out").exists()] == []
    pages = {name for name in named if name.startswith("docs/")}
    words = {"docs/ARCHITECTURE.md", "docs/durability.md", "docs/cli.md"}  # tables that name their tests
    assert pages - set(WITH_PYTHON) <= words


@pytest.mark.parametrize("name", ["README.md", PROMISES, "docs/README.md", "docs/tutorial.md"])
def test_links_to_a_part_of_a_page_lead_there(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    lost = [
        f"{target}#{part}"
        for target, part in re.findall(r"\]\(([^)#\s]*)#([^)]+)\)", text)
        if "://" not in target and part not in anchors((ROOT / name).parent / target if target else ROOT / name)
    ]
    assert lost == []


def test_a_promise_that_nothing_shows_is_found() -> None:
    assert promises("| a | b |\n|---|---|\n| it flies | soon |\n") == [("a", "b"), ("it flies", "soon")]


def test_the_words_of_the_glossary_are_in_use() -> None:
    pages = [name for name in repository_files() if name.endswith(".md") and name != "docs/glossary.md"]
    code = [name for name in repository_files() if name.startswith("src/") and name.endswith(".py")]
    text = "\n".join((ROOT / name).read_text("utf-8").lower() for name in pages + code)
    used = set(re.findall(r"\w+", text))
    rows = [
        line.split("|")[1] for line in (ROOT / "docs/glossary.md").read_text("utf-8").splitlines() if "| **" in line
    ]
    words = [word.lower() for row in rows for word in re.findall(r"\*\*([^*]+)\*\*", row)]
    assert len(words) > 80
    unused = [word for word in words if not (word in text if " " in word or "-" in word else word in used)]
    assert unused == []
