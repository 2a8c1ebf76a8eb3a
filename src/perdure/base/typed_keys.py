"""Finds keys that a type does not know, where a decoder would drop them silently; and types that JSON cannot hold."""

from collections.abc import Callable
from typing import Any, Final

from msgspec import inspect

from perdure.base.jsonvalue import escape

KeyCheck = Callable[[Any, str], None]
_REFUSED: Final[dict[Any, str]] = {
    inspect.BytesType: "bytes are not JSON; use str, or keep bytes as a blob",
    inspect.ByteArrayType: "a bytearray is not JSON; use str, or keep bytes as a blob",
    inspect.MemoryViewType: "a memoryview is not JSON; use str, or keep bytes as a blob",
    inspect.SetType: "a set is not JSON; use a list",
    inspect.FrozenSetType: "a frozenset is not JSON; use a list",
    inspect.ExtType: "a MessagePack extension is not JSON",
    inspect.RawType: "raw JSON is no value; use Any",
}
_OBJECTS = (inspect.StructType, inspect.DataclassType, inspect.TypedDictType, inspect.NamedTupleType)


class Misfit(ValueError):
    """Data that does not fit a type. `path` is a JSON pointer inside that data."""

    def __init__(self, what: str, path: str) -> None:
        super().__init__(what)
        self.path = path


def key_check(type_: Any, custom: Callable[[Any], object]) -> KeyCheck | None:
    """A function that raises `Misfit` for unknown keys, or None where the type has none to look for.

    `custom` is called with each pydantic model inside, to refuse it; they judge keys themselves. Raises `TypeError` for
    types whose values JSON cannot hold.
    """
    return _Compiler(custom).compile(inspect.type_info(type_))


class _Compiler:
    def __init__(self, custom: Callable[[Any], object]) -> None:
        self._custom = custom
        self._known: dict[int, list[KeyCheck | None]] = {}
        self._kept: list[Any] = []  # so that ids stay theirs

    def compile(self, info: Any) -> KeyCheck | None:
        refusal = _REFUSED.get(type(info))
        if refusal is not None:
            raise TypeError(refusal)
        if isinstance(info, inspect.CustomType):
            if info.cls is not object:
                if not hasattr(info.cls, "model_validate"):
                    raise TypeError(f"values of {info.cls!r} cannot be kept as JSON")
                self._custom(info.cls)
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
            if not _is_text(info.key_type):
                raise TypeError("the keys of a JSON object are text: a dict needs str, or a Literal or Enum of str")
            return self._values(self.compile(info.value_type))
        if isinstance(info, _OBJECTS):
            return self._object(info)
        return None

    def _object(self, info: Any) -> KeyCheck | None:
        if isinstance(info, inspect.NamedTupleType) or getattr(info, "array_like", False):
            return self._positions([self.compile(field.type) for field in info.fields])
        slot = self._known.get(id(info))
        if slot is not None:  # a type that holds itself
            return lambda value, path: slot[0](value, path) if slot and slot[0] is not None else None
        slot = self._known[id(info)] = []
        self._kept.append(info)
        fields: dict[str, KeyCheck | None] = {f.encode_name: None for f in info.fields}
        if getattr(info, "tag_field", None):
            fields[info.tag_field] = None
        name = getattr(info.cls, "__name__", str(info.cls))

        def check(value: Any, path: str) -> None:
            if not isinstance(value, dict):
                return  # the decoder says what is wrong
            for key, item in value.items():
                try:
                    inner = fields[key]
                except KeyError:
                    raise Misfit(f"{name} has no field {key!r}", f"{path}/{escape(str(key))}") from None
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


def _is_text(key: Any) -> bool:
    if isinstance(key, inspect.Metadata):
        return _is_text(key.type)
    if isinstance(key, inspect.LiteralType):
        return all(isinstance(value, str) for value in key.values)
    if isinstance(key, inspect.EnumType):
        return all(isinstance(member.value, str) for member in key.cls)
    return isinstance(key, inspect.StrType | inspect.AnyType)
