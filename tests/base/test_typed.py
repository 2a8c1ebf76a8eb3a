"""Codecs: what fits comes back as it was, what does not is refused with its path."""

import datetime
import decimal
import enum
import uuid
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, NotRequired, TypedDict, TypeVar

import msgspec
import pytest

from perdure.base.drafts import Draft
from perdure.base.errors import InvalidDefinition, InvalidValue
from perdure.base.frozen import frozen
from perdure.base.typed import codec

T = TypeVar("T")
Name = NewType("Name", str)


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


@dataclass
class Point:
    x: int
    y: float = 0.0


@dataclass
class Line:
    points: list[Point]
    note: Any = None


class Deeper(Point):
    pass


class Stop(TypedDict):
    city: str
    nights: NotRequired[int]


class Plan(TypedDict):
    stops: list[Stop]


class Card(msgspec.Struct, tag="card"):
    number: str


class Cash(msgspec.Struct, tag="cash"):
    amount: int


class Pair(NamedTuple):
    left: int
    right: Stop


class Renamed(msgspec.Struct, rename="camel"):
    long_name: int
    absent: int | msgspec.UnsetType = msgspec.UNSET


@dataclass
class Box(Generic[T]):
    item: T


@dataclass
class Tree:
    name: str
    children: list["Tree"] = field(default_factory=list)


def _codec(type_: Any) -> Any:
    return codec(type_, where="here")


GOOD: list[tuple[Any, Any, Any]] = [
    (int, 3, 3),
    (float, 3, 3),
    (float, 2.5, 2.5),
    (None, None, None),
    (Literal["a", 1], "a", "a"),
    (int | str | None, "x", "x"),
    (Name, Name("n"), "n"),
    (Annotated[int, msgspec.Meta(ge=1)], 1, 1),
    (Colour, Colour.RED, "red"),
    (list[Colour], [Colour.RED], ["red"]),
    (Level, Level.LOW, 1),
    (Point, Point(1, 2.0), {"x": 1, "y": 2.0}),
    (Line, Line([Point(1)], {"a": [1]}), {"points": [{"x": 1, "y": 0.0}], "note": {"a": [1]}}),
    (Plan, {"stops": [{"city": "Wien"}]}, {"stops": [{"city": "Wien"}]}),
    (Card | Cash, Cash(5), {"type": "cash", "amount": 5}),
    (Pair, Pair(1, {"city": "x"}), [1, {"city": "x"}]),
    (tuple[int, str], (1, "a"), [1, "a"]),
    (tuple[Point, ...], (Point(1),), [{"x": 1, "y": 0.0}]),
    (Renamed, Renamed(1), {"longName": 1}),
    (Box[int], Box(1), {"item": 1}),
    (
        tuple[Box[Point], Box[Stop]],
        (Box(Point(1)), Box({"city": "a"})),
        [{"item": {"x": 1, "y": 0.0}}, {"item": {"city": "a"}}],
    ),
    (Tree, Tree("a", [Tree("b")]), {"name": "a", "children": [{"name": "b", "children": []}]}),
    (dict[str, Point], {"k": Point(1)}, {"k": {"x": 1, "y": 0.0}}),
    (dict[Literal["a"], int], {"a": 1}, {"a": 1}),
    (datetime.date, datetime.date(2026, 1, 2), "2026-01-02"),
    (uuid.UUID, uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    (decimal.Decimal, decimal.Decimal("1.50"), "1.50"),
    (Any, {"a": [None, True, 1.5, "é"]}, {"a": [None, True, 1.5, "é"]}),
    (object, [1], [1]),
    (list[object], [1, "a"], [1, "a"]),
    (dict[str, object], {"a": 1}, {"a": 1}),
    (dict, {"a": 1}, {"a": 1}),
    (Box[object], Box([1]), {"item": [1]}),
]


@pytest.mark.parametrize(("type_", "value", "json"), GOOD, ids=[str(case[0])[-40:] for case in GOOD])
def test_what_fits_becomes_json_and_comes_back_as_it_was(type_: Any, value: Any, json: Any) -> None:
    found = _codec(type_).to_json(value)
    assert found == json
    assert type(found) is type(json)
    back = _codec(type_).from_json(found)
    assert back == value
    if type_ is not float:
        assert type(back) is type(value)


BAD_VALUES: list[tuple[Any, Any, str, str]] = [
    (int, True, "", "bool"),
    (int, 1.0, "", "float"),
    (int, 2**53, "", "2**53-1"),
    (int, Level.LOW, "", "Level"),
    (float, float("nan"), "", "nan is no JSON number"),
    (str, Colour.RED, "", "Colour"),
    (Colour, "red", "", "str"),
    (Point, {"x": 1, "y": 0.0}, "", "dict"),
    (Point, Point("1"), "/x", "str"),  # type: ignore[arg-type]
    (Point, Deeper(1), "", "Deeper"),
    (dict[str, float], Point(1, 2.0), "", "Point"),
    (dict, Point(1), "", "Point"),
    (Line, Line([Point(1)], {"a": {1}}), "/note/a", "a set is not JSON"),
    (Line, Line([Point(1)], {"a": b"x"}), "/note/a", "a bytes is not JSON"),
    (Line, Line([Point(1)], {"a": (1,)}), "/note/a", "a tuple would come back as a list"),
    (Line, Line([Point(1)], {"a": {1: 2}}), "/note/a", "a key that is no text: 1"),
    (Line, Line([Point(1)], {"a": float("inf")}), "/note/a", "inf is no JSON number"),
    (Line, Line([Point(1)], [2**60]), "/note/0", "2**53-1"),
    (Line, Line([Point(1)], "\ud800"), "/note", "half a surrogate"),
    (Line, Line([Point(1)], Point(1)), "/note", "Point"),
    (Line, Line([Point(1)], object()), "/note", "object"),
    (Line, Line([Point(1), Point(float("nan"))]), "/points/1/x", "nan"),  # type: ignore[arg-type]
    (Plan, {"stops": [{"city": "Wien", "beds": 1}]}, "/stops/0/beds", "no field 'beds'"),
    (Plan, {"stops": [{}]}, "/stops/0", "city"),
    (dict[Colour, int], {"red": 1}, "", "a key that is a str"),
    (list[int], (1,), "", "tuple"),
    (tuple[int, ...], [1], "", "list"),
    (datetime.date, "2026-01-02", "", "str"),
    (Any, {1, 2}, "", "set"),
    (Any, (1,), "", "tuple"),
    (Any, {"a": {2: 1}}, "/a", "key"),
    (list, {"a": 1}, "", "expected a list"),
]


@pytest.mark.parametrize(("type_", "value", "path", "what"), BAD_VALUES)
def test_what_does_not_fit_exactly_is_refused_with_its_path(type_: Any, value: Any, path: str, what: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        _codec(type_).to_json(value)
    assert caught.value.path == path
    assert what in str(caught.value)
    assert "here: " in str(caught.value)


BAD_JSON: list[tuple[Any, Any, str, str]] = [
    (int, "1", "", "str"),
    (Point, {"x": 1, "z": 2}, "/z", "no field 'z'"),
    (Point, {"y": 1.0}, "", "x"),
    (Line, {"points": [{"x": 1}, {"x": None}]}, "/points/1/x", "null"),
    (Line, {"points": [{"x": 1, "a/b": 2}]}, "/points/0/a~1b", "no field"),
    (Line, {"points": [], "note": {"a": {3}}}, "/note/a", "set"),
    (Line, {"points": ()}, "/points", "tuple"),
    (dict[str, Stop], {"k": {"city": "x", "q": 1}}, "/k/q", "no field"),
    (Card | Cash, {"type": "cash", "amount": 1, "number": "2"}, "/number", "no field"),
    (Card | Cash, {"type": "cheque"}, "/type", "cheque"),
    (list[Card] | Cash, [{"type": "card", "number": "1", "z": 1}], "/0/z", "no field"),
    (Pair, [1, {"city": "a", "z": 1}], "/1/z", "no field"),
    (tuple[Box[Point], Box[Stop]], [{"item": {"x": 1}}, {"item": {"city": "a", "x": 1}}], "/1/item/x", "no field"),
    (Tree, {"name": "a", "children": [{"name": "b", "leaf": 1}]}, "/children/0/leaf", "no field"),
    (Tree | None, {"name": "a", "children": [{"name": "b", "leaf": 1}]}, "/children/0/leaf", "no field"),
    (Annotated[Point, msgspec.Meta(description="p")], {"x": 1, "q": 1}, "/q", "no field"),
    (dict[str, Point], {"a": {"x": 1}, "b/c": {"x": "1"}}, "/b~1c/x", "str"),
    (dict[str, list[dict[str, int]]], {"a": [{}], "b": [{"c": 1}, {"d": 2, "e": None}]}, "/b/1/e", "null"),
    (dict[Colour, int], {"blue": 1}, "", "blue"),
    (Any, {"a": float("nan")}, "/a", "nan"),
    (float, float("nan"), "", "nan"),
    (int, 2**60, "", "2**53-1"),
    (Annotated[int, msgspec.Meta(ge=1)], 0, "", ">= 1"),
]


@pytest.mark.parametrize(("type_", "data", "path", "what"), BAD_JSON)
def test_json_that_does_not_fit_exactly_is_refused_with_its_path(type_: Any, data: Any, path: str, what: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        _codec(type_).from_json(data)
    assert caught.value.path == path
    assert what in str(caught.value)
    assert str(caught.value).startswith("here: ")


@pytest.mark.parametrize(
    "type_",
    [
        bytes,
        set[int],
        frozenset[str],
        list[bytes],
        Box[set[int]],
        dict[int, str],
        dict[str, bytearray],
        complex,
        Point | Plan,
        list["Unknown"],  # type: ignore[name-defined]  # noqa: F821
        type("Foreign", (), {}),
    ],
)
def test_types_that_json_cannot_hold_are_refused_when_defined(type_: Any) -> None:
    with pytest.raises(InvalidDefinition, match=r"^tool pay: "):
        codec(type_, where="tool pay")


def test_the_json_shares_nothing_with_the_value() -> None:
    for type_ in (Any, dict, dict[str, list[int]], Line):
        inner = [1]
        value = Line([], inner) if type_ is Line else {"note": inner}
        json = _codec(type_).to_json(value)
        inner.append(2)
        assert json["note"] == [1]


def test_a_draft_is_taken_out_and_a_part_of_one_inside_a_value_is_refused() -> None:
    draft = Draft({"stops": [{"city": "Wien"}]})
    assert _codec(Plan).to_json(draft.root) == {"stops": [{"city": "Wien"}]}
    assert _codec(Any).to_json(draft.root) == {"stops": [{"city": "Wien"}]}
    with pytest.raises(InvalidValue, match="plain"):
        _codec(Plan).to_json({"stops": draft.root["stops"]})


def test_frozen_values_of_debug_mode_are_as_good_as_others() -> None:
    plan = frozen({"stops": [{"city": "Wien"}]})
    for type_ in (Plan, Any, dict):
        assert _codec(type_).to_json(plan) == {"stops": [{"city": "Wien"}]}
        assert _codec(type_).from_json(plan) == plan


def test_values_that_are_too_deep_are_refused() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for type_ in (Any, list[list[Any]], Box[Any]):
        with pytest.raises(InvalidValue, match="nested deeper"):
            _codec(type_).to_json(Box(deep) if type_ == Box[Any] else deep)
        with pytest.raises(InvalidValue, match="nested deeper"):
            _codec(type_).from_json({"item": deep} if type_ == Box[Any] else deep)


def test_a_type_that_cannot_be_hashed_has_a_codec_too() -> None:
    type_ = Annotated[int, {"any": "metadata"}]
    assert codec(type_, where="here").to_json(1) == 1


def test_literals_that_python_finds_equal_stay_apart() -> None:
    assert _codec(Literal[1]).from_json(1) == 1
    with pytest.raises(InvalidValue):
        _codec(Literal["1"]).from_json(1)


def test_a_schema_has_its_definitions_at_the_root_and_closed_objects() -> None:
    assert _codec(Line).schema() == {
        "title": "Line",
        "type": "object",
        "properties": {"points": {"type": "array", "items": {"$ref": "#/$defs/Point"}}, "note": {"default": None}},
        "required": ["points"],
        "additionalProperties": False,
        "$defs": {
            "Point": {
                "title": "Point",
                "type": "object",
                "properties": {"x": {"type": "integer"}, "y": {"type": "number", "default": 0.0}},
                "required": ["x"],
                "additionalProperties": False,
            }
        },
    }
    assert _codec(Any).schema() == {}
    assert _codec(list[object]).schema()["type"] == "array"
    assert _codec(Box[object]).schema()["properties"] == {"item": {}}


def test_the_schema_of_a_type_that_holds_itself_refers_to_a_definition() -> None:
    schema = _codec(Tree).schema()
    assert schema["type"] == "object"
    assert schema["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}
    assert schema["$defs"]["Tree"]["additionalProperties"] is False
