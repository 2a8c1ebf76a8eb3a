"""Sorted numbers and places of records, in flat arrays: a hundred thousand take a few megabytes."""

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Hashable, Iterator
from typing import Final, Generic, TypeVar

NEVER: Final = 2**63 - 1
"""Later than every id, seq and time."""

K = TypeVar("K", bound=Hashable)


class Ids:
    """A set of ids in order. Adding the largest, which is what nearly always happens, costs nothing."""

    __slots__ = ("_ids",)

    def __init__(self) -> None:
        self._ids = array("q")

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, id: int) -> None:
        """Add one that is not there."""
        ids = self._ids
        if not ids or ids[-1] < id:
            ids.append(id)
        else:
            insort(ids, id)

    def remove(self, id: int) -> None:
        """Remove one that is there."""
        del self._ids[bisect_left(self._ids, id)]

    def above(self, low: int, high: int = NEVER) -> Iterator[int]:
        """Those with `low < id < high`, smallest first. The set must not change meanwhile."""
        ids = self._ids
        for at in range(bisect_right(ids, low), bisect_left(ids, high)):
            yield ids[at]

    def below(self, high: int, low: int = 0) -> Iterator[int]:
        """Those with `low < id < high`, largest first. The set must not change meanwhile."""
        ids = self._ids
        for at in range(bisect_left(ids, high) - 1, bisect_right(ids, low) - 1, -1):
            yield ids[at]


NONE: Final = Ids()
"""The group that nobody is in."""


class Groups(Generic[K]):
    """Sets of ids by a key."""

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups: dict[K, Ids] = {}

    def __getitem__(self, key: K) -> Ids:
        return self._groups.get(key, NONE)

    def add(self, key: K, id: int) -> None:
        """Put one into a group."""
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Ids()
        group.add(id)

    def remove(self, key: K, id: int) -> None:
        """Take one out of a group."""
        group = self._groups[key]
        group.remove(id)
        if not group:
            del self._groups[key]


class Places:
    """Where records stand in the file, by id: offset and length. `bytes` is what they take together."""

    __slots__ = ("_ids", "_lengths", "_offsets", "bytes")

    def __init__(self) -> None:
        self._ids = array("q")
        self._offsets = array("q")
        self._lengths = array("q")
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids)

    def __contains__(self, id: object) -> bool:
        return isinstance(id, int) and self.find(id) is not None

    def put(self, id: int, offset: int, length: int) -> None:
        """The record stands there now, wherever it stood before."""
        self.bytes += length
        ids = self._ids
        if not ids or ids[-1] < id:
            ids.append(id)
            self._offsets.append(offset)
            self._lengths.append(length)
            return
        at = bisect_left(ids, id)
        if ids[at] == id:
            self.bytes -= self._lengths[at]
            self._offsets[at], self._lengths[at] = offset, length
        else:
            ids.insert(at, id)
            self._offsets.insert(at, offset)
            self._lengths.insert(at, length)

    def find(self, id: int) -> tuple[int, int] | None:
        """Offset and length."""
        at = bisect_left(self._ids, id)
        if at == len(self._ids) or self._ids[at] != id:
            return None
        return self._offsets[at], self._lengths[at]

    def forget(self, id: int) -> None:
        """The record is of no use any more, if it is there at all."""
        at = bisect_left(self._ids, id)
        if at < len(self._ids) and self._ids[at] == id:
            self.bytes -= self._lengths[at]
            del self._ids[at], self._offsets[at], self._lengths[at]
