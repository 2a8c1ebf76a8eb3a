"""Docstrings: what is for models, and what is for callers."""

import pytest

from perdure.extensions.docstring import UnreadableDocstring, read_docstring


def test_everything_before_the_first_heading_for_callers_is_the_description() -> None:
    doc = """Convert a file.

    Supported formats:
      - png

    Returns:
        Nothing a model needs.
    """
    assert read_docstring(doc)[0] == "Convert a file.\n\nSupported formats:\n  - png"


def test_returns_before_args_does_not_reach_the_model() -> None:
    description, described = read_docstring("Add.\n\nReturns:\n    The sum.\n\nArgs:\n    a: The first.\n")
    assert (description, described) == ("Add.", {"a": "The first."})


@pytest.mark.parametrize("indent", ["  ", "    ", "\t"])
def test_any_indentation_of_items_is_read(indent: str) -> None:
    doc = f"Add.\n\nArgs:\n{indent}a: The first.\n{indent}b (int, optional): The\n{indent}{indent}second.\n"
    assert read_docstring(doc)[1] == {"a": "The first.", "b": "The second."}


def test_a_text_may_begin_below_its_name() -> None:
    assert read_docstring("Add.\n\nArgs:\n    a:\n        The first.\n\n    b: x: y\n")[1] == {
        "a": "The first.",
        "b": "x: y",
    }


def test_the_next_heading_ends_the_parameters() -> None:
    assert read_docstring("Add.\n\nArgs:\n    a: The first.\nRaises:\n    ValueError: never\n")[1] == {
        "a": "The first."
    }


@pytest.mark.parametrize("line", ["a - The first.", "The first of them is a", "a b: two names"])
def test_a_line_that_describes_no_parameter_is_refused_not_ignored(line: str) -> None:
    with pytest.raises(UnreadableDocstring) as refused:
        read_docstring(f"Add.\n\nArgs:\n    {line}\n")
    assert str(refused.value) == f"its docstring has a line under Args that describes no parameter: {line!r}"


def test_a_parameter_described_twice_is_refused() -> None:
    with pytest.raises(UnreadableDocstring, match="describes a twice"):
        read_docstring("Add.\n\nArgs:\n    a: one\n    a: two\n")


def test_no_docstring_gives_no_description() -> None:
    assert read_docstring(None) == ("", {})
