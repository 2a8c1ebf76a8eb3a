"""The one place that knows pydantic, and only through what a user's program has imported already."""

import dataclasses
import inspect
import sys
import typing
from functools import lru_cache
from types import UnionType
from typing import Annotated, Any, Union

import msgspec

from perdure.base import jsonvalue
from perdure.base.errors import InvalidValue
from perdure.base.jsonvalue import Json, escape
from perdure.base.typed_compare import difference
from perdure.base.typed_keys import Misfit
from perdure.base.typed_schema import finished

_SOURCES = ("pydantic", "annotated_types")
"""Modules whose `Annotated` metadata only pydantic honours."""


class PydanticForm:
    """How values of a type that pydantic must judge become JSON and come back: strictly, unknown keys refused unless
    the model says `extra="allow"`."""

    def __init__(self, type_: Any) -> None:
        pydantic = sys.modules["pydantic"]
        try:
            self._adapter = pydantic.TypeAdapter(type_)
            self._schema: dict[str, Any] = self._adapter.json_schema(ref_template="#/$defs/{model}")
        except (pydantic.errors.PydanticUserError, pydantic.errors.PydanticUndefinedAnnotation) as error:
            raise TypeError(str(error).splitlines()[0]) from error
        self._invalid: type[ValueError] = pydantic.ValidationError
        _refuse_binary(self._schema)
        knows_extra = "extra" in inspect.signature(self._adapter.validate_json).parameters  # since pydantic 2.12
        self._forbids = knows_extra and not _allows_extra(self._schema)

    def to_json(self, value: Any, where: str) -> Json:
        try:
            data = self.dump(value)
            back = self.load(data)
        except Misfit as error:
            raise InvalidValue(f"{where}: {error}", path=error.path) from error
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidValue(f"{where}: {error}") from error
        found = difference(back, value)
        if found is not None:
            raise InvalidValue(f"{where}: {found.what}", path=found.path, hint="nothing is converted silently")
        return data

    def from_json(self, data: Json, where: str) -> Any:
        try:
            jsonvalue.check(data)
            return self.load(data)
        except Misfit as error:
            raise InvalidValue(f"{where}: {error}", path=error.path) from error
        except InvalidValue as error:
            raise InvalidValue(f"{where}: {error.fault}", path=error.path, hint=error.hint) from None

    def schema(self) -> dict[str, Any]:
        return finished(self.raw_schema())

    def raw_schema(self) -> dict[str, Any]:
        copy: dict[str, Any] = jsonvalue.copied(self._schema)
        return copy

    def dump(self, value: Any) -> Json:
        """The value as JSON as the model writes it. Raises `Misfit` where that is not strict."""
        data = self._adapter.dump_python(value, mode="json", by_alias=True, round_trip=True, warnings=False)
        try:
            jsonvalue.check(data)
        except InvalidValue as error:
            raise Misfit(error.fault, error.path) from None
        return data

    def load(self, data: Json) -> Any:
        """The value of checked JSON. Raises `Misfit`."""
        text = jsonvalue.encode(data)
        try:
            if self._forbids:
                return self._adapter.validate_json(text, strict=True, extra="forbid")
            value = self._adapter.validate_json(text, strict=True)
        except self._invalid as error:
            first = error.errors(include_url=False, include_context=False)[0]  # type: ignore[attr-defined]
            raise Misfit(first["msg"], _pointer(data, first["loc"], missing=first["type"] == "missing")) from None
        kept = self._adapter.dump_python(
            value, mode="json", by_alias=True, round_trip=True, exclude_unset=True, warnings=False
        )
        _refuse_dropped(data, kept, "")
        return value


@lru_cache(1024)
def pydantic_form(type_: Any) -> PydanticForm:
    """The form of a class that comes from pydantic."""
    return PydanticForm(type_)


def _pointer(data: Json, steps: tuple[str | int, ...], *, missing: bool) -> str:
    """pydantic's place of an error as a JSON pointer, without the members of unions that it names on the way."""
    pointer = ""
    for number, step in enumerate(steps, 1):
        if isinstance(data, dict) and step in data:
            data = data[str(step)]
        elif isinstance(data, list) and isinstance(step, int) and step < len(data):
            data = data[step]
        elif not (missing and number == len(steps)):
            continue
        pointer += f"/{escape(str(step))}"
    return pointer


def _refuse_dropped(data: Json, kept: Json, path: str) -> None:
    if isinstance(data, dict) and isinstance(kept, dict):
        for key, item in data.items():
            if key not in kept:
                raise Misfit("a key that the type does not know", f"{path}/{escape(key)}")
            _refuse_dropped(item, kept[key], f"{path}/{escape(key)}")
    elif isinstance(data, list) and isinstance(kept, list):
        for position, (item, inner) in enumerate(zip(data, kept, strict=False)):
            _refuse_dropped(item, inner, f"{path}/{position}")


def _refuse_binary(schema: Any) -> None:
    if isinstance(schema, dict):
        if schema.get("format") in ("binary", "base64url", "base64") and schema.get("type") == "string":
            raise TypeError("bytes are not JSON; use str, or keep bytes as a blob")
        if schema.get("uniqueItems") is True and schema.get("type") == "array":
            raise TypeError("a set is not JSON; use a list")
        for inner in schema.values():
            _refuse_binary(inner)
    elif isinstance(schema, list):
        for inner in schema:
            _refuse_binary(inner)


def _allows_extra(schema: Any) -> bool:
    if isinstance(schema, dict):
        if "properties" in schema and schema.get("additionalProperties", False) is not False:
            return True
        return any(map(_allows_extra, schema.values()))
    return isinstance(schema, list) and any(map(_allows_extra, schema))


def wants_pydantic(type_: Any) -> bool:
    """Whether only pydantic can judge values of the type: a model itself, a union with one, a pydantic dataclass, or
    constraints by pydantic's `Field` or annotated_types. A model inside a dataclass, Struct or list needs it not.

    Raises `TypeError` for such a type with a Struct inside, which pydantic does not know.
    """
    if not any(source in sys.modules for source in _SOURCES):
        return False
    look = _Look()
    if _is_model(type_):
        return True
    look.at(type_)
    if look.reason is None:
        return False
    if "pydantic" not in sys.modules:
        raise TypeError(f"{look.reason} without pydantic: use Annotated with msgspec.Meta")
    if look.struct is not None:
        raise TypeError(f"{look.reason} beside the Struct {look.struct}: use one kind of class for both")
    return True


def _is_model(type_: Any) -> bool:
    return isinstance(type_, type) and hasattr(type_, "model_validate") and hasattr(type_, "model_json_schema")


class _Look:
    """Walks through a type and everything that it is made of."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.struct: str | None = None
        self._seen: set[int] = set()

    def at(self, type_: Any) -> None:
        if id(type_) in self._seen:
            return
        self._seen.add(id(type_))
        origin, args = typing.get_origin(type_), typing.get_args(type_)
        if origin is Annotated:
            self._metadata(type_.__metadata__)
        elif origin is Union or origin is UnionType:
            others = [arg for arg in args if arg is not type(None)]
            if len(others) > 1 and any(map(_is_model, others)):
                self.reason = self.reason or "a union with a pydantic model"
        for inner in (
            getattr(type_, "__supertype__", None),
            getattr(type_, "__value__", None) if not isinstance(type_, type) else None,
            origin if isinstance(origin, type) else None,
            *(arg for arg in args if not isinstance(arg, str | int | bytes)),
        ):
            if inner is not None:
                self.at(inner)
        if isinstance(type_, type) and origin is None:
            self._class(type_)

    def _metadata(self, metadata: tuple[Any, ...]) -> None:
        for item in metadata:
            module = type(item).__module__.partition(".")[0]
            if module in _SOURCES:
                self.reason = self.reason or f"metadata of {module}"

    def _class(self, cls: type) -> None:
        if _is_model(cls):
            return
        if hasattr(cls, "__pydantic_validator__"):
            self.reason = self.reason or f"the pydantic dataclass {cls.__name__}"
            return
        if issubclass(cls, msgspec.Struct):
            self.struct = cls.__name__
        elif not (dataclasses.is_dataclass(cls) or hasattr(cls, "__required_keys__") or hasattr(cls, "_fields")):
            return
        try:
            hints = typing.get_type_hints(cls, include_extras=True)
        except (NameError, TypeError):
            return  # msgspec says what cannot be resolved
        for hint in hints.values():
            self.at(hint)
