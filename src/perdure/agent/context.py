"""From the entries of a conversation's active range to the messages that a model reads."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

import msgspec

from perdure.agent.pairing import PairedMessages
from perdure.agent.prompt import PromptState, fold, render_system
from perdure.base.errors import InvalidValue
from perdure.base.ids import EntryId
from perdure.models.messages import Message, ToolOffer, decode_messages
from perdure.storage.records import Entry


class ContextEntry(msgspec.Struct, frozen=True, gc=False):
    """What the context needs of an entry, its messages decoded. Keep it: decoding is the costly part."""

    id: EntryId
    kind: str
    messages: list[Message] = []
    head: EntryId | None = None
    edits: EntryId | None = None

    @classmethod
    def of(cls, entry: Entry) -> "ContextEntry":
        """The light view of a stored entry."""
        messages = [] if entry.messages == b"[]" else decode_messages(entry.messages)
        return cls(entry.id, entry.kind, messages, entry.head, entry.edits)


class Context(msgspec.Struct, frozen=True):
    """What a model reads, as of one moment. Its lists are never changed; whoever changes one makes a copy."""

    messages: list[Message]
    """Paired, system messages at their places."""
    systems: tuple[int, ...]
    """The indexes of the system messages."""
    prompt: PromptState
    """The prompt behind all of them."""
    measured: int | None
    """The index of the newest answer whose usage counts everything up to it; None: there is none."""


class ModelView(msgspec.Struct, frozen=True):
    """The parts of a request that come from the context."""

    system: str
    messages: list[Message]
    tools: list[ToolOffer]


class Place(msgspec.Struct, frozen=True):
    """What stands at one place of a context."""

    id: EntryId
    messages: list[Message]
    """Those of the newest edit, if there is one."""
    front: bool
    """It tells of what came before the range: a summary."""


def for_model(context: Context, system_updates: bool) -> ModelView:
    """The context as one kind of model takes it.

    A model that takes system messages gets the prompt as it was first told at the front, and each change at its
    place; so what was sent stays as it was. Any other gets the prompt of now at the front and no system messages.
    """
    messages, systems, tools = context.messages, context.systems, list(context.prompt.tools)
    if not systems:
        return ModelView(render_system(context.prompt), messages, tools)
    if not system_updates:
        return ModelView(render_system(context.prompt), _without(messages, systems), tools)
    first = [index for offset, index in enumerate(systems) if index == systems[0] + offset]
    told = fold(messages[first[0] : first[-1] + 1])
    return ModelView(render_system(told), _without(messages, tuple(first)), tools)


def _without(messages: list[Message], indexes: tuple[int, ...]) -> list[Message]:
    if indexes and indexes[-1] == len(indexes) - 1:
        return messages[len(indexes) :]  # all at the front, as most are: one copy
    left: list[Message] = []
    begin = 0
    for index in indexes:
        left += messages[begin:index]
        begin = index + 1
    left += messages[begin:]
    return left


def build_context(entries: Iterable[ContextEntry]) -> Context:
    """The context of visible entries in the order of their ids, at least those of the active range."""
    return ContextBuilder(entries).context()


class ContextBuilder:
    """A context that grows with its conversation.

    Appending costs the size of the new entry; one that moves the head, or edits an entry of the range, makes the
    next `context()` read the range anew. The range of the head before the newest is kept too, older entries are let go.

    The rules of edits: the newest entry that edits another stands in its place, without messages it leaves it out;
    an edit may itself be edited. An entry whose head is an older entry tells of what came before that: while it is
    the newest head, it stands in front of the range (or in the place of the entry it edits, if the range has it),
    and what it edits is gone; once another head is set, it is out of force and stands nowhere.
    """

    def __init__(self, entries: Iterable[ContextEntry] = ()) -> None:
        self._entries: list[ContextEntry] = []
        self._head: ContextEntry | None = None
        self._paired: PairedMessages | None = PairedMessages()
        self._context: Context | None = None
        for entry in entries:
            self._append(entry)

    def covers(self, entry: ContextEntry) -> bool:
        """Whether `append` can take the entry; else its head lies before what is held: build from storage anew."""
        return entry.head is None or not self._entries or entry.head >= self._entries[0].id

    def append(self, entry: ContextEntry) -> None:
        """Take the next visible entry. Raises `InvalidValue` if it is not newer, or its head is not covered."""
        if not self.covers(entry):
            raise InvalidValue(f"entry {entry.id} moves the head to {entry.head}, before what is held here")
        if entry.head is not None:
            self._let_go(entry.head)
        self._append(entry)

    def context(self) -> Context:
        """The context now: the same object until the next append, and never changed by one."""
        if self._context is None or self._paired is None:
            paired = self._paired = self._paired or _read(self._entries, self._head)
            self._context = _snapshot(paired)
        return self._context

    @property
    def prompt(self) -> PromptState:
        """The prompt of `context()`; unlike that it never costs the length of the conversation, but after an edit."""
        return self.context().prompt if self._paired is None else self._paired.prompt

    def find(self, id: EntryId) -> list[Message] | None:
        """The messages of an entry, if it is held here."""
        at = bisect_left(self._entries, id, key=lambda entry: entry.id)
        return self._entries[at].messages if at < len(self._entries) and self._entries[at].id == id else None

    def context_up_to(self, newest: EntryId) -> Context:
        """The context as it was when `newest` was the newest entry. Costs the size of the range, unless it still is.

        Raises `InvalidValue` if the range of that time has been let go: two heads were set since.
        """
        if not self._entries or self._entries[-1].id <= newest:
            return self.context()
        entries = self._entries[: bisect_right(self._entries, newest, key=_id)]
        head = next((entry for entry in reversed(entries) if entry.head is not None), None)
        if not entries or (head is not None and head.head is not None and head.head < entries[0].id):
            raise InvalidValue(f"the range that ended with entry {newest} is not held here any more")
        return _snapshot(_read(entries, head))

    def messages(self) -> list[Message]:
        """The messages of `context()`."""
        return self.context().messages

    def places(self) -> list[Place]:
        """What stands where, in order. Costs the length of the range."""
        range_ = _active(self._entries, self._head)
        return [Place(entry.id, range_.newest(entry).messages, entry is range_.front) for entry in range_.places()]

    def older(self, cut: EntryId) -> Context:
        """The context without what stands from `cut` on, with the prompt of now: the beginning of what a model was
        last asked with. Costs the length of the range."""
        older = _active(self._entries, self._head).read(cut)
        return Context(older.messages, tuple(older.systems), self.prompt, None)

    def _append(self, entry: ContextEntry) -> None:
        if self._entries and entry.id <= self._entries[-1].id:
            raise InvalidValue(f"entry {entry.id} is not newer than entry {self._entries[-1].id}")
        self._entries.append(entry)
        target = _edited(entry)
        if entry.head is not None:
            self._head, self._paired, self._context = entry, None, None
        elif target is not None:
            if target >= self._entries[0].id:
                self._paired = self._context = None
        elif entry.messages:
            self._context = None
            if self._paired is not None:
                for message in entry.messages:
                    self._paired.add(message)

    def _let_go(self, head: EntryId) -> None:
        """Forget what neither the range of now nor the one that begins at `head` needs."""
        if self._head is not None and self._head.head is not None:
            del self._entries[: bisect_left(self._entries, min(self._head.head, head), key=_id)]


def _id(entry: ContextEntry) -> EntryId:
    return entry.id


def _snapshot(paired: PairedMessages) -> Context:
    return Context(paired.messages[:], tuple(paired.systems), paired.prompt, paired.measured)


def _read(entries: list[ContextEntry], head: ContextEntry | None) -> PairedMessages:
    """The messages of the range that begins where `head` says."""
    return _active(entries, head).read()


def _active(entries: list[ContextEntry], head: ContextEntry | None) -> "_Range":
    if head is not None and head.head is not None:
        entries = entries[bisect_left(entries, head.head, key=_id) :]
    return _Range(entries, head)


def _edited(entry: ContextEntry) -> EntryId | None:
    """The older entry that it edits. One that begins a range with itself leaves everything older behind."""
    return entry.edits if entry.edits is not None and entry.edits < entry.id and entry.head != entry.id else None


class _Range:
    """The active range, read as a whole."""

    def __init__(self, entries: list[ContextEntry], head: ContextEntry | None) -> None:
        self.entries = entries
        self.head = head if head is not None and head.head is not None and head.head < head.id else None
        """The newest head, if it points to an older entry."""
        self.edits: dict[EntryId, ContextEntry] = {}
        held = {entry.id for entry in entries}
        for entry in entries:
            target = _edited(entry)
            if target in held and not self._out_of_force(entry):
                self.edits[target] = entry
        in_front = self.head is not None and (_edited(self.head) not in held or self.head.edits == self.head.head)
        self.front = self.head if in_front else None
        # what came before the newest change of the range was counted with something else in it
        self.counted_from = max([0, *(entry.id for entry in self.edits.values()), *([head.id] if head else [])])

    def read(self, before: EntryId | None = None) -> PairedMessages:
        """All messages in order, or those of the places before an entry."""
        paired = PairedMessages()
        for place in self.places():
            if before is not None and place.id >= before and place is not self.front:
                break
            entry = place
            while (edit := self.edits.get(entry.id)) is not None:
                paired.hide(entry.messages)
                entry = edit
            for message in entry.messages:
                paired.add(message, measures=entry.id > self.counted_from)
        return paired

    def newest(self, place: ContextEntry) -> ContextEntry:
        """The newest edit of what stands at a place."""
        entry = place
        while (edit := self.edits.get(entry.id)) is not None:
            entry = edit
        return entry

    def places(self) -> Iterator[ContextEntry]:
        """The entries that have a place of their own; the messages of their newest edits stand there."""
        front = self.front
        gone = _edited(front) if front is not None else None
        if front is not None:
            yield front
        for entry in self.entries:
            if entry is front or entry.id == gone or self._out_of_force(entry):
                continue
            if _edited(entry) is None:
                yield entry

    def _out_of_force(self, entry: ContextEntry) -> bool:
        """A head that another head has overtaken, and that told of what came before itself."""
        return entry is not self.head and entry.head is not None and entry.head < entry.id
