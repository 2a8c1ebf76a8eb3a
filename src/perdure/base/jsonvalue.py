"""Strict JSON: what may be stored, checked with the path of what may not."""

import math
from typing import Any, Final

import msgspec

from perdure.base.errors import InvalidValue
from perdure.base.frozen import FrozenDict, FrozenList

Json = Any
"""A JSON value: dict with text keys, list, str, int, float, bool or None."""

DEPTH_LIMIT: Final = 200
"""Levels of nesting at most: far beyond what people write, well below where decoders and Python's stack give up."""
LARGEST_INTEGER: Final = 2**53 - 1
"""The largest integer that every JSON reader keeps exactly (RFC 8259, section 6)."""

_encoder = msgspec.json.Encoder()
_sorted_encoder = msgspec.json.Encoder(order="sorted")
_decoder = msgspec.json.Decoder()


def encode(value: Json) -> bytes:
    """A checked value as compact UTF-8 JSON, keys in their order. Raises `InvalidValue` if nobody checked how deep."""
    try:
        return _encoder.encode(value)
    except RecursionError:
        raise InvalidValue(f"nested deeper than {DEPTH_LIMIT} levels") from None


def decode(data: bytes | str) -> Json:
    """The value of JSON text. Raises `InvalidValue` if it is none, or nested too deeply to be read.

    It reads what any JSON reader does, so integers may be larger than `check` allows: check what comes from outside.
    """
    try:
        return _decoder.decode(data)
    except RecursionError:
        raise InvalidValue(f"nested deeper than {DEPTH_LIMIT} levels") from None
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise InvalidValue(f"not JSON: {error}") from error


def canonical(value: Json) -> bytes:
    """A checked value as JSON with sorted keys, for digests: values that differ in key order only give equal bytes."""
    return _sorted_encoder.encode(value)


def copied(value: Json) -> Json:
    """A checked value as new plain dicts and lists that share nothing with it."""
    return msgspec.to_builtins(value)


def check(value: Any, *, path: str = "") -> None:
    """Raise `InvalidValue` with the path of the first thing that is not strict JSON. `path` is where the value stands.

    Refused: NaN and infinities, integers beyond 2**53-1, bytes, sets, tuples, keys that are no text, text with half a
    surrogate pair, more than `DEPTH_LIMIT` levels (so also what holds itself), and instances of anything but the plain
    types: an enum member that is a number or text is refused as well, since it would come back as something else.
    """
    if not _is_strict(value, DEPTH_LIMIT):
        _complain(value, path, DEPTH_LIMIT)


def is_strict(value: Any) -> bool:
    """Whether `check` would accept the value."""
    return _is_strict(value, DEPTH_LIMIT)


def escape(key: str) -> str:
    """A key as one step of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1") if "~" in key or "/" in key else key


def unescape(step: str) -> str:
    """One step of a JSON pointer as a key."""
    return step.replace("~1", "/").replace("~0", "~") if "~" in step else step


def _is_strict(value: Any, levels: int) -> bool:
    """The check without a path, for speed: paths are made only for what fails."""
    kind = type(value)
    if kind is dict or kind is FrozenDict:
        if not levels:
            return False
        for key, item in value.items():
            if type(key) is not str or not (key.isascii() or _is_text(key)):
                return False
            kind = type(item)
            if kind is str:
                if not (item.isascii() or _is_text(item)):
                    return False
            elif kind is bool or item is None:
                continue
            elif not _is_strict(item, levels - 1):
                return False
        return True
    if kind is list or kind is FrozenList:
        if not levels:
            return False
        for item in value:
            if type(item) is str:
                if not (item.isascii() or _is_text(item)):
                    return False
            elif not _is_strict(item, levels - 1):
                return False
        return True
    if kind is str:
        return _is_text(value)
    if kind is int:
        return -LARGEST_INTEGER <= value <= LARGEST_INTEGER  # type: ignore[no-any-return]
    if kind is float:
        return math.isfinite(value)
    return value is None or kind is bool


def _complain(value: Any, path: str, levels: int) -> None:
    """Find the first thing that `_is_strict` does not accept, and raise with its path."""
    kind = type(value)
    if kind in (dict, FrozenDict, list, FrozenList):
        if not levels:
            raise InvalidValue(f"nested deeper than {DEPTH_LIMIT} levels", path=path)
        if isinstance(value, dict):
            for key, item in value.items():
                if type(key) is not str:
                    raise InvalidValue(f"a key that is no text: {key!r}", path=path)
                if not _is_text(key):
                    raise InvalidValue("a key with half a surrogate pair", path=path)
                _complain(item, f"{path}/{escape(key)}", levels - 1)
        else:
            for position, item in enumerate(value):
                _complain(item, f"{path}/{position}", levels - 1)
    elif not _is_strict(value, levels):
        raise _fault(value, path)


def _fault(value: Any, path: str) -> InvalidValue:
    kind = type(value)
    if kind is str:
        return InvalidValue("text with half a surrogate pair", path=path)
    if kind is int:
        return InvalidValue("an integer beyond 2**53-1", path=path, hint="store it as text")
    if kind is float:
        return InvalidValue(f"{value} is no JSON number", path=path)
    return InvalidValue(f"a {kind.__name__} is not JSON", path=path, hint="use dict, list, str, int, float, bool, None")


def _is_text(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
