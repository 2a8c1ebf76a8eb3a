"""Values of the types that people bring, as strict JSON and back.

Types may be builtins, Literal, unions, Annotated with `msgspec.Meta`, NewType, Enum, NamedTuple, dataclasses,
TypedDicts, msgspec Structs and pydantic models, in each other. Nothing is coerced, unknown keys are refused, and what
is stored is what was given. Dates, times, UUIDs, Decimals and enum members are stored as the text or number that
msgspec writes for them; bytes, sets and dicts whose keys are no text are refused when the codec is made.
`Any`, `object`, `dict` and `list` mean any strict JSON. pydantic is used for what comes from it, and imported by nobody
here.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from itertools import islice
from typing import Any, Final, Generic, Protocol, TypeVar, overload

import msgspec

from perdure.base import jsonvalue
from perdure.base.delta import apply, value_at
from perdure.base.drafts import is_draft, plain
from perdure.base.errors import InvalidDefinition, InvalidValue
from perdure.base.jsonvalue import Json
from perdure.base.typed_compare import difference, unencodable
from perdure.base.typed_keys import KeyCheck, Misfit, key_check
from perdure.base.typed_pydantic import PydanticForm, pydantic_form, wants_pydantic
from perdure.base.typed_schema import ANYTHING, merged

T = TypeVar("T")
CODECS_KEPT = 1024
"""Types whose codec is kept; beyond that, seldom used ones are made anew."""
KEYS_TRIED = 200
"""Keys of one dict that are tried to name the one that does not fit; beyond, the error names the dict."""
_JSON_TYPES = (Any, object, dict, list, dict[str, Any], list[Any], dict[str, object], list[object])
_PATH = r" - at `(?:key in )?\$(?P<path>[^`]*)`$"
_SUSPECT = re.compile(rb"\d{16}")
"""Where no sixteen digits stand in a row there is no integer that is too large: cheaper than looking at every value."""
_STEP = r"\.([^.\[]+)|\[(\d+|\.\.\.)\]"

OURS: Final = "perdure."
"""Built-in kinds. Whether JSON can hold their types is found out when they are first used, not at every start."""


class _Form(Protocol):
    """How values of one type become JSON and come back. `where` names the value's place in errors."""

    def to_json(self, value: Any, where: str) -> Json: ...
    def from_json(self, data: Json, where: str) -> Any: ...
    def schema(self) -> dict[str, Any]: ...


class Codec(Generic[T]):
    """Checks and converts values of one type. `where` names their place in error messages."""

    __slots__ = ("_made", "type", "where")

    def __init__(self, type_: Any, where: str, *, now: bool) -> None:
        self.type = type_
        self.where = where
        self._made: _Form | None = None
        if now:
            self._made = self._form

    @property
    def _form(self) -> _Form:
        if self._made is None:
            try:
                self._made = _known_form(self.type)
            except (TypeError, NameError, ValueError) as error:
                raise InvalidDefinition(f"{self.where}: {error}") from error
        return self._made

    def to_json(self, value: T) -> Json:
        """The value as JSON of its own, sharing nothing with it. Raises `InvalidValue` with the path if the value does
        not fit the type exactly, or would not come back from JSON as it is."""
        return (self._made or self._form).to_json(plain(value) if is_draft(value) else value, self.where)

    def from_json(self, data: Json) -> T:
        """The value of JSON; untyped parts are shared with `data`. Raises `InvalidValue` with the path if `data` is not
        strict JSON, does not fit the type exactly, or has keys that the type does not know."""
        return (self._made or self._form).from_json(data, self.where)  # type: ignore[no-any-return]

    def schema(self) -> dict[str, Any]:
        """The type's JSON Schema (2020-12); all definitions that it refers to stand under `$defs` at the root."""
        return self._form.schema()


@overload
def codec(type_: type[T], *, where: str, now: bool = True) -> Codec[T]: ...
@overload
def codec(type_: Any, *, where: str, now: bool = True) -> Codec[Any]: ...
def codec(type_: Any, *, where: str, now: bool = True) -> Codec[Any]:
    """The codec of a type. Raises `InvalidDefinition` naming `where` if JSON cannot hold such values; with `now=False`
    at the first use, for types of our own that tests know to fit: starting is cheaper."""
    return Codec(type_, where, now=now)


def _known_form(type_: Any) -> _Form:
    try:
        hash(type_)
    except TypeError:  # Annotated with metadata that cannot be hashed
        return _form(type_)
    return _cached_form(type_)


def _form(type_: Any) -> _Form:
    if type_ in _JSON_TYPES:
        return _JsonForm(type_)
    return PydanticForm(type_) if wants_pydantic(type_) else _MsgspecForm(type_)


_cached_form = lru_cache(CODECS_KEPT)(_form)


class _JsonForm:
    """Any strict JSON, or any object or list of it."""

    def __init__(self, type_: Any) -> None:
        self._kind: Any = object if type_ in (Any, object) else getattr(type_, "__origin__", type_)

    def to_json(self, value: Any, where: str) -> Json:
        return jsonvalue.copied(self.from_json(value, where))

    def from_json(self, data: Json, where: str) -> Any:
        if not jsonvalue.is_strict(data):
            _refuse_json(data, where)
        if not isinstance(data, self._kind):
            raise InvalidValue(f"{where}: expected a {self._kind.__name__}, got a {type(data).__name__}")
        return data

    def schema(self) -> dict[str, Any]:
        return {} if self._kind is object else {"type": "object" if self._kind is dict else "array"}


class _MsgspecForm:
    """What msgspec knows, with pydantic models inside."""

    def __init__(self, type_: Any) -> None:
        self._type = type_
        self._unknown_keys: KeyCheck | None = key_check(type_, pydantic_form)
        msgspec.json.Decoder(type_)  # refuses what no value could ever be decoded into

    def to_json(self, value: Any, where: str) -> Json:
        try:
            raw = _encoder.encode(value)
            data = jsonvalue.decode(raw)
            if _SUSPECT.search(raw) or raw.count(b"[") + raw.count(b"{") > jsonvalue.DEPTH_LIMIT:
                _refuse_json(data, where)
            back = self._load(data, where)
        except (InvalidValue, TypeError, ValueError, RecursionError) as error:
            fault = unencodable(value, _encoder.encode)
            if fault is not None:
                raise InvalidValue(f"{where}: {fault.what}", path=fault.path) from error
            if isinstance(error, InvalidValue):
                raise
            raise InvalidValue(f"{where}: {error}") from error
        found = difference(back, value)
        if found is not None:
            found = unencodable(value, _encoder.encode) or found
            raise InvalidValue(f"{where}: {found.what}", path=found.path, hint="nothing is converted silently")
        return data

    def from_json(self, data: Json, where: str) -> Any:
        if not jsonvalue.is_strict(data):
            _refuse_json(data, where)
        return self._load(data, where)

    def _load(self, data: Json, where: str) -> Any:
        try:
            if self._unknown_keys is not None:
                self._unknown_keys(data, "")
            return self._convert(data)
        except msgspec.ValidationError as error:
            raise _invalid(error, data, where, self._convert) from error
        except Misfit as error:
            raise InvalidValue(f"{where}: {error}", path=error.path) from None

    def _convert(self, data: Json) -> Any:
        return msgspec.convert(data, self._type, strict=True, dec_hook=_decode_custom)

    def schema(self) -> dict[str, Any]:
        return merged(self._type, lambda cls: ANYTHING if cls is object else pydantic_form(cls).raw_schema())


def _encode_custom(value: Any) -> Any:
    if is_draft(value):
        raise TypeError("a part of a draft; use plain(draft) to take it out")
    kind: Any = type(value)
    if not hasattr(kind, "model_validate"):
        raise TypeError(f"a {kind.__name__} is not JSON")
    return pydantic_form(kind).dump(value)


_encoder = msgspec.json.Encoder(enc_hook=_encode_custom)


def _decode_custom(type_: Any, data: Any) -> Any:
    return data if type_ is object else pydantic_form(type_).load(data)


def _refuse_json(data: Any, where: str) -> None:
    try:
        jsonvalue.check(data)
    except InvalidValue as error:
        raise _placed(error, where) from None


def _placed(error: InvalidValue, where: str) -> InvalidValue:
    return InvalidValue(f"{where}: {error.fault}", path=error.path, hint=error.hint)


def _invalid(error: msgspec.ValidationError, data: Json, where: str, convert: Callable[[Json], object]) -> InvalidValue:
    """The error with a JSON pointer. Where msgspec names no keys of dicts, the first that fails alone is it."""
    text = str(error)
    found = re.search(_PATH, text)
    what = text[: found.start()] if found else text
    pointer, complete = "", True
    for name, position in re.findall(_STEP, found["path"]) if found else ():
        step = name or position
        if step == "...":
            step = _failing_key(data, pointer, text, convert)
            if step is None:
                complete, what = False, f"{what} in one of its values"
                break
        pointer += f"/{jsonvalue.escape(step)}"
    if complete and isinstance(error.__cause__, Misfit):
        pointer += error.__cause__.path
    return InvalidValue(f"{where}: {what}", path=pointer)


def _failing_key(data: Json, pointer: str, text: str, convert: Callable[[Json], object]) -> str | None:
    try:
        found = value_at(data, pointer)
    except InvalidValue:  # a name with a dot in it cannot be told from two names
        return None
    for key in islice(found, KEYS_TRIED) if isinstance(found, dict) else ():
        alone = apply(data, [{"op": "replace", "path": pointer, "value": {key: found[key]}}])
        try:
            convert(alone)
        except msgspec.ValidationError as error:
            if str(error) == text:
                return str(key)
    return None
