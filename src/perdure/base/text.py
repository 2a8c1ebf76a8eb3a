"""Text from outside made fit to store, and cut without breaking characters."""

import codecs
import re
import unicodedata
from typing import Final

REPLACEMENT: Final = "\ufffd"
CLUSTER_LIMIT: Final = 64
"""Code points that a visible character has at most, for cutting. Text in use has 30 at most (Unicode's stream-safe
text, UAX 15); the bound keeps a hostile pile of marks from making a cut empty."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPES: Final = (  # these two are compiled when first used: starting is cheaper without
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*(?:[@-~]|(?=\n|\Z))"  # CSI: colours, cursor movements
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x18\x1a\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)"  # OSC, DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-~]?"  # two-character and character-set sequences, and what is cut short
    r"|[\x80-\x9f]"  # C1 controls
)
_CONTROLS: Final = r"[\x00-\x08\x0b-\x1f\x7f]"


def well_formed(text: str) -> str:
    """The text with each lone surrogate replaced by U+FFFD; the same object when there is none.

    Two halves that stand side by side, as JSON escapes leave them in some decoders, become the character they mean.
    """
    if text.isascii() or not _SURROGATE.search(text):
        return text
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return _SURROGATE.sub(REPLACEMENT, joined)


def decode_utf8(data: bytes) -> str:
    """Bytes as text; what is no UTF-8 becomes U+FFFD."""
    return data.decode("utf-8", "replace")


def stream_decoder() -> codecs.IncrementalDecoder:
    """Decodes UTF-8 that comes in pieces: a character split between two pieces comes out whole, with the second.

    Call `decode(piece)` for each and `decode(b"", True)` at the end; what is no UTF-8 becomes U+FFFD.
    """
    return codecs.getincrementaldecoder("utf-8")("replace")


def printable(text: str) -> str:
    """Text without escape sequences and control characters; newlines and tabs stay, CR LF becomes LF.

    What a terminal would have overwritten goes: of a line with lone carriage returns the part after the last one stays
    (a progress bar's final state), and a backspace takes the character before it (bold and underlined manual pages).
    Give it whole lines: an escape sequence cut between two calls is not recognised.
    """
    if "\x1b" in text or not text.isascii():
        text = re.sub(_ESCAPES, "", text)
    if "\r" in text:
        text = text.replace("\r\n", "\n")
        if "\r" in text:
            text = "\n".join(line.rstrip("\r").rsplit("\r", 1)[-1] for line in text.split("\n"))
    if "\b" in text:
        text = _without_overstrikes(text)
    return re.sub(_CONTROLS, "", text)


def _without_overstrikes(text: str) -> str:
    kept: list[str] = []
    for character in text:
        if character != "\b":
            kept.append(character)
        elif kept and kept[-1] != "\n":
            kept.pop()
    return "".join(kept)


def cut_head(text: str, limit: int) -> str:
    """The longest beginning of at most `limit` bytes of UTF-8 that ends between two characters as people see them.

    A visible character is, after UAX 29 but without its tables: a character with its combining marks, variation
    selectors, skin tone and tags; what joiners connect; Hangul syllable parts; a pair of regional indicators; CR LF.
    One of over `CLUSTER_LIMIT` code points is cut between two of them. The text must be well-formed.
    """
    end = len(_first_bytes(text, limit))
    fits = end
    while 0 < end < len(text) and _joined(text, end):
        end -= 1
        if fits - end >= CLUSTER_LIMIT:
            return text[:fits]
    return text[:end]


def cut_tail(text: str, limit: int) -> str:
    """The longest end of at most `limit` bytes of UTF-8 that begins between two characters, as in `cut_head`."""
    begin = len(text) - len(_last_bytes(text, limit))
    fits = begin
    while 0 < begin < len(text) and _joined(text, begin):
        begin += 1
        if begin - fits >= CLUSTER_LIMIT:
            return text[fits:]
    return text[begin:]


def _first_bytes(text: str, limit: int) -> str:
    piece = text[: max(limit, 0)]
    return piece if piece.isascii() else piece.encode()[:limit].decode("utf-8", "ignore")


def _last_bytes(text: str, limit: int) -> str:
    piece = text[-limit:] if limit > 0 else ""
    if piece.isascii():
        return piece
    data = piece.encode()[-limit:]
    begin = 0
    while begin < len(data) and data[begin] & 0xC0 == 0x80:  # the rest of a character that begins before
        begin += 1
    return data[begin:].decode()


def _joined(text: str, at: int) -> bool:
    """Whether the characters before and after this place are seen as one."""
    left, right = text[at - 1], text[at]
    if left.isascii() and right.isascii():
        return left == "\r" and right == "\n"
    if right in "\u200c\u200d" or left == "\u200d" or "\U0001f3fb" <= right <= "\U0001f3ff":
        return True
    if "\U000e0020" <= right <= "\U000e007f" or unicodedata.category(right) in ("Mn", "Me", "Mc"):
        return True
    if _is_flag_letter(right):
        return _odd_flag_letters_before(text, at)
    return _hangul_joined(left, right)


def _is_flag_letter(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _odd_flag_letters_before(text: str, at: int) -> bool:
    """Regional indicators pair up from the left; the bound only matters in absurdly long rows of flags."""
    begin = at
    while begin > 0 and at - begin <= 2 * CLUSTER_LIMIT and _is_flag_letter(text[begin - 1]):
        begin -= 1
    return (at - begin) % 2 == 1


def _hangul_joined(left: str, right: str) -> bool:
    if "\u1160" <= right <= "\u11ff" or "\ud7b0" <= right <= "\ud7fb":  # a vowel or final after any syllable part
        return "\u1100" <= left <= "\u11ff" or "\ua960" <= left <= "\ua97c" or "\uac00" <= left <= "\ud7fb"
    initial = "\u1100" <= left <= "\u115f" or "\ua960" <= left <= "\ua97c"
    return initial and ("\u1100" <= right <= "\u115f" or "\ua960" <= right <= "\ua97c" or "\uac00" <= right <= "\ud7a3")
