"""Signatures: the schema that models read, and arguments as typed values."""

import dataclasses
import functools
from collections.abc import Awaitable, Callable
from enum import Enum
from types import GenericAlias
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pydantic
import pytest
from msgspec import Meta

from perdure.base.errors import InvalidDefinition, InvalidValue
from perdure.extensions.results import Sleep, ToolResult, Wait
from perdure.extensions.signature import read_signature


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Item(TypedDict):
    name: str
    count: int


class Order(pydantic.BaseModel):
    items: list[Point]


class Box(msgspec.Struct):
    side: int


def refusal(function: Callable[..., Any]) -> str:
    with pytest.raises(InvalidDefinition) as refused:
        read_signature(function, "t")
    return str(refused.value)


def test_types_of_every_kind_stand_side_by_side_in_one_closed_schema() -> None:
    async def t(
        ctx: Any, name: str, point: Point, item: Item, order: Order, box: Box, colour: Colour = Colour.RED
    ) -> None:
        """Do."""

    found = read_signature(t, "t")
    schema = found.schema
    assert list(schema) == ["type", "properties", "required", "additionalProperties", "$defs"]
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["name", "point", "item", "order", "box"]
    assert list(schema["properties"]) == ["name", "point", "item", "order", "box", "colour"]
    assert schema["properties"]["colour"]["default"] == "red"
    assert "Point" in schema["$defs"]
    assert all(inner["additionalProperties"] is False for inner in schema["$defs"].values())

    decoded = found.decode(
        {
            "name": "a",
            "point": {"x": 1},
            "item": {"name": "b", "count": 2},
            "order": {"items": [{"x": 3}]},
            "box": {"side": 4},
            "colour": "blue",
        }
    )
    assert decoded == {
        "name": "a",
        "point": Point(1),
        "item": {"name": "b", "count": 2},
        "order": Order(items=[Point(3)]),
        "box": Box(4),
        "colour": Colour.BLUE,
    }


def test_two_types_of_one_name_keep_their_own_definitions() -> None:
    one, other = (dataclasses.make_dataclass("Same", [(field, int)]) for field in ("left", "right"))

    async def t(ctx: Any, a: Any, b: Any) -> None:
        """Do."""

    t.__annotations__.update(a=GenericAlias(list, one), b=GenericAlias(list, other))
    schema = read_signature(t, "t").schema
    targets = [schema["properties"][name]["items"]["$ref"].removeprefix("#/$defs/") for name in ("a", "b")]
    assert [list(schema["$defs"][target]["properties"]) for target in targets] == [["left"], ["right"]]


def test_descriptions_come_from_annotations_and_from_the_docstring() -> None:
    async def t(
        ctx: Any,
        a: Annotated[int, Meta(description="by Meta", ge=1)],
        b: Annotated[int, pydantic.Field(description="by Field", le=9)],
        c: Annotated[int, "by text"],
        d: int,
        e: int = 5,
    ) -> None:
        """Count.

        Args:
            ctx: What runs it.
            d: by
              docstring
            e (int): with a default
        """

    found = read_signature(t, "t")
    properties = found.schema["properties"]
    assert [properties[name].get("description") for name in "abcde"] == [
        "by Meta",
        "by Field",
        "by text",
        "by docstring",
        "with a default",
    ]
    assert properties["a"]["minimum"] == 1
    assert properties["b"]["maximum"] == 9
    assert found.description == "Count."
    with pytest.raises(InvalidValue):
        found.decode({"a": 0, "b": 1, "c": 1, "d": 1})
    with pytest.raises(InvalidValue):
        found.decode({"a": 1, "b": 10, "c": 1, "d": 1})


def test_a_description_of_a_parameter_that_is_not_there_is_refused() -> None:
    async def t(ctx: Any, a: int) -> None:
        """Count.

        Args:
            a: The number.
            z: Gone.
            y: Gone too.
        """

    assert refusal(t) == "tool t: its docstring describes parameters it does not have: y, z"


def test_two_descriptions_of_one_parameter_are_refused() -> None:
    async def t(ctx: Any, a: Annotated[int, Meta(description="one")]) -> None:
        """Count.

        Args:
            a: another
        """

    assert refusal(t) == "tool t, parameter a: it has several descriptions (describe it once)"


def test_what_a_field_says_and_a_parameter_cannot_is_refused() -> None:
    async def default(ctx: Any, a: Annotated[int, pydantic.Field(default=3)]) -> None:
        """Do."""

    async def alias(ctx: Any, a: Annotated[int, pydantic.Field(alias="b")]) -> None:
        """Do."""

    assert "parameter a: its default stands in Field" in refusal(default)
    assert "parameter a: a parameter has no alias" in refusal(alias)


def test_parameters_that_a_model_cannot_give_are_refused_by_name() -> None:
    async def many(ctx: Any, *rest: int) -> None:
        """Do."""

    async def named(ctx: Any, **rest: int) -> None:
        """Do."""

    async def positional(ctx: Any, a: int, /) -> None:
        """Do."""

    async def bare(ctx, a) -> None:  # type: ignore[no-untyped-def]
        """Do."""

    for function, name in ((many, "rest"), (named, "rest"), (positional, "a")):
        assert refusal(function) == (
            f"tool t, parameter {name}: a model gives arguments by name; *args, **kwargs and positional-only cannot be"
        )
    assert refusal(bare) == "tool t, parameter a: it has no annotation (a model must know the type)"


def test_the_context_comes_first_by_position() -> None:
    async def nothing() -> None:
        """Do."""

    async def by_name(*, ctx: Any) -> None:
        """Do."""

    async def anything(*args: Any) -> None:
        """Do."""

    for function in (nothing, by_name, anything):
        assert refusal(function) == "tool t: its first parameter is the context (def name(ctx, …))"


def test_a_context_that_was_left_out_is_missed() -> None:
    async def t(city: str) -> None:
        """Do."""

    async def u(city: "int", country: str) -> None:
        """Do."""

    for function in (t, u):
        assert "'city' would never be given by a model (def t(ctx, city: …))" in refusal(function)


def test_the_contexts_annotation_is_never_evaluated() -> None:
    async def t(context: Any, a: "int") -> "str | Sleep[int]":
        """Do."""
        return ""

    t.__annotations__["context"] = "OnlyForCheckers[int]"
    found = read_signature(t, "t")
    assert list(found.parameters) == ["a"]
    assert found.returns is None


def test_an_annotation_that_cannot_be_resolved_is_refused_by_name() -> None:
    async def parameter(ctx: Any, a: "Missing") -> None:  # type: ignore[name-defined]  # noqa: F821
        """Do."""

    async def returned(ctx: Any) -> "Missing | str":  # type: ignore[name-defined]  # noqa: F821
        """Do."""

    async def nonsense(ctx: Any, a: Any) -> None:
        """Do."""

    nonsense.__annotations__["a"] = "1 +"

    assert refusal(parameter).startswith(
        "tool t, parameter a: its annotation cannot be resolved: name 'Missing' is not defined"
    )
    assert refusal(returned).startswith("tool t, what it returns: its annotation cannot be resolved: name 'Missing'")
    assert refusal(nonsense).startswith("tool t, parameter a: its annotation cannot be resolved:")


def test_a_type_that_json_cannot_hold_is_refused_by_name() -> None:
    async def parameter(ctx: Any, a: set[int]) -> None:
        """Do."""

    async def returned(ctx: Any) -> bytes:
        """Do."""
        return b""

    assert refusal(parameter) == "tool t, parameter a: a set is not JSON; use a list"
    assert refusal(returned) == "tool t, what it returns: bytes are not JSON; use str, or keep bytes as a blob"


def test_a_default_that_does_not_fit_its_type_is_refused_by_name() -> None:
    async def t(ctx: Any, a: int = "1") -> None:  # type: ignore[assignment]
        """Do."""

    assert refusal(t).startswith("tool t, parameter a: its default does not fit its type: a: ")


@pytest.mark.parametrize(
    ("annotation", "returns"),
    [
        (str, None),
        (None, None),
        (str | None, None),
        (str | Sleep[Any] | Wait[Any] | ToolResult, None),
        (Annotated[str | Sleep[Any], "x"], None),
        (int, int),
        (Point | Sleep[Any], Point),
        (list[Point] | None, list[Point]),
        (int | list[str] | str, int | list[str]),
        (Literal["a"], Literal["a"]),
        (Any, Any),
    ],
)
def test_what_goes_out_as_json_is_what_is_neither_text_nor_result_nor_park(annotation: Any, returns: Any) -> None:
    async def t(ctx: Any) -> Any:
        """Do."""

    t.__annotations__["return"] = annotation
    assert read_signature(t, "t").returns == returns


def test_a_decorated_function_is_read_where_it_was_written() -> None:
    def traced(function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        @functools.wraps(function)
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            return await function(*args, **kwargs)

        return wrapper

    @traced
    async def t(ctx: Any, point: Point) -> Point:
        """Do."""
        return point

    found = read_signature(t, "t")
    assert found.returns is Point
    assert found.decode({"point": {"x": 1}}) == {"point": Point(1)}


@pytest.mark.parametrize(
    ("arguments", "path", "text"),
    [
        ({}, "/point", "the parameter 'point' is missing at /point"),
        ({"point": {"x": "1"}}, "/point/x", "point: Expected `int`, got `str` at /point/x"),
        ({"point": {"x": 1, "z": 2}}, "/point/z", "point: Point has no field 'z' at /point/z"),
        ({"point": {"x": 1}, "n": 1.5}, "/n", "n: Expected `int`, got `float` at /n"),
        ({"point": {"x": 1}, "a/b": 1}, "/a~1b", "no parameter 'a/b' at /a~1b (parameters: point, n)"),
        ([], "", "arguments are an object, not list"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_with_their_path(arguments: Any, path: str, text: str) -> None:
    async def t(ctx: Any, point: Point, n: int = 0) -> None:
        """Do."""

    with pytest.raises(InvalidValue) as refused:
        read_signature(t, "t").decode(arguments)
    assert refused.value.path == path
    assert str(refused.value) == text


def test_what_is_left_out_is_left_to_the_function() -> None:
    async def t(ctx: Any, a: int = 3, *, b: list[int] | None = None) -> None:
        """Do."""

    found = read_signature(t, "t")
    assert found.decode({}) == {}
    assert "required" not in found.schema
    assert found.schema["properties"]["b"]["default"] is None
