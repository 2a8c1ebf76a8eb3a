"""JSON Schema for reports and gates: the keywords that are enforced. Any other is refused before anything runs, since
a schema that would not constrain must fail loudly. Nothing is converted."""

from typing import Any, Final

from perdure.base import jsonvalue

TYPES: Final[dict[str, tuple[type, ...]]] = {
    "object": (dict,), "array": (list,), "string": (str,), "boolean": (bool,), "null": (type(None),),
    "number": (int, float), "integer": (int,),
}  # fmt: skip
NOTES: Final = ("title", "description", "default", "examples", "$schema", "$comment")
"""Keywords that constrain nothing and are meant to."""
KEYWORDS: Final = ("type", "enum", "const", "items", "properties", "required", "additionalProperties")


def check_schema(schema: Any, path: str = "") -> list[str]:
    """What is wrong with a schema, each with its path; empty if all of it will be enforced."""
    if isinstance(schema, bool):
        return []
    if not isinstance(schema, dict):
        return [f"{path or '/'}: a schema is an object or a boolean"]
    problems = [
        f"{path}/{jsonvalue.escape(str(key))}: this keyword is not enforced"
        for key in schema
        if key not in KEYWORDS and key not in NOTES
    ]
    kinds = schema.get("type")
    if kinds == []:
        problems.append(f"{path}/type: a type, or a list with types")
    for kind in kinds if isinstance(kinds, list) else [kinds] if "type" in schema else []:
        if not isinstance(kind, str) or kind not in TYPES:
            problems.append(f"{path}/type: no such type: {kind!r:.100}")
    if "enum" in schema and (not isinstance(schema["enum"], list) or not schema["enum"]):
        problems.append(f"{path}/enum: a list with values")
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        problems.append(f"{path}/required: a list of names")
    properties = schema.get("properties", {})
    if not isinstance(properties, dict):
        problems.append(f"{path}/properties: an object of schemas")
    else:
        for name, inner in properties.items():
            problems += check_schema(inner, f"{path}/properties/{jsonvalue.escape(str(name))}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            problems += check_schema(schema[key], f"{path}/{key}")
    return problems


def check_value(schema: Any, value: Any, path: str = "") -> list[str]:
    """How a value breaks the schema, each with its path; empty if it fits."""
    where = path or "/"
    if isinstance(schema, bool):
        return [] if schema else [f"{where}: nothing may stand here"]
    kinds = schema.get("type")
    allowed = kinds if isinstance(kinds, list) else [] if kinds is None else [kinds]
    if allowed and not any(_is(kind, value) for kind in allowed):
        return [f"{where}: {_kind_of(value)} where {' or '.join(allowed)} is wanted"]
    problems = []
    if "enum" in schema and not any(_same(value, one) for one in schema["enum"]):
        problems.append(f"{where}: none of {schema['enum']!r:.200}")
    if "const" in schema and not _same(value, schema["const"]):
        problems.append(f"{where}: not {schema['const']!r:.200}")
    if isinstance(value, list) and "items" in schema:
        for number, item in enumerate(value):
            problems += check_value(schema["items"], item, f"{path}/{number}")
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        problems += [
            f"{path}/{jsonvalue.escape(name)}: is missing" for name in schema.get("required", []) if name not in value
        ]
        for name, item in value.items():
            here = f"{path}/{jsonvalue.escape(name)}"
            inner = properties.get(name, schema.get("additionalProperties", True))
            if inner is False:
                problems.append(f"{here}: is not known")
            else:
                problems += check_value(inner, item, here)
    return problems


def _is(kind: str, value: Any) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, TYPES[kind])


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON: 1 and 1.0 are, 1 and true are not, however deep they lie."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _kind_of(value: Any) -> str:
    return next((kind for kind in TYPES if _is(kind, value)), type(value).__name__)
