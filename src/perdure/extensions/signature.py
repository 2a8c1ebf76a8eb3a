"""From a function's signature to the JSON Schema that models read, and back from arguments to typed values."""

import functools
import inspect
import operator
import sys
from collections.abc import Callable
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Never, NoReturn, Union, get_args, get_origin, get_type_hints

import msgspec

from perdure.base import jsonvalue
from perdure.base.errors import InvalidDefinition, InvalidValue
from perdure.base.typed import Codec, codec
from perdure.base.typed_schema import combined
from perdure.extensions.docstring import UnreadableDocstring, read_docstring
from perdure.extensions.results import Sleep, ToolResult, Wait

_TEXT_OR_PARK: Final = (str, None, NoneType, Never, NoReturn, ToolResult, Sleep, Wait)
"""What a tool returns that is no typed value of its own."""


class Parameter(msgspec.Struct, frozen=True):
    """One parameter of a tool, as models give it."""

    name: str
    codec: Codec[Any]
    required: bool
    default: Any


class Signature(msgspec.Struct, frozen=True):
    """A tool's parameters, what it returns, and the schema of its arguments.

    `returns` is the type of an ordinary value, which goes out as JSON; None where there is none beside text, results
    and parks.
    """

    parameters: dict[str, Parameter]
    returns: Any
    schema: dict[str, Any]
    description: str

    def decode(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Arguments as typed keyword arguments; what is left out is left to the function's defaults.

        Raises `InvalidValue` with the path of what does not fit. Nothing is converted, unknown names are refused.
        """
        if not isinstance(arguments, dict):
            raise InvalidValue(f"arguments are an object, not {type(arguments).__name__}")
        for name in arguments:
            if name not in self.parameters:
                known = ", ".join(self.parameters) or "none"
                raise InvalidValue(
                    f"no parameter {name!r}", path=f"/{jsonvalue.escape(str(name))}", hint=f"parameters: {known}"
                )
        for parameter in self.parameters.values():
            if parameter.required and parameter.name not in arguments:
                raise InvalidValue(f"the parameter {parameter.name!r} is missing", path=f"/{parameter.name}")
        return {name: _decoded(self.parameters[name], value) for name, value in arguments.items()}


def _decoded(parameter: Parameter, value: Any) -> Any:
    try:
        return parameter.codec.from_json(value)
    except InvalidValue as error:
        raise InvalidValue(error.fault, path=f"/{parameter.name}{error.path}", hint=error.hint) from error


def read_signature(function: Callable[..., Any], tool: str) -> Signature:
    """The signature of a tool's function. Raises `InvalidDefinition` naming tool and parameter."""
    context, *rest = _parameters(function, tool)
    plain = inspect.unwrap(function)
    hints = {p.name: _hint(p.annotation, plain, f"tool {tool}, parameter {p.name}") for p in rest}
    try:
        description, documented = read_docstring(function.__doc__)
    except UnreadableDocstring as error:
        raise InvalidDefinition(f"tool {tool}: {error}") from error
    unknown = documented.keys() - {context.name, *hints}
    if unknown:
        raise InvalidDefinition(
            f"tool {tool}: its docstring describes parameters it does not have: {', '.join(sorted(unknown))}"
        )
    found = {p.name: _parameter(p, hints[p.name], tool) for p in rest}
    returns = _returns(plain, tool)
    return Signature(found, returns, _schema(found, hints, documented, tool), description)


_NO_CONTEXT: Final = (str, int, float, bool, list, dict, "str", "int", "float", "bool", "list", "dict")
"""What a context is never annotated with: whoever writes that has left the context out."""


def _parameters(function: Callable[..., Any], tool: str) -> list[inspect.Parameter]:
    parameters = list(signature_of(function).parameters.values())
    if not parameters or parameters[0].kind not in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    ):
        raise InvalidDefinition(f"tool {tool}: its first parameter is the context", hint="def name(ctx, …)")
    first = parameters[0]
    if first.annotation in _NO_CONTEXT:  # looked at, not evaluated: it may name what is not there at run time
        raise InvalidDefinition(
            f"tool {tool}: its first parameter is the context, so {first.name!r} would never be given by a model",
            hint=f"def {tool}(ctx, {first.name}: …)",
        )
    for p in parameters[1:]:
        where = f"tool {tool}, parameter {p.name}"
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.POSITIONAL_ONLY):
            raise InvalidDefinition(
                f"{where}: a model gives arguments by name; *args, **kwargs and positional-only cannot be"
            )
        if p.annotation is p.empty:
            raise InvalidDefinition(f"{where}: it has no annotation", hint="a model must know the type")
    return parameters


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """The signature without evaluating an annotation: the context's may name what exists for type checkers only."""
    if sys.version_info >= (3, 14):  # annotations are evaluated when they are asked for; 3 leaves unknown names alone
        lenient: Any = functools.partial(inspect.signature, annotation_format=3)
        return lenient(function)
    return inspect.signature(function)


def _hint(annotation: Any, function: Any, where: str) -> Any:
    """An annotation with its names looked up where the function was defined."""
    held = type("held", (), {"__annotations__": {"it": annotation}})
    names = getattr(function, "__globals__", {})
    try:
        return get_type_hints(held, globalns=names, localns=_enclosing(function), include_extras=True)["it"]
    except Exception as error:  # annotations are code: they may raise anything
        raise InvalidDefinition(
            f"{where}: its annotation cannot be resolved: {error}",
            hint="what it names must exist in the module when the tool is defined, not only for type checkers",
        ) from error


def _enclosing(function: Any) -> dict[str, Any]:
    """Variables of the functions around it, as far as it uses them and they have values."""
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None)
    found: dict[str, Any] = {}
    for name, cell in zip(code.co_freevars, cells, strict=True) if code and cells else ():
        try:
            found[name] = cell.cell_contents
        except ValueError:  # assigned later
            continue
    return found


def _returns(function: Any, tool: str) -> Any:
    where = f"tool {tool}, what it returns"
    annotation = signature_of(function).return_annotation
    if annotation is inspect.Signature.empty:
        return None
    members = _members(_hint(annotation, function, where))
    typed = [member for member in members if (get_origin(member) or member) not in _TEXT_OR_PARK]
    if not typed:
        return None
    returns = functools.reduce(operator.or_, typed)
    codec(returns, where=where)
    return returns


def _members(hint: Any) -> list[Any]:
    whole = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    if get_origin(whole) in (Union, UnionType):
        return [member for argument in get_args(whole) for member in _members(argument)]
    return [hint]


def _parameter(parameter: inspect.Parameter, hint: Any, tool: str) -> Parameter:
    where = f"tool {tool}, parameter {parameter.name}"
    for extra in getattr(hint, "__metadata__", ()):
        _refuse_what_only_fields_have(extra, where)
    codec(hint, where=where)  # refused here, the error tells a programmer where; later ones tell a model
    made = codec(hint, where=parameter.name)
    if parameter.default is parameter.empty:
        return Parameter(parameter.name, made, True, None)
    try:
        made.to_json(parameter.default)
    except InvalidValue as error:
        raise InvalidDefinition(f"{where}: its default does not fit its type: {error}") from error
    return Parameter(parameter.name, made, False, parameter.default)


def _schema(
    found: dict[str, Parameter], hints: dict[str, Any], documented: dict[str, str], tool: str
) -> dict[str, Any]:
    properties, definitions = combined({name: parameter.codec.schema() for name, parameter in found.items()})
    for name, parameter in found.items():
        described = _described(hints[name], documented.get(name), f"tool {tool}, parameter {name}")
        if described:
            properties[name] = {**properties[name], "description": described}
        if not parameter.required:
            properties[name] = {**properties[name], "default": parameter.codec.to_json(parameter.default)}
    whole: dict[str, Any] = {"type": "object", "properties": properties}
    required = [name for name, parameter in found.items() if parameter.required]
    if required:
        whole["required"] = required
    whole["additionalProperties"] = False
    if definitions:
        whole["$defs"] = definitions
    return whole


def _described(hint: Any, documented: str | None, where: str) -> str | None:
    """The one description of a parameter: a text, a msgspec Meta or a pydantic Field in its Annotated type, or the
    docstring's. Two different ones are refused: one would be lost."""
    texts = [documented] if documented else []
    for extra in getattr(hint, "__metadata__", ()):
        said = extra if isinstance(extra, str) else getattr(extra, "description", None)
        if isinstance(said, str) and said:
            texts.append(said)
    if len(set(texts)) > 1:
        raise InvalidDefinition(f"{where}: it has several descriptions", hint="describe it once")
    return texts[0] if texts else None


def _refuse_what_only_fields_have(extra: Any, where: str) -> None:
    """What a pydantic `Field` can say of a model's field and nothing honours for a parameter."""
    is_required = getattr(extra, "is_required", None)
    if callable(is_required) and not is_required():
        raise InvalidDefinition(f"{where}: its default stands in Field", hint="write it as the parameter's default")
    if any(getattr(extra, name, None) for name in ("alias", "validation_alias", "serialization_alias")):
        raise InvalidDefinition(f"{where}: a parameter has no alias", hint="rename the parameter")
