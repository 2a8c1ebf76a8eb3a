"""From stored names to the code of one conversation's agent. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from perdure.base.errors import InvalidValue
from perdure.extensions.extension import Extension
from perdure.extensions.hooks import Hook, Section, Wrap
from perdure.extensions.registry import Snapshot
from perdure.extensions.results import Changed
from perdure.extensions.tool import Tool


class ResolvedTool(msgspec.Struct, frozen=True):
    """A tool and what wraps it, innermost first."""

    tool: Tool
    wraps: tuple[Wrap, ...] = ()


class Resolved(msgspec.Struct, frozen=True):
    """What a selection of names means now."""

    extensions: tuple[str, ...]
    tools: dict[str, ResolvedTool]
    sections: tuple[Section, ...]
    hooks: dict[str, tuple[Hook, ...]]
    unknown: tuple[str, ...]
    """Selected names that are not installed: skipped, never erased."""

    def hooks_at(self, point: str) -> tuple[Hook, ...]:
        """The hooks at a point, in the order of the extensions."""
        return self.hooks.get(point, ())


def stored_selection(value: Any, what: str) -> Any:
    """A selection as it is stored: a list is exact, an edit becomes an object. A single text is refused, and so is
    adding tools: every tool of the selected extensions is on offer. Raises `InvalidValue`."""
    if isinstance(value, str):
        edits = f"Remove({value!r})" if what == "tools" else f"Add({value!r}) or Remove({value!r})"
        raise InvalidValue(f"{what} is a list of names, not one text", hint=f"[{value!r}], {edits}")
    if isinstance(value, Changed):
        if what == "tools" and value.kind == "add":
            raise InvalidValue("tools cannot be added by themselves", hint="add the extension that brings them")
        return {value.kind: _names(value.names, what)}
    if not isinstance(value, Iterable) or isinstance(value, bytes | Mapping):
        raise InvalidValue(f"{what} is a list of names, not {type(value).__name__}")
    return _names(value, what)


def _names(items: Iterable[Any], what: str) -> list[str]:
    """Each name once, in order; an extension or a tool stands for its name."""
    names = [getattr(item, "name", item) for item in items]
    if not all(isinstance(name, str) and name for name in names):
        raise InvalidValue(f"{what} is a list of names")
    return list(dict.fromkeys(names))


def selected(stored: Any, default: list[str]) -> list[str]:
    """The names that a stored selection means, given the default."""
    if stored is None:
        return default
    if isinstance(stored, list):
        return stored
    added = [name for name in stored.get("add", ()) if name not in default]
    removed = set(stored.get("remove", ()))
    return [name for name in [*default, *added] if name not in removed]


def resolve(snapshot: Snapshot, extensions: Any, tools: Any, default: list[str] | None) -> Resolved:
    """Names to code: a later tool or section of a name replaces an earlier one in its place, then wraps apply, then the
    filter."""
    names = selected(extensions, list(snapshot.extensions) if default is None else list(dict.fromkeys(default)))
    found = [snapshot.extensions[name] for name in names if name in snapshot.extensions]
    offered = _tools(found)
    wanted = selected(tools, list(offered))
    hooks: dict[str, list[Hook]] = {}
    sections: dict[str, Section] = {}
    for extension in found:
        sections.update(extension.sections)
        for hook in extension.hooks:
            hooks.setdefault(hook.point, []).append(hook)
    for wrap in (wrap for extension in found for wrap in extension.section_wraps):
        if wrap.section in sections:
            sections[wrap.section] = wrap.around(sections[wrap.section])
    unknown = [name for name in names if name not in snapshot.extensions]
    unknown += [name for name in wanted if name not in offered]
    return Resolved(
        tuple(extension.name for extension in found),
        {name: offered[name] for name in wanted if name in offered},
        tuple(sections.values()),
        {point: tuple(members) for point, members in hooks.items()},
        tuple(unknown),
    )


def _tools(extensions: list[Extension]) -> dict[str, ResolvedTool]:
    tools: dict[str, Tool] = {}
    wraps: dict[str, list[Wrap]] = {}
    for extension in extensions:
        tools.update(extension.tools)
        for wrap in extension.wraps:
            wraps.setdefault(wrap.tool, []).append(wrap)
    return {name: ResolvedTool(tool, tuple(wraps.get(name, ()))) for name, tool in tools.items()}
