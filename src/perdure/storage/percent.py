"""Percent-encoding of paths in URLs. The standard library's own takes longer to load than all of a store."""

import re
from typing import Final

_PLAIN: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~/")
_ESCAPES: Final = r"(?:%[0-9a-fA-F]{2})+"


def encoded(path: bytes) -> str:
    """A path as it may stand in a URL."""
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in path)


def decoded(text: str) -> str:
    """Text of a URL as it is meant. What is no escape stays; bytes that are no UTF-8 become U+FFFD."""
    return re.sub(_ESCAPES, lambda found: bytes.fromhex(found[0].replace("%", "")).decode("utf-8", "replace"), text)


def query(text: str) -> list[tuple[str, str]]:
    """The options behind the question mark of a URL, in order."""
    pairs = (part.partition("=") for part in text.split("&") if part)
    return [(decoded(name), decoded(value)) for name, _, value in pairs]
