"""Strict JSON: everything that would change on its way through a file is refused, with its place."""

import enum
import json
import math
from collections import OrderedDict
from typing import Any

import pytest
from hypothesis import given

from perdure.base import jsonvalue
from perdure.base.errors import InvalidValue
from perdure.base.frozen import frozen
from tests.base.values import values


class Word(str):
    pass


class Level(enum.IntEnum):
    LOW = 1


class Colour(enum.StrEnum):
    RED = "red"


@given(values)
def test_every_json_value_is_accepted_and_comes_back_equal_with_its_keys_in_order(value: Any) -> None:
    jsonvalue.check(value)
    assert jsonvalue.is_strict(value)
    back = jsonvalue.decode(jsonvalue.encode(value))
    assert json.dumps(back) == json.dumps(value)


@given(values)
def test_a_copy_is_equal_and_shares_no_container(value: Any) -> None:
    copy = jsonvalue.copied(frozen(value))
    assert json.dumps(copy) == json.dumps(value)
    assert type(copy) is type(value)


@pytest.mark.parametrize(
    "bad",
    [
        math.nan,
        math.inf,
        -math.inf,
        b"x",
        bytearray(b"x"),
        {1},
        frozenset({1}),
        (1,),
        {1: 2},
        {None: 1},
        {b"a": 1},
        {Word("a"): 1},
        2**53,
        -(2**53),
        "\ud800",
        "a\udfffb",
        {"\ud800": 1},
        Word("x"),
        Level.LOW,
        Colour.RED,
        OrderedDict(a=1),
        object(),
        1j,
        range(3),
    ],
    ids=lambda bad: type(bad).__name__,
)
def test_what_is_not_strict_json_is_refused_with_its_path(bad: Any) -> None:
    assert not jsonvalue.is_strict(bad)
    with pytest.raises(InvalidValue) as caught:
        jsonvalue.check(bad)
    assert caught.value.path == ""
    with pytest.raises(InvalidValue) as caught:
        jsonvalue.check({"ok": [1, "x", None], "a/b~": [0, {"c": bad}]}, path="/at")
    assert caught.value.path == "/at/a~1b~0/1/c"


def test_the_largest_integers_are_accepted() -> None:
    jsonvalue.check([2**53 - 1, -(2**53) + 1])


def test_nesting_is_bounded_and_a_value_that_holds_itself_is_refused() -> None:
    value: Any = []
    for _ in range(jsonvalue.DEPTH_LIMIT - 1):
        value = {"a": value} if len(str(value)) % 2 else [value]
    jsonvalue.check(value)
    with pytest.raises(InvalidValue, match="nested deeper than 200"):
        jsonvalue.check([value])
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(InvalidValue, match="nested deeper than 200"):
        jsonvalue.check(loop)


@pytest.mark.parametrize("data", [b"", b"{", b"NaN", b'"\xff"', b'"\\ud800"', b"[" * 100_000, b"{'a':1}", "\ud800"])
def test_what_is_no_json_text_is_refused(data: bytes | str) -> None:
    with pytest.raises(InvalidValue):
        jsonvalue.decode(data)


def test_the_order_of_keys_makes_no_difference_to_the_canonical_form() -> None:
    assert jsonvalue.canonical({"b": [{"y": 1, "x": 2}], "a": 1}) == b'{"a":1,"b":[{"x":2,"y":1}]}'


@given(values)
def test_steps_of_a_pointer_come_back(value: Any) -> None:
    for key in value if isinstance(value, dict) else ():
        assert "/" not in jsonvalue.escape(key)
        assert jsonvalue.unescape(jsonvalue.escape(key)) == key
