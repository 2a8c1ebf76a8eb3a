"""Names that extensions bring."""

import pytest

from perdure.base.errors import InvalidDefinition
from perdure.extensions.names import check_extension_name, check_kind, check_section_name

TRICKS = [
    "",
    "../../x",
    "..%2f..%2fx",
    "/etc/x",
    "a/b",
    "a\0",
    "a\n",
    "a\u2024b",
    "C:\\x",
    "a..b",
    ".a",
    "a.",
    " a",
    "ä",
    7,
    None,
]


@pytest.mark.parametrize("name", ["a", "ops", "my-ops_2", "acme.ops", "a" * 64, "perdurable"])
def test_plain_names_are_extension_names(name: str) -> None:
    check_extension_name(name)


@pytest.mark.parametrize("name", [*TRICKS, "A", "1a", "-a", "a" * 65, "a" * 300])
def test_what_could_mean_something_else_in_a_path_or_a_log_is_no_extension_name(name: object) -> None:
    with pytest.raises(InvalidDefinition, match=r"^not an extension name: "):
        check_extension_name(name)


@pytest.mark.parametrize("name", ["perdure", "perdure.tool"])
def test_perdures_own_names_are_reserved(name: str) -> None:
    with pytest.raises(InvalidDefinition, match="is reserved"):
        check_extension_name(name)
    with pytest.raises(InvalidDefinition) as refused:
        check_kind(name, "extension ops: task kind")
    assert str(refused.value) == f"extension ops: task kind {name!r} uses the reserved prefix 'perdure.'"


@pytest.mark.parametrize("kind", ["shop.payment", "Shop.Payment_2", "a" * 128])
def test_plain_names_are_kinds(kind: str) -> None:
    check_kind(kind, "x")


@pytest.mark.parametrize("kind", [*TRICKS, "a" * 129])
def test_what_could_mean_something_else_is_no_kind(kind: object) -> None:
    with pytest.raises(InvalidDefinition, match=r"^x is no name: "):
        check_kind(kind, "x")


def test_an_error_about_a_name_stays_short_and_printable() -> None:
    with pytest.raises(InvalidDefinition) as refused:
        check_extension_name("\x1b[31m" + "a" * 10_000)
    assert refused.value.what.isprintable()
    assert len(refused.value.what) < 120


@pytest.mark.parametrize("name", ["agents_md", "How to work here", "ä/b"])
def test_a_section_may_have_any_name_that_can_be_shown(name: str) -> None:
    check_section_name(name, "x")


@pytest.mark.parametrize("name", ["", "a\nb", "\ud800", "a" * 65, None])
def test_a_section_name_that_cannot_be_shown_is_refused(name: object) -> None:
    with pytest.raises(InvalidDefinition, match=r"^x is no name: "):
        check_section_name(name, "x")
