"""Text from outside made fit to store, and cut without breaking characters."""

import codecs
import re
import unicodedata
from typing import Final

REPLACEMENT: Final = "\ufffd"
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # OSC, DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-~]?"  # two-character and charset sequences
    r"|[\x80-\x9f]"  # C1 controls
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def well_formed(text: str) -> str:
    """The text with each lone surrogate replaced by U+FFFD; the same object when there is none."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")  # joins halves that belong together
        return joined.encode("utf-8", "replace").decode() if not _fine(joined) else joined
    return text


def _fine(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def decode_utf8(data: bytes) -> str:
    """Bytes as text; what is no UTF-8 becomes U+FFFD."""
    return data.decode("utf-8", "replace")


def stream_decoder() -> codecs.IncrementalDecoder:
    """Decodes UTF-8 that comes in pieces: a character split between two pieces comes out whole."""
    return codecs.getincrementaldecoder("utf-8")("replace")


def printable(text: str) -> str:
    """Text without escape sequences and control characters; newlines and tabs stay, CR LF becomes LF.

    A lone carriage return overwrites the line on a terminal: only what followed the last one stays.
    """
    if "\x1b" in text or not text.isascii():
        text = _ESCAPES.sub("", text)
    if "\r" in text:
        text = text.replace("\r\n", "\n")
        if "\r" in text:
            text = "\n".join(line.rstrip("\r").rsplit("\r", 1)[-1] for line in text.split("\n"))
    return _CONTROLS.sub("", text)


def cut_head(text: str, limit: int) -> str:
    """The longest beginning of at most `limit` bytes of UTF-8 that ends between two characters as people see them."""
    end = _fitting(text, limit)
    while 0 < end < len(text) and _joined(text[end - 1], text[end]):
        end -= 1
    return text[:end]


def cut_tail(text: str, limit: int) -> str:
    """The longest end of at most `limit` bytes of UTF-8 that begins between two characters as people see them."""
    begin = len(text) - _fitting(text[::-1], limit)
    while 0 < begin < len(text) and _joined(text[begin - 1], text[begin]):
        begin += 1
    return text[begin:]


def _fitting(text: str, limit: int) -> int:
    if limit <= 0:
        return 0
    if text.isascii():
        return min(limit, len(text))
    return len(text[:limit].encode("utf-8", "replace")[:limit].decode("utf-8", "ignore"))


def _joined(left: str, right: str) -> bool:
    """Whether two neighbours belong to one visible character (after UAX 29, without its tables): combining marks,
    joiners, variation selectors, skin tones, Hangul syllable parts, pairs of regional indicators."""
    if left.isascii() and right.isascii():
        return left == "\r" and right == "\n"
    if right in "\u200d\ufe0e\ufe0f\u20e3" or left == "\u200d" or "\U0001f3fb" <= right <= "\U0001f3ff":
        return True
    if "\U000e0020" <= right <= "\U000e007f" or unicodedata.category(right) in ("Mn", "Me", "Mc"):
        return True
    if _hangul(left) and "\u1160" <= right <= "\u11ff":
        return True
    return "\U0001f1e6" <= left <= "\U0001f1ff" and "\U0001f1e6" <= right <= "\U0001f1ff"


def _hangul(character: str) -> bool:
    return "\u1100" <= character <= "\u11ff" or "\uac00" <= character <= "\ud7a3"
