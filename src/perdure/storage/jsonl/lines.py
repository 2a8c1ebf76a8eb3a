"""The lines of the file: how they are put together, checked, and taken apart.

Every line is one JSON object that begins with the checksum of the rest. The first names the format. A commit is one
line with its `seq`, the next free id and its records; opening and closing leave a line each. `flushed` is the length
of the file up to which everything had reached the disk when the line was written: damage before it is no torn tail.
"""

import zlib
from typing import Final

import msgspec

from perdure.base.errors import StorageCorrupt, TooNew

SCHEMA_VERSION: Final = 1
FORMAT: Final = "session"

OPENING: Final = b'{"crc":"'
DIGITS: Final = len(OPENING)
BODY: Final = DIGITS + 8 + 2
"""Where the checked part of a line begins: behind `{"crc":"01234567",`."""

SECTIONS: Final = (
    "conversations",
    "entries",
    "tasks",
    "submissions",
    "documents",
    "copies",
    "revisions",
    "blobs",
)
"""The lists of records in a line, in the order in which they are written and read: what others refer to comes first."""
KEYS: Final = {name: f',"{name}":['.encode() for name in SECTIONS}

Records = dict[str, list[bytes]]
"""The records of a line by section, as JSON."""


class Header(msgspec.Struct, omit_defaults=True):
    """The first line."""

    perdure: str = ""
    schema: int = 0


class Mark(msgspec.Struct, omit_defaults=True):
    """What a line says besides its records: a commit `seq` and `next`, an opening also `epoch`, a closing `closed`."""

    seq: int = 0
    next: int = 0
    """The first id that is free after it."""
    epoch: int = 0
    durability: str = ""
    boot: str = ""
    """The machine's start during which the store was opened: a tail can only be lost when that one ends."""
    closed: bool = False
    as_of: int = 0
    """In a rewritten file: the records are what was of use at that commit, from whichever commits they came."""
    flushed: int = 0


class Line(msgspec.Struct, gc=False):
    """A line as read. The records stay as they are written until somebody asks for them."""

    seq: int = 0
    next: int = 0
    epoch: int = 0
    durability: str = ""
    boot: str = ""
    closed: bool = False
    flushed: int = 0
    conversations: list[msgspec.Raw] = []
    entries: list[msgspec.Raw] = []
    tasks: list[msgspec.Raw] = []
    submissions: list[msgspec.Raw] = []
    documents: list[msgspec.Raw] = []
    copies: list[msgspec.Raw] = []
    revisions: list[msgspec.Raw] = []
    blobs: list[msgspec.Raw] = []


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Line).decode
_decode_header: Final = msgspec.json.Decoder(Header).decode


def header() -> bytes:
    """The first line of every file."""
    return _framed(_encode(Header(FORMAT, SCHEMA_VERSION))[1:])


def check_header(text: bytes, path: str) -> None:
    """Raise `StorageCorrupt` for what is no file of ours, `TooNew` for one of a later format."""
    found = Header()
    if is_whole(text):
        try:
            found = _decode_header(text)
        except (msgspec.DecodeError, UnicodeDecodeError):
            found = Header()
    if found.perdure != FORMAT or found.schema < 1:
        raise StorageCorrupt(
            f"{path} is no store of ours, or damaged from its first byte", hint="choose another file", offset=0
        )
    if found.schema > SCHEMA_VERSION:
        raise TooNew(
            f"{path} was written by a newer version (schema {found.schema}, this one knows {SCHEMA_VERSION})",
            hint="update perdure",
        )


def compose(mark: Mark, records: Records) -> bytes:
    """A whole line, ended."""
    parts = [_encode(mark)[1:-1]]
    for name in SECTIONS:
        if found := records.get(name):
            parts += (KEYS[name], b",".join(found), b"]")
    parts.append(b"}")
    return _framed(b"".join(parts))


def is_whole(text: bytes) -> bool:
    """Whether these bytes are a line as somebody wrote it."""
    return (
        text[-1:] == b"\n"
        and text.startswith(OPENING)
        and text[DIGITS + 8 : BODY] == b'",'
        and text[DIGITS : DIGITS + 8] == b"%08x" % zlib.crc32(memoryview(text)[BODY:-1])
    )


def read(text: bytes) -> Line:
    """A whole line. Raises `StorageCorrupt` if it says what none of ours does."""
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StorageCorrupt(f"a line that no version of this program writes: {error}") from error


def first_at(section: str, text: bytes, at: int) -> int:
    """Where the first record of a section begins, behind `at`, in a line that has some."""
    key = KEYS[section]
    return text.find(key, at) + len(key)


def _framed(body: bytes) -> bytes:
    return b'{"crc":"%08x",%b\n' % (zlib.crc32(body), body)
