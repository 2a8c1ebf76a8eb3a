"""Strict JSON: what may be stored, checked with the path of what may not."""

import math
from typing import Any, Final

import msgspec

from perdure.base.errors import InvalidValue

Json = Any
"""A JSON value: dict with text keys, list, str, int, float, bool or None."""

DEPTH_LIMIT: Final = 200
"""Nesting at most, far beyond what people write and well below where decoders give up."""
LARGEST_INTEGER: Final = 2**53 - 1
"""The largest integer that every JSON reader keeps exactly (RFC 8259, section 6)."""

_encoder = msgspec.json.Encoder()
_sorted_encoder = msgspec.json.Encoder(order="sorted")
_decoder = msgspec.json.Decoder()


def encode(value: Json) -> bytes:
    """A checked value as compact UTF-8 JSON, keys in their order."""
    return _encoder.encode(value)


def decode(data: bytes) -> Json:
    """The value of stored JSON."""
    return _decoder.decode(data)


def canonical(value: Json) -> bytes:
    """A checked value as JSON with sorted keys: equal values give equal bytes, for digests."""
    return _sorted_encoder.encode(value)


def check(value: Any, *, path: str = "") -> None:
    """Raise `InvalidValue` with the path of the first thing that is not strict JSON.

    Refused: NaN and infinities, integers beyond 2**53-1, bytes, sets, tuples, keys that are no text, text with half a
    surrogate pair, and instances of anything but the plain types (also their subclasses).
    """
    _check(value, path, 0)


def _check(value: Any, path: str, depth: int) -> None:
    kind = type(value)
    if kind is str:
        if not value.isascii():
            _check_text(value, path)
    elif kind is dict:
        if depth >= DEPTH_LIMIT:
            raise InvalidValue(f"nested deeper than {DEPTH_LIMIT} levels", path=path)
        for key, item in value.items():
            if type(key) is not str:
                raise InvalidValue(f"a key that is no text: {key!r}", path=path)
            if not key.isascii():
                _check_text(key, path)
            _check(item, f"{path}/{escape(key)}", depth + 1)
    elif kind is list:
        if depth >= DEPTH_LIMIT:
            raise InvalidValue(f"nested deeper than {DEPTH_LIMIT} levels", path=path)
        for position, item in enumerate(value):
            _check(item, f"{path}/{position}", depth + 1)
    elif kind is int:
        if not -LARGEST_INTEGER <= value <= LARGEST_INTEGER:
            raise InvalidValue("an integer beyond 2**53-1", path=path, hint="store it as text")
    elif kind is float:
        if not math.isfinite(value):
            raise InvalidValue(f"{value} is no JSON number", path=path)
    elif value is not None and kind is not bool:
        raise InvalidValue(f"a {kind.__name__} is not JSON", path=path, hint="use dict, list, str, int, float, bool, None")


def _check_text(text: str, path: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidValue("text with half a surrogate pair", path=path) from None


def escape(key: str) -> str:
    """A key as one step of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1") if "~" in key or "/" in key else key
