"""How one argument of a phase becomes JSON and comes back: the codec of its annotation, and a short way for scalars."""

from types import NoneType, UnionType
from typing import Any, Final, NewType, Union, get_args, get_origin

from perdure.base import jsonvalue
from perdure.base.jsonvalue import Json
from perdure.base.typed import codec

_SCALARS: Final[dict[Any, type]] = {str: str, int: int, float: float, bool: bool, None: NoneType, NoneType: NoneType}


class Argument:
    """One parameter of a phase, under the name that a checkpoint stores."""

    __slots__ = ("_codec", "_items", "_kinds", "name")

    def __init__(self, name: str, annotation: Any, *, where: str) -> None:
        self.name = name
        self._codec = codec(annotation, where=where)
        self._kinds = _scalar_kinds(annotation)
        """Types whose values are their own JSON under this annotation; looked at first, since most arguments are."""
        self._items = _item_kinds(annotation)
        """Likewise for the items of a list."""

    def to_json(self, value: Any) -> Json:
        """The value as JSON of its own. Raises `InvalidValue` naming the parameter."""
        kind = type(value)
        if kind in self._kinds and jsonvalue.is_strict(value):
            return value
        if kind is list and self._items and self._is_plain_list(value):
            return value.copy()
        return self._codec.to_json(value)

    def from_json(self, data: Json) -> Any:
        """The stored value in its type, the reader's own: states are shared, and a phase may change what it is given.
        Raises `InvalidValue` naming the parameter."""
        kind = type(data)
        if kind in self._kinds and jsonvalue.is_strict(data):
            return data
        if kind is list and self._items and self._is_plain_list(data):
            return data.copy()
        return self._codec.from_json(jsonvalue.copied(data))

    def _is_plain_list(self, value: list[Any]) -> bool:
        return self._items.issuperset(map(type, value)) and jsonvalue.is_strict(value)


def _scalar_kinds(annotation: Any) -> frozenset[type]:
    """The exact types of JSON scalars that the annotation takes as they are; empty if it takes anything else."""
    while isinstance(annotation, NewType):
        annotation = annotation.__supertype__
    if get_origin(annotation) in (Union, UnionType):
        parts = [_scalar_kinds(part) for part in get_args(annotation)]
        return frozenset[type]().union(*parts) if all(parts) else frozenset()
    try:
        kind = _SCALARS.get(annotation)
    except TypeError:  # metadata that cannot be hashed
        return frozenset()
    return frozenset() if kind is None else frozenset({kind})


def _item_kinds(annotation: Any) -> frozenset[type]:
    return _scalar_kinds(get_args(annotation)[0]) if get_origin(annotation) is list else frozenset()
