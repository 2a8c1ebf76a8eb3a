"""From a function's signature to the JSON Schema that models read, and back from arguments to typed values."""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, get_args, get_origin, get_type_hints

import msgspec

from perdure.base.errors import InvalidDefinition, InvalidValue
from perdure.base.typed import Codec, codec

_ARGS: Final = re.compile(r"^(?:Args|Arguments|Parameters):\s*$", re.MULTILINE)
_SECTION: Final = re.compile(r"^[A-Z][A-Za-z ]+:\s*$", re.MULTILINE)
_ITEM: Final = re.compile(r"^(\*{0,2}\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")


@dataclass(frozen=True)
class Parameter:
    """One parameter of a tool."""

    name: str
    codec: Codec[Any]
    required: bool
    default: Any


@dataclass(frozen=True)
class Signature:
    """A tool's parameters, what it returns, and the schema of its arguments."""

    parameters: dict[str, Parameter]
    returns: Any
    schema: dict[str, Any]
    description: str

    def decode(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Arguments as typed keyword arguments. Raises `InvalidValue` with the path of what does not fit."""
        unknown = [name for name in arguments if name not in self.parameters]
        if unknown:
            known = ", ".join(self.parameters) or "none"
            raise InvalidValue(f"no parameter {unknown[0]!r}", path=f"/{unknown[0]}", hint=f"parameters: {known}")
        missing = [p.name for p in self.parameters.values() if p.required and p.name not in arguments]
        if missing:
            raise InvalidValue(f"the parameter {missing[0]!r} is missing", path=f"/{missing[0]}")
        decoded = {}
        for name, value in arguments.items():
            try:
                decoded[name] = self.parameters[name].codec.from_json(value)
            except InvalidValue as error:
                raise InvalidValue(error.what.rsplit(" at ", 1)[0], path=f"/{name}{error.path}") from error
        return decoded


def read_signature(function: Callable[..., Any], tool: str) -> Signature:
    """The signature of a tool's function. Raises `InvalidDefinition` naming tool and parameter."""
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or parameters[0].kind not in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    ):
        raise InvalidDefinition(f"tool {tool}: its first parameter is the context")
    context, *rest = parameters
    hints = _hints(function, context.name, tool)
    description, documented = _docstring(function.__doc__ or "")
    unknown = documented.keys() - {parameter.name for parameter in rest}
    if unknown:
        raise InvalidDefinition(
            f"tool {tool}: its docstring describes parameters it does not have: {', '.join(unknown)}"
        )
    found = {p.name: _parameter(p, hints, tool) for p in rest}
    schema = _schema(found, hints, documented)
    return Signature(found, hints.get("return"), schema, description)


def _hints(function: Any, context: str, tool: str) -> dict[str, Any]:
    wanted = {name: hint for name, hint in function.__annotations__.items() if name not in (context, "return")}
    returns = function.__annotations__.get("return")
    stand_in = type("stand_in", (), {"__annotations__": wanted, "__module__": function.__module__})
    local = dict(zip(function.__code__.co_freevars, _cells(function), strict=False)) if function.__closure__ else {}
    try:
        hints = get_type_hints(stand_in, globalns=function.__globals__, localns=local, include_extras=True)
    except (NameError, TypeError) as error:
        raise InvalidDefinition(f"tool {tool}: an annotation cannot be resolved: {error}") from error
    hints["return"] = _return_hint(returns, function)
    return hints


def _cells(function: Any) -> list[Any]:
    found = []
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:
            found.append(Any)
    return found


def _return_hint(returns: Any, function: Any) -> Any:
    """The type of an ordinary return value; parks and plain text need none."""
    if isinstance(returns, str):
        try:
            stand_in = type("stand_in", (), {"__annotations__": {"r": returns}, "__module__": function.__module__})
            returns = get_type_hints(stand_in, globalns=function.__globals__, include_extras=True)["r"]
        except (NameError, TypeError):
            return None
    members = get_args(returns) if get_origin(returns) not in (list, dict, tuple) else ()
    if members and (str(get_origin(returns)) in ("<class 'types.UnionType'>", "typing.Union")):
        typed = [
            m
            for m in members
            if getattr(m, "__module__", "") != "perdure.extensions.results" and m not in (str, type(None))
        ]
        typed = [m for m in typed if getattr(get_origin(m), "__module__", "") != "perdure.extensions.results"]
        return typed[0] if len(typed) == 1 else None
    if returns in (str, None, type(None), inspect.Signature.empty):
        return None
    return returns


def _parameter(parameter: inspect.Parameter, hints: dict[str, Any], tool: str) -> Parameter:
    where = f"tool {tool}, parameter {parameter.name}"
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
        raise InvalidDefinition(
            f"{where}: a model gives arguments by name; *args, **kwargs and positional-only cannot be"
        )
    if parameter.name not in hints:
        raise InvalidDefinition(f"{where}: it has no annotation", hint="a model must know the type")
    made = codec(hints[parameter.name], where=parameter.name)
    required = parameter.default is parameter.empty
    if not required:
        try:
            made.to_json(parameter.default)
        except InvalidValue as error:
            raise InvalidDefinition(f"{where}: its default does not fit its type: {error}") from error
    return Parameter(parameter.name, made, required, None if required else parameter.default)


def _schema(found: dict[str, Parameter], hints: dict[str, Any], documented: dict[str, str]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    definitions: dict[str, Any] = {}
    for name, parameter in found.items():
        schema = parameter.codec.schema()
        definitions.update(schema.pop("$defs", {}))
        described = _described(hints[name]) or documented.get(name)
        if described:
            schema = {**schema, "description": described}
        if not parameter.required:
            schema = {**schema, "default": parameter.codec.to_json(parameter.default)}
        properties[name] = schema
    whole: dict[str, Any] = {"type": "object", "properties": properties}
    required = [name for name, parameter in found.items() if parameter.required]
    if required:
        whole["required"] = required
    whole["additionalProperties"] = False
    if definitions:
        whole["$defs"] = definitions
    return whole


def _described(hint: Any) -> str | None:
    """The description in an Annotated type: a text, a msgspec Meta, or a pydantic Field."""
    for extra in getattr(hint, "__metadata__", ()):
        if isinstance(extra, str):
            return extra
        if isinstance(extra, msgspec.Meta) and extra.description:
            return extra.description
        described = getattr(extra, "description", None)
        if isinstance(described, str) and described:
            return described
    return None


def _docstring(doc: str) -> tuple[str, dict[str, str]]:
    """The description before `Args:`, and the described parameters."""
    text = inspect.cleandoc(doc)
    match = _ARGS.search(text)
    if match is None:
        first = _SECTION.search(text)
        return (text[: first.start()] if first else text).strip(), {}
    documented: dict[str, str] = {}
    name = ""
    for line in text[match.end() :].splitlines():
        if line and not line[0].isspace():
            break
        item = _ITEM.match(line.strip()) if line.startswith("    ") and not line.startswith("     ") else None
        if item:
            name = item[1].lstrip("*")
            documented[name] = item[2].strip()
        elif name and line.strip():
            documented[name] += " " + line.strip()
    return text[: match.start()].strip(), documented
