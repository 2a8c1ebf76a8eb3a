"""Short ways to write transcripts down, random ones, and the rules of the context told once more, slowly."""

import random
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from perdure.agent.context import ContextEntry
from perdure.agent.pairing import NO_RESULT
from perdure.base.ids import EntryId
from perdure.models.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    Text,
    ToolCall,
    ToolOffer,
    ToolResultMessage,
    Usage,
    UserMessage,
)


def user(text: str) -> UserMessage:
    return UserMessage(text)


def turn(text: str, *calls: str, stop: Any = "stop", usage: Usage | None = None) -> AssistantMessage:
    """An answer that calls the tool "t" once for each id."""
    blocks: list[Any] = [Text(text)] if text else []
    return AssistantMessage(blocks + [ToolCall(id, "t", {"n": text}) for id in calls], stop=stop, usage=usage)


def result(call: str, text: str = "done") -> ToolResultMessage:
    return ToolResultMessage(call, "t", text)


def system(*names: str, **sections: str | None) -> SystemMessage:
    """A change: `names` are the whole offer of tools, if any."""
    offers = [ToolOffer(name, f"The tool {name}.", {"type": "object"}) for name in names]
    return SystemMessage(sections=dict(sections), tools=offers or None)


@dataclass
class Transcript:
    """Entries with rising ids."""

    entries: list[ContextEntry] = field(default_factory=list)

    def add(self, *messages: Message, head: int | None = None, edits: int | None = None) -> int:
        id = len(self.entries) + 1
        at = None if head is None else EntryId(head or id)
        edited = None if edits is None else EntryId(edits)
        self.entries.append(ContextEntry(EntryId(id), "test", list(messages), at, edited))
        return id


def transcript(*messages: Message) -> list[ContextEntry]:
    """One entry for each message."""
    made = Transcript()
    for message in messages:
        made.add(message)
    return made.entries


def told(messages: list[Message]) -> list[str]:
    """Messages in short: `u:text`, `a:text[ids]`, `r:id=text`, `s:names`."""
    return [_told(message) for message in messages]


def _told(message: Message) -> str:
    match message:
        case UserMessage(content):
            return f"u:{content}"
        case AssistantMessage(content):
            text = "".join(block.text for block in content if isinstance(block, Text))
            calls = [block.id for block in content if isinstance(block, ToolCall)]
            return f"a:{text}[{','.join(calls)}]" if calls else f"a:{text}"
        case ToolResultMessage(call_id, _, content):
            return f"r:{call_id}={'?' if content == NO_RESULT else content}"
        case SystemMessage(sections):
            return f"s:{','.join(sections)}"


def slowly(entries: list[ContextEntry]) -> list[str]:
    """The context of entries by the plain words of the rules, without any care for time. Ids on the wire are left
    out of what is told, since they are checked by themselves."""
    heads = [entry for entry in entries if entry.head is not None]
    newest = heads[-1] if heads else None
    if newest is not None and newest.head is not None:
        entries = [entry for entry in entries if entry.id >= newest.head]

    def overtaken(entry: ContextEntry) -> bool:
        return entry is not newest and entry.head is not None and entry.head < entry.id

    def target(entry: ContextEntry) -> ContextEntry | None:
        if entry.edits is None or entry.head == entry.id or overtaken(entry):
            return None
        return next((other for other in entries if other.id == entry.edits and other.id < entry.id), None)

    def lines(entry: ContextEntry) -> list[tuple[Message, bool]]:
        edits = [other for other in entries if target(other) is entry]
        own = [(message, bool(edits)) for message in entry.messages]
        return own + (lines(edits[-1]) if edits else [])

    front: list[ContextEntry] = []
    gone: ContextEntry | None = None
    older_head = newest is not None and newest.head is not None and newest.head < newest.id
    if newest is not None and older_head and (target(newest) is None or newest.edits == newest.head):
        front, gone = [newest], target(newest)
    rest = [
        entry
        for entry in entries
        if entry is not gone
        and entry not in front
        and not overtaken(entry)
        and (entry.edits is None or entry.head == entry.id or entry.edits >= entry.id)
    ]
    return _paired_slowly([line for entry in front + rest for line in lines(entry)])


def _paired_slowly(lines: list[tuple[Message, bool]]) -> list[str]:
    """`lines`: a message, and whether the model does not see it."""
    turns: list[list[str]] = []
    front: list[str] = []
    calls: list[tuple[str, int, int]] = []  # id, which turn (-1: not seen), where in it
    answered: set[tuple[int, int]] = set()
    seen_answer = False
    for message, hidden in lines:
        match message:
            case UserMessage() if not hidden:
                turns.append(told([message]))
            case SystemMessage() if not hidden:
                if seen_answer:
                    turns.append(told([message]))
                else:
                    front += told([message])
            case AssistantMessage(content, stop):
                ids = [block.id for block in content if isinstance(block, ToolCall)]
                unseen = hidden or stop in ("aborted", "error") or not content
                calls += [(id, -1 if unseen else len(turns), place) for place, id in enumerate(ids)]
                if not unseen:
                    seen_answer = True
                    turns.append([told([message])[0].split("[")[0], *("?" for _ in ids)])
            case ToolResultMessage(call_id, _, text) if not hidden:
                newest = [which for id, which, _ in calls if id == call_id][-1:]
                same = [(which, place) for id, which, place in calls if id == call_id and [which] == newest]
                free = [slot for slot in same if slot not in answered and slot[0] >= 0]
                if free:
                    answered.add(free[0])
                    turns[free[0][0]][free[0][1] + 1] = f"={text}"
    return front + [line for turn in turns for line in turn]


def told_without_ids(messages: list[Message]) -> list[str]:
    """In the words of `slowly`."""
    lines = [line.split("[")[0] if line.startswith("a:") else line for line in told(messages)]
    return [
        ("?" if line.endswith("=?") else "=" + line.partition("=")[2]) if line.startswith("r:") else line
        for line in lines
    ]


def random_transcript(seed: int, length: int) -> list[ContextEntry]:
    """A transcript as crashes, forks, edits, summaries and careless providers may leave it. A shorter one of the same
    seed begins in the same way."""
    dice = random.Random(seed)
    made = Transcript()
    for number in range(length):
        head: int | None = None
        if number and dice.random() < 0.08:
            head = dice.randint(max(1, number - 6), number)
        elif dice.random() < 0.05:
            head = 0
        edits = dice.randint(1, number) if number and dice.random() < 0.15 else None
        messages = [_message(dice, number) for _ in range(dice.choice((0, 1, 1, 1, 2)))]
        made.add(*messages, head=head, edits=edits)
    return made.entries


random_transcripts = st.builds(random_transcript, st.integers(0, 2**32), st.integers(0, 40))


def _message(dice: random.Random, number: int) -> Message:
    match dice.randrange(9):
        case 0 | 1:
            return user(f"u{number}")
        case 2:
            return system(**{dice.choice("ABC"): f"s{number}"})
        case 3 | 4 | 5:
            stop = dice.choice(("stop", "tool_calls", "length", "aborted", "error"))
            return turn(f"a{number}", *dice.choices(_IDS, k=dice.randrange(4)), stop=stop)
        case _:
            return result(dice.choice(_IDS), f"r{number}.{dice.randrange(1000)}")


_IDS = ("x", "y", "x-2", "")
