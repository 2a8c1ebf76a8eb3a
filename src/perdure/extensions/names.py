"""Names that extensions bring: stored, logged and put into paths by others, so each means one thing everywhere."""

import re
from typing import Any, Final

from perdure.base.errors import InvalidDefinition

EXTENSION_LENGTH: Final = 64
KIND_LENGTH: Final = 128
"""Characters of a kind of task, document or entry: it stands in every record of that kind."""
SECTION_LENGTH: Final = 64
RESERVED: Final = "perdure"

_EXTENSION: Final = r"[a-z][a-z0-9_-]*(?:\.[a-z0-9_-]+)*"
_KIND: Final = r"[A-Za-z][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*"


def check_extension_name(name: Any) -> None:
    """Refuse names that could be mistaken for something else in a path, a log or a document."""
    if not isinstance(name, str) or len(name) > EXTENSION_LENGTH or not re.fullmatch(_EXTENSION, name):
        raise InvalidDefinition(
            f"not an extension name: {_shown(name)}",
            hint=f"up to {EXTENSION_LENGTH} lower-case letters, digits, _ and -, in parts with single dots between",
        )
    if is_reserved(name):
        raise InvalidDefinition(f"the extension name {name!r} is reserved for Perdure itself")


def check_kind(kind: Any, what: str) -> None:
    """Refuse a kind of task, document or entry in the same way. `what` begins the error."""
    if not isinstance(kind, str) or len(kind) > KIND_LENGTH or not re.fullmatch(_KIND, kind):
        raise InvalidDefinition(
            f"{what} is no name: {_shown(kind)}",
            hint=f"up to {KIND_LENGTH} letters, digits, _ and -, in parts with single dots between",
        )
    if is_reserved(kind):
        raise InvalidDefinition(f"{what} {kind!r} uses the reserved prefix 'perdure.'")


def check_section_name(name: Any, what: str) -> None:
    """Refuse a name of a section that could not be shown on one line. `what` begins the error."""
    if not isinstance(name, str) or not 0 < len(name) <= SECTION_LENGTH or not name.isprintable():
        raise InvalidDefinition(
            f"{what} is no name: {_shown(name)}", hint=f"1 to {SECTION_LENGTH} printable characters"
        )


def is_reserved(name: str) -> bool:
    """Whether a name belongs to Perdure itself."""
    return name == RESERVED or name.startswith(f"{RESERVED}.")


def _shown(name: Any) -> str:
    shown = ascii(name)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
