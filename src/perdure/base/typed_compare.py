"""Finds where a value would not come back from JSON as it was given, so that nothing is lost or converted silently."""

import dataclasses
import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

import msgspec

from perdure.base.frozen import FrozenDict, FrozenList
from perdure.base.jsonvalue import DEPTH_LIMIT, escape

_SCALARS: Final = frozenset({str, int, float, bool, type(None)})
_UNFROZEN: Final[dict[Any, Any]] = {FrozenDict: dict, FrozenList: list}
_ABSENT: Final = object()


class Fault(msgspec.Struct, frozen=True):
    """What is wrong, and where: a JSON pointer of Python's names."""

    what: str
    path: str


def difference(back: Any, given: Any) -> Fault | None:
    """The first place where the two differ in type or value. A whole number given as a float is no difference."""
    found = _differs(back, given)
    if found is None:
        return None
    return Fault(found[0], "".join(f"/{escape(step)}" for step in reversed(found[1:])))


def _differs(back: Any, given: Any) -> list[str] | None:
    """What differs, then the steps to it from the inside out, so that no path is made for what is fine."""
    kind: Any = type(given)
    if kind is not type(back):
        return _kinds_differ(back, given)
    if kind in _SCALARS:
        return None if back == given else [f"{given!r:.200} would come back as {back!r:.200}"]
    if kind is dict:
        return _dicts_differ(back, given)
    if kind is list or isinstance(given, tuple):
        if len(back) != len(given):
            return [f"{len(given)} items would come back as {len(back)}"]
        for position, item in enumerate(given):
            found = _differs(back[position], item)
            if found is not None:
                found.append(str(position))
                return found
        return None
    names = field_names(kind)
    if names is None:
        return None if back == given else [f"{given!r:.200} would come back as {back!r:.200}"]
    for name in names:
        item, other = getattr(given, name, _ABSENT), getattr(back, name, _ABSENT)
        if type(item) is type(other) and type(item) in _SCALARS and item == other:
            continue
        found = _differs(other, item)
        if found is not None:
            found.append(name)
            return found
    extra = getattr(given, "__pydantic_extra__", None)
    return _dicts_differ(back.__pydantic_extra__ or {}, extra) if extra else None


def _kinds_differ(back: Any, given: Any) -> list[str] | None:
    kind = type(given)
    if kind is int and type(back) is float and back == given:
        return None
    if _UNFROZEN.get(kind) is type(back):
        return _differs(back, _UNFROZEN[kind](given))
    if kind is float and not math.isfinite(given):
        return [f"{given} is no JSON number"]
    return [f"a {kind.__name__} would come back as a {type(back).__name__}"]


def _dicts_differ(back: dict[Any, Any], given: dict[Any, Any]) -> list[str] | None:
    for key, other_key in zip(given, back, strict=False):
        if type(key) is not type(other_key):
            return [f"a key that is a {type(key).__name__} would come back as a {type(other_key).__name__}"]
        break  # the keys of a dict are of one type here
    for key, item in given.items():
        other = back.get(key, _ABSENT)
        if other is _ABSENT:
            return ["a key that the type does not know", str(key)]
        found = _differs(other, item)
        if found is not None:
            found.append(str(key))
            return found
    if len(back) != len(given):
        return [f"would come back with more keys: {', '.join(sorted(back.keys() - given.keys()))}"]
    return None


def _field_names(kind: Any) -> tuple[str, ...] | None:
    """Names of the fields of a class that has some: a dataclass, a Struct, a pydantic model, an attrs class."""
    fields = getattr(kind, "__pydantic_fields__", None) or getattr(kind, "model_fields", None)
    if isinstance(fields, dict) and hasattr(kind, "model_validate"):
        return tuple(fields)
    if issubclass(kind, msgspec.Struct):
        return tuple(kind.__struct_fields__)
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    attributes = getattr(kind, "__attrs_attrs__", None)
    return None if attributes is None else tuple(attribute.name for attribute in attributes)


field_names: Callable[[Any], tuple[str, ...] | None] = lru_cache(1024)(_field_names)
"""Names of the fields of a class that has some, else None; remembered."""


def unencodable(value: Any, encode: Callable[[Any], object]) -> Fault | None:
    """The first thing inside a value that JSON cannot hold: found only once something has failed."""
    return _unencodable(value, "", encode, DEPTH_LIMIT)


def _unencodable(value: Any, path: str, encode: Callable[[Any], object], levels: int) -> Fault | None:
    if not levels:
        return Fault(f"nested deeper than {DEPTH_LIMIT} levels", path)
    if isinstance(value, float) and not math.isfinite(value):
        return Fault(f"{value} is no JSON number", path)
    if isinstance(value, bytes | bytearray | memoryview | set | frozenset):
        return Fault(f"a {type(value).__name__} is not JSON", path)
    if isinstance(value, dict) and any(not isinstance(key, str) for key in value):
        return Fault(f"a key that is no text: {next(key for key in value if not isinstance(key, str))!r}", path)
    children = list(_children(value))
    for name, item in children:
        found = _unencodable(item, f"{path}/{escape(name)}", encode, levels - 1)
        if found is not None:
            return found
    if children:
        return None
    try:
        encode(value)
    except UnicodeEncodeError:
        return Fault("text with half a surrogate pair", path)
    except (TypeError, ValueError) as error:
        return Fault(str(error), path)
    return None


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list | tuple):
        yield from ((str(position), item) for position, item in enumerate(value))
    elif not hasattr(value, "model_validate"):
        kind: Any = type(value)
        for name in field_names(kind) or ():
            item = getattr(value, name, _ABSENT)
            if item is not _ABSENT and item is not msgspec.UNSET:
                yield name, item
