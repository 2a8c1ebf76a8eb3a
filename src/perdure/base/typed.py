"""Values of the types that people bring, as strict JSON and back.

Types may be builtins, Literal, unions, Annotated, NewType, Enum, dataclasses, TypedDicts, msgspec Structs and pydantic
models, in each other. Nothing is coerced, unknown keys are refused, and what is stored is what was given. Dates, UUIDs
and Decimals are stored as text. pydantic is used where a type comes from it, and imported by nobody here.
"""

import dataclasses
import re
from enum import Enum
from typing import Any, Generic, TypeVar

import msgspec

from perdure.base import jsonvalue
from perdure.base.drafts import plain
from perdure.base.errors import InvalidDefinition, InvalidValue
from perdure.base.jsonvalue import Json
from perdure.base.typed_keys import KeyCheck, key_check

T = TypeVar("T")
_PLAIN = (str, int, float, bool, type(None))
_WHERE = re.compile(r"^(?P<what>.*?)(?: - at `(?:key in )?\$(?P<path>[^`]*)`)?$", re.DOTALL)
_ANY = (Any, object, dict, list, dict[str, Any], list[Any])


class Codec(Generic[T]):
    """Checks and converts values of one type. `where` names its place in error messages."""

    __slots__ = ("_check_keys", "_untyped", "type", "where")

    def __init__(self, type_: Any, where: str) -> None:
        self.type = type_
        self.where = where
        self._untyped = type_ in _ANY
        self._check_keys: KeyCheck | None = None if type_ in (Any, object) else key_check(type_, where)

    def to_json(self, value: T) -> Json:
        """The value as JSON of its own. Raises `InvalidValue` with the path if it does not fit the type exactly."""
        if self._untyped:
            value = plain(value)
            jsonvalue.check(value)
            json: Json = value
        else:
            json = _to_json(value, "")
        if self.type is not Any:
            self.from_json(json)
        return json

    def from_json(self, data: Json) -> T:
        """The value of JSON. Raises `InvalidValue` with the path if it does not fit the type exactly."""
        if self._check_keys is not None:
            self._check_keys(data, "")
        try:
            return msgspec.convert(data, self.type, strict=True, dec_hook=_decode_custom)  # type: ignore[no-any-return]
        except msgspec.ValidationError as error:
            raise self._invalid(error) from error

    def schema(self) -> dict[str, Any]:
        """The type's JSON Schema; definitions that it refers to stand under `$defs` at the root."""
        (schema,), definitions = msgspec.json.schema_components(
            (self.type,), ref_template="#/$defs/{name}", schema_hook=_schema_of_custom
        )
        return _hoisted(schema, definitions)

    def _invalid(self, error: msgspec.ValidationError) -> InvalidValue:
        match = _WHERE.match(str(error))
        what, path = (match["what"], match["path"] or "") if match else (str(error), "")
        pointer = re.sub(r"\[(\d+|\.\.\.)\]", r"/\1", path).replace(".", "/") if path else ""
        return InvalidValue(f"{self.where}: {what}", path=pointer)


_codecs: dict[Any, Codec[Any]] = {}


def codec(type_: Any, *, where: str) -> Codec[Any]:
    """The codec of a type. Raises `InvalidDefinition` naming `where` if JSON cannot hold such values."""
    try:
        key = (type_, where)
        known = _codecs.get(key)
        if known is None:
            known = _codecs[key] = Codec(type_, where)
    except TypeError as error:
        if "unhashable" not in str(error):
            raise InvalidDefinition(f"{where}: {error}") from error
        return Codec(type_, where)
    return known


def _to_json(value: Any, path: str) -> Json:
    kind = type(value)
    if kind in _PLAIN:
        jsonvalue.check(value, path=path)
        return value
    if kind is list or kind is tuple:
        return [_to_json(item, f"{path}/{position}") for position, item in enumerate(value)]
    if kind is dict:
        for key in value:
            if type(key) is not str:
                raise InvalidValue(f"a key that is no text: {key!r}", path=path)
            jsonvalue.check(key, path=path)
        return {key: _to_json(item, f"{path}/{jsonvalue.escape(key)}") for key, item in value.items()}
    if isinstance(value, msgspec.Struct):
        return _struct_to_json(value, path)
    if dataclasses.is_dataclass(value):
        return {f.name: _to_json(getattr(value, f.name), f"{path}/{f.name}") for f in dataclasses.fields(value)}
    return _other_to_json(value, path)


def _struct_to_json(value: msgspec.Struct, path: str) -> Json:
    config = value.__struct_config__
    found: dict[str, Json] = {}
    if config.tag is not None:
        found[config.tag_field or "type"] = config.tag
    for name, encoded in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
        item = getattr(value, name)
        if item is not msgspec.UNSET:
            found[encoded] = _to_json(item, f"{path}/{jsonvalue.escape(encoded)}")
    return list(found.values()) if config.array_like else found


def _other_to_json(value: Any, path: str) -> Json:
    if isinstance(value, Enum):
        return _to_json(value.value, path)
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        json = dump(mode="json", by_alias=True)
        jsonvalue.check(json, path=path)
        return json
    if isinstance(value, bytes | bytearray | memoryview | set | frozenset):
        raise InvalidValue(f"a {type(value).__name__} is not JSON", path=path)
    unwrapped = plain(value)
    if unwrapped is not value:
        return _to_json(unwrapped, path)
    try:
        return msgspec.to_builtins(value)
    except TypeError:
        raise InvalidValue(f"a {type(value).__name__} is not JSON", path=path) from None


def _decode_custom(type_: Any, value: Any) -> Any:
    if isinstance(value, type_):
        return value
    text = jsonvalue.encode(value)
    try:
        return type_.model_validate_json(text, strict=True, extra="forbid")
    except TypeError:  # releases before 2.12 cannot forbid unknown keys from outside the model
        return type_.model_validate_json(text, strict=True)


def _schema_of_custom(type_: Any) -> dict[str, Any]:
    return type_.model_json_schema(ref_template="#/$defs/{model}")  # type: ignore[no-any-return]


def _hoisted(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def lift(node: Any) -> Any:
        if isinstance(node, dict):
            for name, inner in node.get("$defs", {}).items():
                found[name] = lift(inner)
            return {key: lift(item) for key, item in node.items() if key != "$defs"}
        return [lift(item) for item in node] if isinstance(node, list) else node

    lifted: dict[str, Any] = lift(schema)
    for name, inner in definitions.items():
        found[name] = lift(inner)
    return {**lifted, "$defs": found} if found else lifted
