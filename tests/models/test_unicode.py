"""Text from providers, cut anywhere."""

import json
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from perdure.base.jsonvalue import check
from perdure.models.unicode import Stitch, clean, parse_arguments

ANY_TEXT = st.text(st.characters(exclude_categories=[]))
FAMILY = "👨‍👩‍👧 한국어 é"


@given(st.lists(st.integers(0, 40)))
def test_pieces_cut_between_halves_of_characters_join_to_the_same_text(cuts: list[int]) -> None:
    units = FAMILY.encode("utf-16-le")
    halves = "".join(chr(int.from_bytes(units[at : at + 2], "little")) for at in range(0, len(units), 2))
    places = sorted({0, len(halves), *(cut for cut in cuts if cut < len(halves))})
    stitch = Stitch()
    pieces = [stitch.add(halves[begin:end]) for begin, end in pairwise(places)]
    assert "".join([*pieces, stitch.end()]) == FAMILY
    for piece in pieces:
        piece.encode()


@given(ANY_TEXT)
def test_whatever_comes_is_well_formed_in_the_end(text: str) -> None:
    stitch = Stitch()
    "".join([*(stitch.add(character) for character in text), stitch.end()]).encode()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT | st.integers(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_cleaned_values_are_strict_json(value: object) -> None:
    check(clean(value))


@given(JSON | ANY_TEXT)
def test_arguments_become_a_strict_object_or_well_formed_text(value: object) -> None:
    raw: list[str | dict[str, Any] | None] = [json.dumps(value, default=str, skipkeys=True)]
    if isinstance(value, str | dict):
        raw.append(value)
    for one in raw:
        found = parse_arguments(one)
        check(found)
        assert isinstance(found, dict | str)


def test_nesting_without_end_stays_raw() -> None:
    for depth in (300, 100_000):
        raw: str = '{"a":' * depth + "1" + "}" * depth
        assert parse_arguments(raw) == raw


def test_no_arguments_are_an_empty_object() -> None:
    cases: list[str | dict[str, Any] | None] = [None, "", {}, "{}"]
    assert [parse_arguments(raw) for raw in cases] == [{}, {}, {}, {}]
