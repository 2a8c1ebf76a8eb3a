"""From what a person writes to a store."""

import os
from typing import Any, Final, cast

from perdure.base.errors import InvalidValue
from perdure.base.lazy import load
from perdure.storage import percent
from perdure.storage.protocol import Durability, Storage

BACKENDS: Final = {
    "sqlite": "perdure.storage.sqlite.store:SqliteStorage",
    "jsonl": "perdure.storage.jsonl.store:JsonlStorage",
    "memory": "perdure.storage.memory:MemoryStorage",
}
"""The kinds of store by the scheme of their URLs. Each is imported when one is opened: most programs use one."""


def open_storage(
    where: str | os.PathLike[str] | Storage,
    *,
    durability: Durability | None = None,
    read_only: bool = False,
    busy_timeout: float | None = None,
) -> Storage:
    """The store at a path or URL, not yet opened. A `Storage` is given back as it is.

    A path, `sqlite:///absolute/path`, `sqlite:path?durability=process`, `jsonl:path`, or `memory:`. A path is a SQLite
    file, or a file of lines if it ends in `.jsonl`. In a URL, `durability`, `read_only` (1 or 0), `busy_timeout`
    (seconds; SQLite) and `fsync` (1 or 0; JSONL, another way to say `durability`) may stand behind a question mark;
    arguments win over them.
    """
    if not isinstance(where, str | os.PathLike):
        return where
    text = os.fspath(where)
    scheme, rest = _scheme(text) if isinstance(where, str) else ("", text)
    if scheme == "memory":
        if rest.strip("/"):
            raise InvalidValue(f"a memory store has no place: {text!r}", hint='write "memory:"')
        return cast(Storage, load(BACKENDS[scheme])())
    if scheme not in ("", *BACKENDS):
        raise InvalidValue(
            f"unknown kind of store {scheme!r} in {text!r}",
            hint=f"known: {', '.join(f'{name}:' for name in BACKENDS)} or a path",
        )
    kind = scheme or ("jsonl" if text.endswith(".jsonl") else "sqlite")
    path, options = (text, {}) if not scheme else _file_url(kind, rest, text)
    if not path:
        raise InvalidValue(f"no path in {text!r}", hint='for instance "sqlite:agent.db"')
    if durability is not None:
        options["durability"] = durability
    if busy_timeout is not None and kind == "sqlite":
        options["busy_timeout"] = busy_timeout  # nobody else ever waits for another process
    read_only = read_only or options.pop("read_only", False)
    return cast(Storage, load(BACKENDS[kind])(path, read_only=read_only, **options))


def _scheme(text: str) -> tuple[str, str]:
    """The scheme of a URL, or none. A single letter is a drive, and what follows a slash is a path."""
    head, colon, rest = text.partition(":")
    word = head.replace("+", "").replace("-", "").replace(".", "")
    if not colon or len(head) < 2 or not word.isalnum() or not head[0].isalpha():
        return "", text
    if not rest.startswith("//") and head.lower() not in BACKENDS and os.sep not in rest and os.path.exists(text):
        return "", text
    return head.lower(), rest


def _file_url(kind: str, rest: str, text: str) -> tuple[str, dict[str, Any]]:
    path, _, query = rest.partition("?")
    if path.startswith("//"):
        host, slash, path = path[2:].partition("/")
        if host not in ("", "localhost"):
            raise InvalidValue(f"a file on another machine: {text!r}", hint=f"{kind}:///absolute/path")
        path = slash + path
    options = dict(_option(kind, name, value, text) for name, value in percent.query(query))
    return percent.decoded(path), options


def _option(kind: str, name: str, value: str, text: str) -> tuple[str, object]:
    if name == "durability" and value in ("power", "process"):
        return name, value
    if name == "read_only" and value in ("0", "1", "true", "false"):
        return name, value in ("1", "true")
    if name == "fsync" and kind == "jsonl" and value in ("0", "1", "true", "false"):
        return "durability", "power" if value in ("1", "true") else "process"
    if name == "busy_timeout" and kind == "sqlite":
        try:
            return name, float(value)
        except ValueError:
            pass
    own = "busy_timeout=seconds" if kind == "sqlite" else "fsync=1|0"
    raise InvalidValue(f"option {name}={value} in {text!r}", hint=f"durability=power|process, read_only=1|0, {own}")
