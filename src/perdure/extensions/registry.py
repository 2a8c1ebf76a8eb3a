"""The registry: which extensions are installed. It may change while everything runs."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from perdure.base.errors import InvalidDefinition, NotFound
from perdure.extensions.extension import Extension
from perdure.session.documents import Document
from perdure.tasks.definition import TaskDefinition


@dataclass(frozen=True)
class Snapshot:
    """The installed extensions at one moment, in order. Never changes."""

    version: int
    extensions: dict[str, Extension]
    tasks: dict[str, TaskDefinition]
    documents: dict[str, Document[Any]]

    def task(self, kind: str) -> TaskDefinition | None:
        """The code of a task kind, if an extension brings it."""
        return self.tasks.get(kind)


class Registry:
    """Installed extensions, in the order of installation.

    Installing under a name that is there replaces that extension in its place, in one step: running work finishes on
    the code it took, the next phase, call and prompt take the new. What does not fit is refused as a whole.
    """

    def __init__(self, extensions: Iterable[Extension] = ()) -> None:
        self._listeners: list[Callable[[], None]] = []
        self._snapshot = Snapshot(0, {}, {}, {})
        for extension in extensions:
            self.install(extension)

    def install(self, extension: Extension) -> None:
        """Install or replace; freezes the extension. Raises `InvalidDefinition` and changes nothing if it clashes."""
        if not isinstance(extension, Extension):
            raise InvalidDefinition(f"not an extension: {extension!r}")
        self._publish({**self._snapshot.extensions, extension.name: extension})
        extension.freeze()

    def uninstall(self, name: str) -> None:
        """Remove an extension. Conversations that name it go on without it until it is back."""
        if name not in self._snapshot.extensions:
            raise NotFound(f"no extension {name!r} is installed")
        self._publish({key: value for key, value in self._snapshot.extensions.items() if key != name})

    def snapshot(self) -> Snapshot:
        """What is installed now."""
        return self._snapshot

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call back after each change; returns a function that stops it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def _publish(self, extensions: dict[str, Extension]) -> None:
        tasks: dict[str, TaskDefinition] = {}
        documents: dict[str, Document[Any]] = {}
        for extension in extensions.values():
            _merge(tasks, extension.tasks, extension, "task kind")
            _merge(documents, extension.documents, extension, "document kind")
        self._snapshot = Snapshot(self._snapshot.version + 1, extensions, tasks, documents)
        for listener in tuple(self._listeners):
            listener()


def _merge(into: dict[str, Any], found: dict[str, Any], extension: Extension, what: str) -> None:
    for name, thing in found.items():
        if name.startswith("perdure."):
            raise InvalidDefinition(f"extension {extension.name}: {what} {name!r} uses the reserved prefix 'perdure.'")
        if name in into and into[name] is not thing:
            raise InvalidDefinition(f"extension {extension.name}: {what} {name!r} is taken by another extension")
        into[name] = thing
