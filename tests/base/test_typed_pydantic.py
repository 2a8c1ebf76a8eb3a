"""pydantic types, alone and inside others: strict, lossless, and never imported by us."""

import datetime
import subprocess
import sys
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
import pydantic
import pytest
from annotated_types import Ge
from typing_extensions import TypedDict

from perdure.base.errors import InvalidDefinition, InvalidValue
from perdure.base.typed import codec

T = TypeVar("T")


class Address(pydantic.BaseModel):
    street: str
    since: datetime.date | None = None


class User(pydantic.BaseModel):
    name: str
    lives: Address
    friends: list["User"] = []


class Special(Address):
    secret: int


class Open(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    a: int
    inner: Address | None = None


class Aliased(pydantic.BaseModel):
    long_name: int = pydantic.Field(alias="longName", description="the name")

    @pydantic.computed_field
    def doubled(self) -> int:
        return self.long_name * 2


class Checked(pydantic.BaseModel):
    age: int

    @pydantic.field_validator("age")
    @classmethod
    def adult(cls, age: int) -> int:
        if age < 18:
            raise ValueError("too young")
        return age


class Hidden(pydantic.BaseModel):
    a: int
    b: int = pydantic.Field(default=0, exclude=True)


class Loose(pydantic.BaseModel):
    data: Any


class Page(pydantic.BaseModel, Generic[T]):
    items: list[T]


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]


class Numbers(pydantic.RootModel[list[int]]):
    pass


@dataclass
class Visit:
    user: User
    others: list[Address]


class Journey(TypedDict):
    to: Address | int


class Envelope(msgspec.Struct):
    address: Address | None = None


@pydantic.dataclasses.dataclass
class Limited:
    n: Annotated[int, pydantic.Field(ge=1, description="how many")]


@dataclass
class Described:
    n: Annotated[int, pydantic.Field(ge=1, description="how many")]


@dataclass
class Bounded:
    n: Annotated[int, Ge(1)]


def _codec(type_: Any) -> Any:
    return codec(type_, where="here")


HOME = Address(street="a", since=datetime.date(2026, 1, 2))
HOME_JSON = {"street": "a", "since": "2026-01-02"}

GOOD: list[tuple[Any, Any, Any]] = [
    (Address, HOME, HOME_JSON),
    (User, User(name="u", lives=HOME), {"name": "u", "lives": HOME_JSON, "friends": []}),
    (list[Address], [HOME], [HOME_JSON]),
    (Address | None, None, None),
    (dict[str, Address], {"k": HOME}, {"k": HOME_JSON}),
    (
        Visit,
        Visit(User(name="u", lives=HOME), [HOME]),
        {"user": {"name": "u", "lives": HOME_JSON, "friends": []}, "others": [HOME_JSON]},
    ),
    (Envelope, Envelope(HOME), {"address": HOME_JSON}),
    (Open, Open.model_validate({"a": 1, "b": [2]}), {"a": 1, "inner": None, "b": [2]}),
    (Aliased, Aliased(longName=1), {"longName": 1}),
    (Page[Address], Page[Address](items=[HOME]), {"items": [HOME_JSON]}),
    (Cat | Dog, Dog(kind="dog"), {"kind": "dog"}),
    (Address | str, "x", "x"),
    (Numbers, Numbers([1]), [1]),
    (Limited, Limited(1), {"n": 1}),
    (Described, Described(1), {"n": 1}),
    (Bounded, Bounded(1), {"n": 1}),
    (Loose, Loose(data={"a": [1, None]}), {"data": {"a": [1, None]}}),
]


@pytest.mark.parametrize(("type_", "value", "json"), GOOD)
def test_what_fits_becomes_json_and_comes_back_as_it_was(type_: Any, value: Any, json: Any) -> None:
    assert _codec(type_).to_json(value) == json
    back = _codec(type_).from_json(json)
    assert back == value
    assert type(back) is type(value)


BAD_VALUES: list[tuple[Any, Any, str, str]] = [
    (Address, {"street": "a"}, "", "dict"),
    (Address, Special(street="a", secret=1), "", "Special"),
    (User, User(name="u", lives=Special(street="a", secret=1)), "/lives", "Special"),
    (Visit, Visit(User(name="u", lives=HOME), [Special(street="a", secret=1)]), "/others/0/secret", "Extra"),
    (Address, Address.model_construct(street=1), "/street", "string"),
    (Visit, Visit(User(name="u", lives=HOME), [Address.model_construct(street=1)]), "/others/0/street", "string"),
    (Hidden, Hidden(a=1, b=2), "/b", "would come back as 0"),
    (Loose, Loose(data={"a": {1}}), "/data/a", "set"),
    (Loose, Loose(data=(1,)), "/data", "tuple"),
    (Loose, Loose(data=float("nan")), "/data", "nan"),
    (Loose, Loose(data=2**60), "/data", "2**53-1"),
    (Described, Described(0), "/n", "greater than or equal to 1"),
    (Bounded, Bounded(0), "/n", "greater than or equal to 1"),
    (Any, HOME, "", "Address"),
]


@pytest.mark.parametrize(("type_", "value", "path", "what"), BAD_VALUES)
def test_what_does_not_fit_exactly_is_refused_with_its_path(type_: Any, value: Any, path: str, what: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        _codec(type_).to_json(value)
    assert (caught.value.path, what in str(caught.value)) == (path, True), str(caught.value)


BAD_JSON: list[tuple[Any, Any, str, str]] = [
    (Address, {"street": "a", "zip": 1}, "/zip", "Extra"),
    (User, {"name": "u", "lives": {"street": "a", "zip": 1}}, "/lives/zip", "Extra"),
    (
        Visit,
        {"user": {"name": "u", "lives": {"street": "a"}}, "others": [{"street": "a", "q": 1}]},
        "/others/0/q",
        "Extra",
    ),
    (Visit, {"user": {"name": "u", "lives": {"street": "a"}}, "others": [], "x": 1}, "/x", "no field"),
    (dict[str, Address], {"j": {"street": "a"}, "k": {"street": 1}}, "/k/street", "string"),
    (Journey, {"to": {"street": "a", "zip": 1}}, "/to/zip", "Extra"),
    (Open, {"a": 1, "b": 2, "inner": {"street": "a", "zip": 1}}, "/inner/zip", "does not know"),
    (Address, {"street": 1}, "/street", "string"),
    (list[Address | int], [1, {}], "/1/street", "required"),
    (Checked, {"age": 3}, "/age", "too young"),
    (Checked, {"age": "20"}, "/age", "integer"),
    (Address, {"street": "a", "since": float("nan")}, "/since", "nan"),
    (Described, {"n": 1, "z": 1}, "/z", "nexpected"),
]


@pytest.mark.parametrize(("type_", "data", "path", "what"), BAD_JSON)
def test_json_that_does_not_fit_exactly_is_refused_with_its_path(type_: Any, data: Any, path: str, what: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        _codec(type_).from_json(data)
    assert str(caught.value).startswith("here: ")
    assert (caught.value.path, what in str(caught.value)) == (path, True), str(caught.value)


class Binary(pydantic.BaseModel):
    data: bytes


class Many(pydantic.BaseModel):
    data: set[int]


class Mixed(msgspec.Struct):
    n: Annotated[int, pydantic.Field(ge=1)]


@pytest.mark.parametrize("type_", [Binary, Many, Mixed, Envelope | Address, list[Binary], Annotated[bytes, Ge(1)]])
def test_types_that_cannot_be_kept_are_refused_when_defined(type_: Any) -> None:
    with pytest.raises(InvalidDefinition, match=r"^tool pay: "):
        codec(type_, where="tool pay")


def test_schemas_carry_descriptions_and_their_definitions_at_the_root() -> None:
    schema = _codec(Visit).schema()
    assert set(schema["$defs"]) == {"Address", "User"}
    assert schema["properties"]["others"]["items"]["properties"]["street"] == {"title": "Street", "type": "string"}
    assert schema["additionalProperties"] is False
    assert schema["$defs"]["Address"]["additionalProperties"] is False
    for type_ in (Aliased, Described, Limited):
        assert "description" in next(iter(_codec(type_).schema()["properties"].values()))
    assert _codec(Open).schema()["additionalProperties"] is True
    assert _codec(User).schema()["properties"]["friends"]["items"] == {"$ref": "#/$defs/User"}


def test_definitions_of_one_name_that_mean_different_things_are_kept_apart() -> None:
    def other() -> type[pydantic.BaseModel]:
        class Address(pydantic.BaseModel):
            planet: str

        class Alien(pydantic.BaseModel):
            home: Address

        return Alien

    fields = [("user", User), ("alien", other()), ("again", User)]
    schema = _codec(msgspec.defstruct("Meeting", fields)).schema()
    properties = schema["properties"]
    definitions = schema["$defs"]

    def street(reference: dict[str, Any]) -> set[str]:
        return set(definitions[reference["$ref"].removeprefix("#/$defs/")]["properties"])

    alien = properties["alien"]["properties"]["home"]
    assert street(alien) == {"planet"}
    user = definitions[properties["user"]["$ref"].removeprefix("#/$defs/")]
    assert street(user["properties"]["lives"]) == {"street", "since"}
    assert properties["again"] == properties["user"]
    assert len(definitions) == 3


def test_nobody_imports_pydantic_but_the_user() -> None:
    program = (
        "import sys; from dataclasses import dataclass; from perdure.base.typed import codec\n"
        "@dataclass\nclass P:\n    x: int\n"
        "c = codec(P, where='w'); c.from_json(c.to_json(P(1))); c.schema()\n"
        "assert 'pydantic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env={"PYTHONPATH": ":".join(sys.path)})


def test_constraints_that_only_pydantic_knows_are_refused_without_it() -> None:
    program = (
        "import sys; from typing import Annotated; from annotated_types import Ge\n"
        "from perdure.base.typed import codec; from perdure.base.errors import InvalidDefinition\n"
        "try: codec(Annotated[int, Ge(1)], where='w')\n"
        "except InvalidDefinition as error: assert 'annotated_types' in str(error), error\n"
        "else: raise AssertionError('accepted')"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env={"PYTHONPATH": ":".join(sys.path)})
