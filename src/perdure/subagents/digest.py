"""What makes two requests the same: their kind and content, in whatever order the keys were written."""

import hashlib
from typing import Any

from perdure.base import jsonvalue


def canonical_digest(value: Any) -> str:
    """SHA-256 of the canonical JSON."""
    return hashlib.sha256(jsonvalue.canonical(value)).hexdigest()


def request_digest(kind: str, body: dict[str, Any], targets: list[str]) -> str:
    """Of a request's content. Who sent it, for whom, and where it is listed are not part of it. Raises `InvalidValue`
    for what is no text, such as half of a surrogate pair."""
    jsonvalue.check(body)
    return canonical_digest({"kind": kind, "body": body, "targets": targets})
