"""Well-formed text out of what a provider sends: whole values, and streams whose pieces may be cut anywhere."""

import math
from typing import Final

import msgspec

from perdure.base.errors import InvalidValue
from perdure.base.jsonvalue import DEPTH_LIMIT, LARGEST_INTEGER, Json, check
from perdure.base.lazy import load
from perdure.base.text import well_formed

HIGH_SURROGATES: Final = ("\ud800", "\udbff")


class Stitch:
    """Joins the pieces of one text so that no piece ends in the middle of a character."""

    def __init__(self) -> None:
        self._held = ""

    def add(self, piece: str) -> str:
        """The well-formed text that is certain by now; half a character waits for the other half."""
        text = self._held + piece
        self._held = ""
        if text and HIGH_SURROGATES[0] <= text[-1] <= HIGH_SURROGATES[1]:
            self._held, text = text[-1], text[:-1]
        return well_formed(text)

    def end(self) -> str:
        """What was still held: half a character that never got its other half becomes the replacement mark."""
        held, self._held = self._held, ""
        return well_formed(held)


def clean(value: Json, depth: int = 0) -> Json:
    """The value as strict JSON: well-formed text, text keys; what is none of JSON (a time, NaN, bytes) becomes text."""
    if depth >= DEPTH_LIMIT:
        return well_formed(str(value))
    if isinstance(value, dict):
        return {well_formed(str(key)): clean(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item, depth + 1) for item in value]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) <= LARGEST_INTEGER:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    return well_formed(str(value))


def parse_arguments(raw: str | dict[str, Json] | None) -> dict[str, Json] | str:
    """A tool call's arguments as a strict JSON object, or the raw text, well-formed, where they are none."""
    if not raw:
        return {}
    value = _decode(raw) if isinstance(raw, str) else raw
    try:
        if isinstance(value, dict):
            mended: dict[str, Json] = _mend(value)
            check(mended)
            return mended
    except (InvalidValue, RecursionError):
        pass
    return well_formed(raw if isinstance(raw, str) else load("json:dumps")(raw, default=str))


def _decode(raw: str) -> Json:
    try:
        return msgspec.json.decode(well_formed(raw))
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        return load("json:loads")(raw)  # takes escapes of half a character, which are mended below: the call survives
    except (ValueError, RecursionError):
        return None


def _mend(value: Json) -> Json:
    """The same value with well-formed text, and nothing else changed."""
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, dict):
        return {_mend(key): _mend(item) for key, item in value.items()}
    return [_mend(item) for item in value] if isinstance(value, list) else value
