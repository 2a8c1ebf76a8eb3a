"""Extensions: named bundles of what an agent can do."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar, overload

from perdure.base.errors import InvalidDefinition
from perdure.extensions.decorators import HookDecorators
from perdure.extensions.hooks import (
    HOOK_POINTS,
    Hook,
    Section,
    SectionWrap,
    Wrap,
    check_callback,
    tool_filter,
    tool_name,
)
from perdure.extensions.names import check_extension_name, check_kind, check_section_name
from perdure.extensions.tool import Prepare, Replay, Tool
from perdure.session.documents import Document
from perdure.session.entries import EntryKind, entry_kind
from perdure.tasks.definition import TaskDefinition, task_definition
from perdure.tasks.signals import Signal

F = TypeVar("F", bound=Callable[..., Any])


class Extension(HookDecorators):
    """A bundle under one name. Decorators define and register; installing freezes it.

    Conversations store the name, never the code: after a restart they take whatever is installed under it.
    """

    def __init__(self, name: str, *, tasks: Iterable[Any] = (), signals: Iterable[Any] = ()) -> None:
        check_extension_name(name)
        self.name: Final = name
        self._tools: dict[str, Tool] = {}
        self._sections: dict[str, Section] = {}
        self._hooks: list[Hook] = []
        self._wraps: list[Wrap] = []
        self._section_wraps: list[SectionWrap] = []
        self._tasks: dict[str, TaskDefinition] = {}
        self._documents: dict[str, Document[Any]] = {}
        self._entries: dict[str, EntryKind[Any]] = {}
        self._signals: dict[str, Signal[Any]] = {}
        self._frozen = False
        # what others read: views, so that nothing gets in but through the checks
        self.tools: Final[Mapping[str, Tool]] = MappingProxyType(self._tools)
        self.sections: Final[Mapping[str, Section]] = MappingProxyType(self._sections)
        self.tasks: Final[Mapping[str, TaskDefinition]] = MappingProxyType(self._tasks)
        self.documents: Final[Mapping[str, Document[Any]]] = MappingProxyType(self._documents)
        self.entries: Final[Mapping[str, EntryKind[Any]]] = MappingProxyType(self._entries)
        self.signals: Final[Mapping[str, Signal[Any]]] = MappingProxyType(self._signals)
        self.add(*tasks, *signals)

    def __repr__(self) -> str:
        return f"Extension({self.name!r})"

    def freeze(self) -> None:
        """Refuse further changes, of its tools too (called when it is installed)."""
        self._frozen = True
        for tool in self._tools.values():
            tool.freeze()

    @property
    def hooks(self) -> tuple[Hook, ...]:
        """Its hooks, in the order of their definition."""
        return tuple(self._hooks)

    @property
    def wraps(self) -> tuple[Wrap, ...]:
        """Its wraps, innermost first."""
        return tuple(self._wraps)

    @property
    def section_wraps(self) -> tuple[SectionWrap, ...]:
        """Its wraps of sections, innermost first."""
        return tuple(self._section_wraps)

    def add(self, *things: Any) -> None:
        """Register tasks, signals, documents, entry kinds and tools that were defined elsewhere: all of them, or none.

        Adding the same thing again changes nothing. Raises `InvalidDefinition` for another of the same name.
        """
        self._check_open()
        found = [self._place(thing) for thing in things]
        added: dict[tuple[int, str], Any] = {}
        for where, name, thing, what in found:
            if added.setdefault((id(where), name), thing) is not thing:
                raise InvalidDefinition(f"{what} {name!r} is defined twice")
            _check_new(where, name, thing, what)
        for where, name, thing, _ in found:
            where[name] = thing

    def _place(self, thing: Any) -> tuple[dict[str, Any], str, Any, str]:
        """Where a thing goes, its name there, what is kept of it, and how errors call it."""
        here = f"extension {self.name}:"
        if isinstance(thing, Tool):
            return self._tools, thing.name, thing, f"{here} tool"
        if isinstance(thing, Document):
            check_kind(thing.kind, f"{here} document kind")
            return self._documents, thing.kind, thing, f"{here} document kind"
        if isinstance(thing, Signal):
            check_kind(thing.name, f"{here} signal")
            return self._signals, thing.name, thing, f"{here} signal"
        if hasattr(thing, "__perdure_task__"):
            definition = task_definition(thing)
            check_kind(definition.kind, f"{here} task kind")
            return self._tasks, definition.kind, definition, f"{here} task kind"
        if hasattr(thing, "__perdure_entry__"):
            kind = entry_kind(thing)
            check_kind(kind.kind, f"{here} entry kind")
            return self._entries, kind.kind, kind, f"{here} entry kind"
        raise InvalidDefinition(
            f"{here} cannot register {thing!r}", hint="tasks, signals, documents, entry kinds or tools"
        )

    @overload
    def tool(self, function: Callable[..., Any], /) -> Tool: ...
    @overload
    def tool(
        self,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        replay: Replay = "unsafe",
        blocking: bool = False,
        sequential: bool = False,
        prepare_arguments: Prepare | None = None,
    ) -> Callable[[Callable[..., Any]], Tool]: ...
    def tool(self, function: Any = None, /, **options: Any) -> Any:
        """Decorator: a function whose first parameter is the context becomes a tool.

        Its schema comes from the signature, its description from the docstring. See `Tool` for the options.
        """
        self._check_open()

        def define(decorated: Callable[..., Any]) -> Tool:
            made = Tool(decorated, **options)
            self.add(made)
            return made

        return define if function is None else define(function)

    def section(self, name: str) -> Callable[[F], F]:
        """Decorator: `async (ctx) -> str | None` renders a part of the system prompt before each request."""
        self._check_open()
        what = f"extension {self.name}: section"
        check_section_name(name, f"{what} name")

        def define(function: F) -> F:
            self._check_open()
            check_callback(function, "ctx", f"{what} {name}")
            section = Section(name, function, self.name)
            _check_new(self._sections, name, section, what)
            self._sections[name] = section
            return function

        return define

    def wrap_tool(self, tool: str | Tool) -> Callable[[F], F]:
        """Decorator: `async (ctx, args, call_next)` runs around whichever tool of that name wins. It never parks."""
        self._check_open()
        name = tool_name(tool, f"extension {self.name}: wrap_tool")

        def define(function: F) -> F:
            self._check_open()
            check_callback(function, "ctx, args, call_next", f"extension {self.name}: wrap of {name}")
            self._wraps.append(Wrap(name, function, self.name))
            return function

        return define

    def wrap_section(self, name: str) -> Callable[[F], F]:
        """Decorator: `async (ctx, call_next) -> str | None` renders around whichever section of that name wins;
        `await call_next()` gives what it renders."""
        self._check_open()
        what = f"extension {self.name}: wrap_section"
        check_section_name(name, f"{what} name")

        def define(function: F) -> F:
            self._check_open()
            check_callback(function, "ctx, call_next", f"{what} {name}")
            self._section_wraps.append(SectionWrap(name, function, self.name))
            return function

        return define

    def hook(self, point: str, *, tools: Iterable[str | Tool] | None = None) -> Callable[[F], F]:
        """Decorator: register `async (ctx, subject)` at a hook point. `tools` limits it to calls of these tools."""
        self._check_open()
        if point not in HOOK_POINTS:
            raise InvalidDefinition(
                f"extension {self.name}: no hook point {point!r}", hint=f"hook points: {', '.join(HOOK_POINTS)}"
            )
        what = f"extension {self.name}: {point} hook"
        names = tool_filter(point, tools, what)

        def define(function: F) -> F:
            self._check_open()
            check_callback(function, "ctx, subject", what)
            self._hooks.append(Hook(point, function, names, self.name))
            return function

        return define

    def _check_open(self) -> None:
        if self._frozen:
            raise InvalidDefinition(
                f"extension {self.name} is installed and cannot change", hint="build a new one and install that"
            )


def _check_new(where: Mapping[str, Any], name: str, thing: Any, what: str) -> None:
    if where.get(name, thing) is not thing:
        raise InvalidDefinition(f"{what} {name!r} is defined twice")
