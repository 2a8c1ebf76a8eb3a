"""Definitions of entry kinds: what an application adds to a transcript."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, dataclass_transform

import msgspec

from perdure.base import jsonvalue
from perdure.base.errors import InvalidDefinition, InvalidValue, TooNew
from perdure.base.typed import OURS, Codec, codec
from perdure.storage.records import Entry

T = TypeVar("T")
_KIND_ATTRIBUTE = "__perdure_entry__"


@dataclass(frozen=True, eq=False)
class EntryKind(Generic[T]):
    """A kind of entry: its name, the version of its data, and the class that holds it."""

    kind: str
    version: int
    type: type[T]
    codec: Codec[T]
    migrate: Callable[[Any, int], Any] | None = None

    def read(self, entry: Entry) -> T:
        """The typed data of a stored entry, migrated in memory when it is older than this code."""
        if entry.kind != self.kind:
            raise InvalidValue(f"entry {entry.id} is a {entry.kind}, not a {self.kind}")
        data = jsonvalue.decode(entry.data)
        if entry.version > self.version:
            raise TooNew(f"entry {entry.id} ({self.kind}) was stored by version {entry.version}")
        if entry.version < self.version:
            if self.migrate is None:
                raise InvalidDefinition(f"entry kind {self.kind}: stored version {entry.version} needs migrate=")
            data = self.migrate(data, entry.version)
        return self.codec.from_json(data)


@dataclass_transform(frozen_default=True)
def entry(
    kind: str, *, version: int = 1, migrate: Callable[[Any, int], Any] | None = None
) -> Callable[[type[T]], type[T]]:
    """Define a kind of entry: the class's fields are its data; `to_model(self)` gives the messages a model reads.

    A plain class becomes a frozen dataclass in place. `to_model` is called once, when the entry is appended, and its
    result is stored.
    """
    if not kind or "/" in kind:
        raise InvalidDefinition(f"an entry kind must be a name without '/': {kind!r}")

    def define(cls: type[T]) -> type[T]:
        if (
            not dataclasses.is_dataclass(cls)
            and not issubclass(cls, msgspec.Struct)
            and not hasattr(cls, "model_validate")
        ):
            cls = dataclasses.dataclass(frozen=True)(cls)
        setattr(
            cls,
            _KIND_ATTRIBUTE,
            EntryKind(kind, version, cls, codec(cls, where=f"entry {kind}", now=not kind.startswith(OURS)), migrate),
        )
        return cls

    return define


def entry_kind(of: Any) -> EntryKind[Any]:
    """The kind of an entry class or of one of its values."""
    found = getattr(of, _KIND_ATTRIBUTE, None)
    if found is None:
        raise InvalidDefinition(f"{of!r} is no entry", hint='decorate its class with @entry("app.name")')
    return found  # type: ignore[no-any-return]


def encode_entry(value: Any) -> tuple[EntryKind[Any], bytes, bytes]:
    """An entry value as its kind, its messages and its data, checked and encoded."""
    kind = entry_kind(value)
    data = jsonvalue.encode(kind.codec.to_json(value))
    to_model = getattr(value, "to_model", None)
    if to_model is None:
        return kind, b"[]", data
    given = to_model()
    try:
        messages = msgspec.to_builtins(given, builtin_types=(bytes, bytearray))  # kept as they are, so refused below
    except (TypeError, RecursionError) as error:
        raise InvalidValue(f"to_model() of {kind.kind} does not give messages: {error}") from error
    jsonvalue.check(messages)
    return kind, jsonvalue.encode(messages), data
