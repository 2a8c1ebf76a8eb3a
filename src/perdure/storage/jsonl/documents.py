"""Documents: the incarnations themselves, and where their revisions stand."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from perdure.base.errors import StorageCorrupt
from perdure.storage.jsonl.sorted import NEVER, Groups
from perdure.storage.records import Document, DocumentCopy

Home = tuple[str, int]
"""Scope and scope id."""
Family = tuple[str, int, str]
"""Scope, scope id and kind."""


class Step(NamedTuple):
    """A revision: its commit, whether it is a base, and where it stands."""

    seq: int
    base: bool
    offset: int
    length: int


class DocumentIndex:
    """Documents are small and kept whole; what they hold stays in the file."""

    def __init__(self) -> None:
        self.all: dict[int, Document] = {}
        self.history: dict[int, list[Step]] = {}
        self.all_in: Groups[Home] = Groups()
        self.alive_in: Groups[Home] = Groups()
        self.alone: Groups[Family] = Groups()
        """Those alive without a key."""
        self.members: dict[Family, list[tuple[str, int]]] = {}
        """Key and id of those alive, by key."""
        self.bytes = 0

    def take(self, document: Document) -> None:
        """A new document, or an old one with its end."""
        old = self.all.get(document.id)
        self.all[document.id] = document
        if old is not None:
            self.all_in.remove((old.scope, old.scope_id), old.id)
            self._unlist(old)
        self.all_in.add((document.scope, document.scope_id), document.id)
        self._list(document)

    def take_copy(self, each: DocumentCopy) -> None:
        """A new document that begins with what another had."""
        rows = reach(self.history.get(each.source, []), each.at)
        if not rows:
            raise StorageCorrupt(f"document {each.target.id} is a copy of nothing")
        self.take(each.target)
        self.history[each.target.id] = rows
        self.bytes += sum(step.length for step in rows)

    def take_revision(self, id: int, step: Step) -> None:
        """One more step of a document."""
        document = self.all.get(id)
        if document is None:
            raise StorageCorrupt(f"a revision of document {id}, which never began")
        history = self.history.setdefault(id, [])
        if step.base and not document.rewindable:
            self.bytes -= sum(old.length for old in history)
            history.clear()
        history.append(step)
        self.bytes += step.length

    def members_from(self, scope: str, scope_id: int, kind: str, low: str, at: int | None) -> Iterable[tuple[str, int]]:
        """Key and id of a family's members alive at a commit (None: now), by key, from `low` on."""
        if at is None:
            members = self.members.get((scope, scope_id, kind), [])
            return islice(members, bisect_left(members, (low, 0)), None)
        every = (self.all[id] for id in self.all_in[scope, scope_id].above(0))
        return sorted(
            (one.key, one.id)
            for one in every
            if one.kind == kind and one.key is not None and one.key >= low and alive(one, at)
        )

    def find(self, scope: str, scope_id: int, kind: str, key: str | None, at: int | None) -> Document | None:
        """The newest incarnation that was alive at a commit (None: now)."""
        if at is not None:
            for id in self.all_in[scope, scope_id].below(NEVER):
                one = self.all[id]
                if one.kind == kind and one.key == key and alive(one, at):
                    return one
            return None
        if key is None:
            return next((self.all[id] for id in self.alone[scope, scope_id, kind].below(NEVER)), None)
        members = self.members.get((scope, scope_id, kind), [])
        place = bisect_left(members, (key, NEVER)) - 1
        return self.all[members[place][1]] if place >= 0 and members[place][0] == key else None

    def _list(self, document: Document) -> None:
        if document.retired is not None:
            return
        family = document.scope, document.scope_id, document.kind
        self.alive_in.add((document.scope, document.scope_id), document.id)
        if document.key is None:
            self.alone.add(family, document.id)
        else:
            insort(self.members.setdefault(family, []), (document.key, document.id))

    def _unlist(self, document: Document) -> None:
        if document.retired is not None:
            return
        family = document.scope, document.scope_id, document.kind
        self.alive_in.remove((document.scope, document.scope_id), document.id)
        if document.key is None:
            self.alone.remove(family, document.id)
            return
        members = self.members[family]
        del members[bisect_left(members, (document.key, document.id))]
        if not members:
            del self.members[family]


def alive(document: Document, at: int | None) -> bool:
    """Whether a document is alive at a commit; None: now."""
    if at is None:
        return document.retired is None
    return document.created <= at < (NEVER if document.retired is None else document.retired)


def reach(history: list[Step], at: int) -> list[Step]:
    """The newest base at or before a commit, and its deltas up to it; empty if there is none."""
    end = bisect_right(history, at, key=lambda step: step.seq)
    for begin in range(end - 1, -1, -1):
        if history[begin].base:
            return history[begin:end]
    return []
