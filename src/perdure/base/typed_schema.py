"""JSON Schemas with all their definitions at the root."""

from collections.abc import Callable
from typing import Any

import msgspec

ANYTHING: dict[str, Any] = {"$anything": True}
"""A schema without a word in it, for msgspec, which takes an empty one for none; it goes at the end."""
_ANYTHING = "$anything"
_DEFS = "#/$defs/"
_DATA = ("default", "examples", "enum", "const", "example", "discriminator", "required")
"""Keywords whose values are data, not schemas."""
_NAMED = ("properties", "patternProperties", "$defs")
"""Keywords whose values map names to schemas."""


def merged(type_: Any, custom: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    """The schema of a type, where `custom` gives the schemas of classes that msgspec does not know."""
    gathered = _Gathered()
    (schema,), definitions = msgspec.json.schema_components(
        (type_,), ref_template="#/$defs/{name}", schema_hook=lambda cls: gathered.taken(custom(cls))
    )
    return finished(gathered.placed(schema, definitions))


def combined(schemas: dict[str, dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Whole schemas by name without their definitions, and all their definitions: equal names that mean different
    things are told apart."""
    gathered = _Gathered()
    properties = {name: gathered.taken(dict(schema)) for name, schema in schemas.items()}
    placed = gathered.placed({"properties": properties}, {})
    return placed["properties"], placed["$defs"]


class _Gathered:
    """Definitions of schemas that were made apart from each other; equal names may mean different things."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[str, dict[str, Any]]] = {}

    def taken(self, schema: dict[str, Any]) -> dict[str, Any]:
        """The schema without its definitions, referring to them by provisional names."""
        definitions: dict[str, Any] = schema.pop("$defs", {})
        names: dict[str, str] = {}
        for name, definition in definitions.items():
            provisional = f"{len(self._found)}@{name}"
            self._found[provisional] = (name, definition)
            names[name] = provisional
        for provisional in names.values():
            name, definition = self._found[provisional]
            self._found[provisional] = (name, _renamed(definition, names))
        renamed: dict[str, Any] = _renamed(schema, names)
        return renamed

    def placed(self, schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
        """The whole, each definition under a name of its own. The same definition met twice is kept once."""
        placed = dict(definitions)
        names: dict[str, str] = {}
        meant: dict[str, Any] = {}
        for provisional, (name, definition) in self._found.items():
            final, count = name, 1
            stripped = _renamed(definition, {other: self._found[other][0] for other in self._found})
            while final in placed and meant.get(final) != stripped:
                count += 1
                final = f"{name}_{count}"
            names[provisional] = final
            placed[final] = definition
            meant[final] = stripped
        return {**_renamed(schema, names), "$defs": {name: _renamed(inner, names) for name, inner in placed.items()}}


def _renamed(node: Any, names: dict[str, str]) -> Any:
    if isinstance(node, list):
        return [_renamed(item, names) for item in node]
    if not isinstance(node, dict):
        return node
    renamed = _each(node, lambda inner: _renamed(inner, names))
    if "$ref" in node:
        renamed["$ref"] = _renamed_target(node["$ref"], names)
    if "discriminator" in node:
        mapping = node["discriminator"].get("mapping", {})
        targets = {tag: _renamed_target(target, names) for tag, target in mapping.items()}
        renamed["discriminator"] = {**node["discriminator"], "mapping": targets}
    return renamed


def _renamed_target(target: str, names: dict[str, str]) -> str:
    name = target.removeprefix(_DEFS)
    return _DEFS + names[name] if target.startswith(_DEFS) and name in names else target


def _each(node: dict[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """The schema with its inner schemas changed: names of properties are no keywords, defaults and enums are data."""
    changed = {}
    for key, item in node.items():
        if key in _NAMED and isinstance(item, dict):
            changed[key] = {name: change(inner) for name, inner in item.items()}
        else:
            changed[key] = item if key in _DATA else change(item)
    return changed


def finished(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema as readers want it: a root that only refers is written out unless it contains itself, objects with
    known fields say that they take no others, and empty `$defs` go."""
    definitions: dict[str, Any] = schema.pop("$defs", {})
    target = schema.get("$ref")
    if isinstance(target, str) and target.startswith(_DEFS):
        name = target.removeprefix(_DEFS)
        others = {other: inner for other, inner in definitions.items() if other != name}
        siblings = {key: item for key, item in schema.items() if key != "$ref"}
        if not _refers([*others.values(), definitions[name]], target):
            schema, definitions = {**definitions[name], **siblings}, others
        else:
            schema = {**definitions[name], **siblings}
    if definitions:
        schema = {**schema, "$defs": definitions}
    closed: dict[str, Any] = _closed(schema)
    return closed


def _refers(node: Any, target: str) -> bool:
    if isinstance(node, dict):
        return node.get("$ref") == target or any(_refers(item, target) for item in node.values())
    return isinstance(node, list) and any(_refers(item, target) for item in node)


def _closed(node: Any) -> Any:
    if isinstance(node, list):
        return [_closed(item) for item in node]
    if not isinstance(node, dict):
        return node
    closed = _each(node, _closed)
    closed.pop(_ANYTHING, None)
    if node.get("type") == "object" and isinstance(node.get("properties"), dict):
        closed.setdefault("additionalProperties", False)
    return closed
