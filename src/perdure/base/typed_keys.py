"""Finds keys that a type does not know, where a decoder would drop them silently; and types that JSON cannot hold."""

from collections.abc import Callable
from typing import Any

from msgspec import inspect

from perdure.base.errors import InvalidDefinition, InvalidValue
from perdure.base.jsonvalue import escape

KeyCheck = Callable[[Any, str], None]
_REFUSED = (
    inspect.BytesType,
    inspect.ByteArrayType,
    inspect.MemoryViewType,
    inspect.SetType,
    inspect.FrozenSetType,
)
_OBJECTS = (inspect.StructType, inspect.DataclassType, inspect.TypedDictType, inspect.NamedTupleType)


def key_check(type_: Any, where: str) -> KeyCheck | None:
    """A function that raises `InvalidValue` for unknown keys, or None where the type has none to look for."""
    try:
        info = inspect.type_info(type_)
    except (TypeError, NameError) as error:
        raise InvalidDefinition(f"{where}: {error}") from error
    return _Compiler(where).compile(info)


class _Compiler:
    def __init__(self, where: str) -> None:
        self._where = where
        self._known: dict[Any, list[KeyCheck | None]] = {}

    def compile(self, info: Any) -> KeyCheck | None:
        if isinstance(info, _REFUSED):
            raise InvalidDefinition(
                f"{self._where}: {type(info).__name__.removesuffix('Type').lower()} is not JSON",
                hint="use str or list, or keep bytes as a blob",
            )
        if isinstance(info, inspect.CustomType):
            if not hasattr(info.cls, "model_validate"):
                raise InvalidDefinition(f"{self._where}: values of {info.cls!r} cannot be kept as JSON")
            return None
        if isinstance(info, inspect.Metadata):
            return self.compile(info.type)
        if isinstance(info, inspect.UnionType):
            return self._union(info)
        if isinstance(info, inspect.ListType | inspect.VarTupleType | inspect.CollectionType):
            return self._items(self.compile(info.item_type))
        if isinstance(info, inspect.TupleType):
            return self._positions([self.compile(item) for item in info.item_types])
        if isinstance(info, inspect.DictType):
            return self._values(self.compile(info.value_type))
        if isinstance(info, _OBJECTS):
            return self._object(info)
        return None

    def _object(self, info: Any) -> KeyCheck | None:
        if isinstance(info, inspect.NamedTupleType) or getattr(info, "array_like", False):
            return self._positions([self.compile(field.type) for field in info.fields])
        slot = self._known.get(info.cls)
        if slot is not None:  # a type that holds itself
            return lambda value, path: slot[0](value, path) if slot and slot[0] is not None else None
        slot = self._known[info.cls] = []
        fields: dict[str, KeyCheck | None] = {f.encode_name: None for f in info.fields}
        if getattr(info, "tag_field", None):
            fields[info.tag_field] = None
        name = info.cls.__name__

        def check(value: Any, path: str) -> None:
            if not isinstance(value, dict):
                return  # the decoder says what is wrong
            for key, item in value.items():
                try:
                    inner = fields[key]
                except KeyError:
                    raise InvalidValue(f"{name} has no field {key!r}", path=f"{path}/{escape(str(key))}") from None
                if inner is not None:
                    inner(item, f"{path}/{escape(key)}")

        slot.append(check)
        for field in info.fields:
            fields[field.encode_name] = self.compile(field.type)
        return check

    def _union(self, info: inspect.UnionType) -> KeyCheck | None:
        objects = [member for member in info.types if isinstance(member, _OBJECTS)]
        others = [self.compile(member) for member in info.types if not isinstance(member, _OBJECTS)]
        checks = [check for check in others if check is not None]
        if any(isinstance(member, inspect.AnyType) for member in info.types):
            return None
        tagged = {getattr(member, "tag", None): self._object(member) for member in objects}
        tag_field = next((getattr(member, "tag_field", None) for member in objects), None)
        single = next(iter(tagged.values()), None) if len(objects) == 1 else None
        if not tagged and not checks:
            return None
        has_dict = any(isinstance(member, inspect.DictType) for member in info.types)

        def check(value: Any, path: str) -> None:
            if isinstance(value, dict) and not has_dict:
                found = single or tagged.get(value.get(tag_field))
                if found is not None:
                    found(value, path)
            else:
                for other in checks:
                    other(value, path)

        return check

    def _items(self, inner: KeyCheck | None) -> KeyCheck | None:
        if inner is None:
            return None

        def check(value: Any, path: str) -> None:
            if isinstance(value, list | tuple):
                for position, item in enumerate(value):
                    inner(item, f"{path}/{position}")

        return check

    def _positions(self, inners: list[KeyCheck | None]) -> KeyCheck | None:
        if not any(inners):
            return None

        def check(value: Any, path: str) -> None:
            if isinstance(value, list | tuple):
                for position, (inner, item) in enumerate(zip(inners, value, strict=False)):
                    if inner is not None:
                        inner(item, f"{path}/{position}")

        return check

    def _values(self, inner: KeyCheck | None) -> KeyCheck | None:
        if inner is None:
            return None

        def check(value: Any, path: str) -> None:
            if isinstance(value, dict):
                for key, item in value.items():
                    inner(item, f"{path}/{escape(str(key))}")

        return check
