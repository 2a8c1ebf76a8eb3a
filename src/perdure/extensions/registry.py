"""The registry: which extensions are installed. It may change while everything runs."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from perdure.base.errors import InvalidDefinition, NotFound
from perdure.extensions.extension import Extension
from perdure.session.documents import Document
from perdure.session.entries import EntryKind
from perdure.tasks.definition import TaskDefinition
from perdure.tasks.signals import Signal

Listener = Callable[[], None]


class Snapshot(msgspec.Struct, frozen=True):
    """The installed extensions at one moment, in order. Never changes."""

    version: int = 0
    """Counts the publications of its registry."""
    extensions: Mapping[str, Extension] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    tasks: Mapping[str, TaskDefinition] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    documents: Mapping[str, Document[Any]] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    entries: Mapping[str, EntryKind[Any]] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    signals: Mapping[str, Signal[Any]] = msgspec.field(default_factory=lambda: MappingProxyType({}))

    def task(self, kind: str) -> TaskDefinition | None:
        """The code of a task kind, if an extension brings it."""
        return self.tasks.get(kind)

    def document(self, kind: str) -> Document[Any] | None:
        """A kind of document, if an extension brings it."""
        return self.documents.get(kind)

    def entry(self, kind: str) -> EntryKind[Any] | None:
        """A kind of entry, if an extension brings it."""
        return self.entries.get(kind)

    def signal(self, name: str) -> Signal[Any] | None:
        """A signal, if an extension brings it."""
        return self.signals.get(name)


class Registry:
    """Installed extensions, in the order of installation.

    Installing under a name that is there replaces that extension in its place, in one step: running work finishes on
    the code it took, the next phase, call and prompt take the new. What does not fit is refused as a whole, and
    nothing changes.
    """

    def __init__(self, extensions: Iterable[Extension] = ()) -> None:
        self._listeners: dict[object, Listener] = {}
        self._snapshot = Snapshot()
        for extension in extensions:
            self.install(extension)

    def __repr__(self) -> str:
        return f"Registry({list(self._snapshot.extensions)})"

    def install(self, extension: Extension) -> None:
        """Install or replace; freezes the extension. Raises `InvalidDefinition` and changes nothing if it clashes."""
        if not isinstance(extension, Extension):
            raise InvalidDefinition(f"not an extension: {extension!r}")
        self._publish({**self._snapshot.extensions, extension.name: extension})

    def uninstall(self, name: str) -> None:
        """Remove an extension. Conversations that name it go on without it until it is back.

        Raises `NotFound` if it is not installed.
        """
        if name not in self._snapshot.extensions:
            raise NotFound(f"no extension {name!r} is installed")
        self._publish({key: value for key, value in self._snapshot.extensions.items() if key != name})

    def snapshot(self) -> Snapshot:
        """What is installed now."""
        return self._snapshot

    def on_change(self, listener: Listener) -> Callable[[], None]:
        """Call back after each change, once the new snapshot is there; returns a function that stops it.

        A listener that raises keeps the others from nothing, and the change stands: its error comes out of `install`
        or `uninstall` at the end.
        """
        key = object()
        self._listeners[key] = listener

        def stop() -> None:
            self._listeners.pop(key, None)

        return stop

    def _publish(self, extensions: dict[str, Extension]) -> None:
        published = _checked(self._snapshot.version + 1, extensions)
        for extension in extensions.values():
            extension.freeze()
        self._snapshot = published
        failed: list[Exception] = []
        for listener in tuple(self._listeners.values()):
            try:
                listener()
            except Exception as error:
                failed.append(error)
        if failed:
            raise failed[0]


def _checked(version: int, extensions: dict[str, Extension]) -> Snapshot:
    tasks: dict[str, TaskDefinition] = {}
    documents: dict[str, Document[Any]] = {}
    entries: dict[str, EntryKind[Any]] = {}
    signals: dict[str, Signal[Any]] = {}
    owners: dict[tuple[str, str], str] = {}
    for extension in extensions.values():
        for what, into, found in (
            ("task kind", tasks, extension.tasks),
            ("document kind", documents, extension.documents),
            ("entry kind", entries, extension.entries),
            ("signal", signals, extension.signals),
        ):
            _merge(into, found, extension.name, what, owners)
    return Snapshot(
        version,
        MappingProxyType(extensions),
        MappingProxyType(tasks),
        MappingProxyType(documents),
        MappingProxyType(entries),
        MappingProxyType(signals),
    )


def _merge(
    into: dict[str, Any], found: Mapping[str, Any], extension: str, what: str, owners: dict[tuple[str, str], str]
) -> None:
    for name, thing in found.items():
        if into.setdefault(name, thing) is not thing:
            raise InvalidDefinition(
                f"extension {extension}: {what} {name!r} is taken by extension {owners[what, name]}",
                hint="what is stored under a kind must have one meaning",
            )
        owners.setdefault((what, name), extension)
