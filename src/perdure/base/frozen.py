"""Values that refuse to be changed: handed out in debug mode, where sharing would hide a mistake."""

import copy
import os
from typing import Any, NoReturn

from perdure.base.errors import InvalidValue


def debugging() -> bool:
    """Whether `PERDURE_DEBUG=1` asks for strictness that costs time."""
    return os.environ.get("PERDURE_DEBUG", "") not in ("", "0")


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise InvalidValue("a shared committed value was changed", hint="edit a draft inside a transaction instead")


class FrozenDict(dict[str, Any]):
    """A dict that cannot be changed; copies of it can."""

    __setitem__ = __delitem__ = clear = pop = popitem = setdefault = update = __ior__ = _refuse

    def __copy__(self) -> dict[str, Any]:
        return dict(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return {key: copy.deepcopy(item, memo) for key, item in self.items()}


class FrozenList(list[Any]):
    """A list that cannot be changed; copies of it can."""

    __setitem__ = __delitem__ = append = extend = insert = pop = remove = clear = sort = reverse = _refuse
    __iadd__ = __imul__ = _refuse

    def __copy__(self) -> list[Any]:
        return list(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        return [copy.deepcopy(item, memo) for item in self]


def frozen(value: Any) -> Any:
    """A deep copy that refuses changes."""
    if isinstance(value, dict):
        return FrozenDict((key, frozen(item)) for key, item in value.items())
    if isinstance(value, list):
        return FrozenList(frozen(item) for item in value)
    return value
