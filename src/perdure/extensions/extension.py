"""Extensions: named bundles of what an agent can do."""

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar, overload

from perdure.base.errors import InvalidDefinition
from perdure.extensions.hooks import HOOK_POINTS, Hook, Section, Wrap, check_callback
from perdure.extensions.tool import Replay, Tool
from perdure.session.documents import Document
from perdure.session.entries import EntryKind, entry_kind
from perdure.tasks.definition import TaskDefinition, task_definition

F = TypeVar("F", bound=Callable[..., Any])

SECTION_NAME_LENGTH: Final = 64


class Extension:
    """A bundle under one name. Decorators define and register; installing freezes it.

    Conversations store the name, never the code: after a restart they take whatever is installed under it.
    """

    def __init__(self, name: str, *, tasks: Iterable[Any] = (), signals: Iterable[Any] = ()) -> None:
        check_extension_name(name)
        self.name = name
        self.tools: dict[str, Tool] = {}
        self.sections: dict[str, Section] = {}
        self.hooks: list[Hook] = []
        self.wraps: list[Wrap] = []
        self.tasks: dict[str, TaskDefinition] = {}
        self.documents: dict[str, Document[Any]] = {}
        self.entries: dict[str, EntryKind[Any]] = {}
        self._frozen = False
        self.add(*tasks, *signals)

    def __repr__(self) -> str:
        return f"Extension({self.name!r})"

    def freeze(self) -> None:
        """Refuse further changes (called when it is installed)."""
        self._frozen = True

    def add(self, *things: Any) -> None:
        """Register tasks, documents, entry kinds and tools that were defined elsewhere."""
        self._check_open()
        for thing in things:
            if isinstance(thing, Tool):
                _add(self.tools, thing.name, thing, f"extension {self.name}: tool")
            elif isinstance(thing, Document):
                _add(self.documents, thing.kind, thing, f"extension {self.name}: document")
            elif hasattr(thing, "__perdure_task__"):
                definition = task_definition(thing)
                _add(self.tasks, definition.kind, definition, f"extension {self.name}: task")
            elif hasattr(thing, "__perdure_entry__"):
                kind = entry_kind(thing)
                _add(self.entries, kind.kind, kind, f"extension {self.name}: entry kind")
            else:
                raise InvalidDefinition(
                    f"extension {self.name}: cannot register {thing!r}", hint="tasks, documents, entry kinds or tools"
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
        prepare_arguments: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
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
        check_section_name(name, self.name)

        def define(function: F) -> F:
            check_callback(function, 1, f"extension {self.name}: section {name}")
            _add(self.sections, name, Section(name, function, self.name), f"extension {self.name}: section")
            return function

        return define

    def wrap_tool(self, tool: str) -> Callable[[F], F]:
        """Decorator: `async (ctx, args, call_next)` runs around whichever tool of that name wins. It never parks."""
        self._check_open()

        def define(function: F) -> F:
            check_callback(function, 3, f"extension {self.name}: wrap of {tool}")
            self.wraps.append(Wrap(tool, function, self.name))
            return function

        return define

    def hook(self, point: str, *, tools: Iterable[str] | None = None) -> Callable[[F], F]:
        """Decorator: register `async (ctx, subject)` at a hook point. `tools` limits it to calls of these tools."""
        self._check_open()
        if point not in HOOK_POINTS:
            raise InvalidDefinition(f"no hook point {point!r}", hint=f"hook points: {', '.join(HOOK_POINTS)}")
        if isinstance(tools, str):
            raise InvalidDefinition(f"extension {self.name}: tools is a list of names, not one text")
        names = None if tools is None else frozenset(tools)

        def define(function: F) -> F:
            check_callback(function, 2, f"extension {self.name}: {point} hook")
            self.hooks.append(Hook(point, function, names, self.name))
            return function

        return define

    @overload
    def before_tool(self, function: F, /) -> F: ...
    @overload
    def before_tool(self, /, *, tools: Iterable[str] | None = None) -> Callable[[F], F]: ...
    def before_tool(self, function: Any = None, /, *, tools: Iterable[str] | None = None) -> Any:
        """Decorator: asked before a call runs. May return the call with replaced arguments, `Block`, or `Sleep`."""
        define = self.hook("before_tool", tools=tools)
        return define if function is None else define(function)

    @overload
    def after_tool(self, function: F, /) -> F: ...
    @overload
    def after_tool(self, /, *, tools: Iterable[str] | None = None) -> Callable[[F], F]: ...
    def after_tool(self, function: Any = None, /, *, tools: Iterable[str] | None = None) -> Any:
        """Decorator: sees every result that a call writes; may return a replaced one."""
        define = self.hook("after_tool", tools=tools)
        return define if function is None else define(function)

    @overload
    def on_abort(self, function: F, /) -> F: ...
    @overload
    def on_abort(self, /, *, tools: Iterable[str] | None = None) -> Callable[[F], F]: ...
    def on_abort(self, function: Any = None, /, *, tools: Iterable[str] | None = None) -> Any:
        """Decorator: sees the result of a call that was stopped; may return a replaced one."""
        define = self.hook("on_abort", tools=tools)
        return define if function is None else define(function)

    def before_request(self, function: F, /) -> F:
        """Decorator: sees the messages of a request; may return others, for this request only."""
        return self.hook("before_request")(function)

    def after_response(self, function: F, /) -> F:
        """Decorator: observes every response."""
        return self.hook("after_response")(function)

    def _check_open(self) -> None:
        if self._frozen:
            raise InvalidDefinition(
                f"extension {self.name} is installed and cannot change", hint="build a new one and install that"
            )


def check_section_name(name: Any, extension: str) -> None:
    """Refuse a name that could not be stored, or not be read in a list of names."""
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= SECTION_NAME_LENGTH:
        raise InvalidDefinition(f"extension {extension}: not a section name: {name!r}", hint="1 to 64 characters")


def check_extension_name(name: Any) -> None:
    """Refuse names that could be mistaken for something else in a path, a log or a document."""
    from_ = "abcdefghijklmnopqrstuvwxyz0123456789_-."
    if not isinstance(name, str) or not 0 < len(name) <= 64 or not set(name) <= set(from_) or not name[0].isalpha():
        raise InvalidDefinition(f"not an extension name: {name!r}", hint="lower-case letters, digits, _, - and .")


def _add(where: dict[str, Any], name: str, thing: Any, what: str) -> None:
    if name in where and where[name] is not thing:
        raise InvalidDefinition(f"{what} {name!r} is defined twice")
    where[name] = thing
