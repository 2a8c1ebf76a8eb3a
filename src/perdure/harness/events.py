"""Events of a conversation: what its commits mean to somebody who follows an agent. See docs/views.md.

Each is a struct with a `type`, ready for `msgspec.json.encode`. `seq` is the commit that it tells of.
"""

from typing import Any

import msgspec

from perdure.base.jsonvalue import Json


class Event(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag_field="type"):
    """What all events share."""

    seq: int
    """The commit."""

    @property
    def type(self) -> str:
        """Its name, as it is encoded: snapshot, run_start, …"""
        return str(self.__struct_config__.tag)


class Snapshot(Event, frozen=True, tag="snapshot", gc=False):
    """The whole view: at first, and again whenever a consumer missed something."""

    view: Json
    cursor: str = ""


class AgentChanged(Event, frozen=True, tag="agent", gc=False):
    """The conversation's agent was configured; `agent` is all of it."""

    agent: Json


class SubmissionChanged(Event, frozen=True, tag="submission", gc=False):
    """A submission was queued, placed or settled."""

    id: int
    status: str
    kind: str = "input"
    request_id: str | None = None
    entry: int | None = None
    answer: int | None = None
    reason: str | None = None
    detail: str | None = None


class InboxChanged(Event, frozen=True, tag="inbox", gc=False):
    """Submissions came into the inbox or left it. `added` holds them with the place they wait for."""

    added: list[Json] = []
    removed: list[int] = []


class RunStart(Event, frozen=True, tag="run_start", gc=False):
    """A run was opened. `run` is the task that works on it."""

    run: int
    inputs: list[int]
    started_at: float


class RunEnd(Event, frozen=True, tag="run_end", gc=False):
    """The run is over; how, its inputs' `submission` events tell."""

    run: int


class TurnStart(Event, frozen=True, tag="turn_start", gc=False):
    """A model is about to be asked. Turns of a run count from 1."""

    run: int
    turn: int


class TurnEnd(Event, frozen=True, tag="turn_end", gc=False):
    """The response and the results of its calls are there."""

    run: int
    turn: int


class MessageStart(Event, frozen=True, tag="message_start", gc=False):
    """A message begins: an answer that streams, or an entry that comes whole."""

    kind: str
    """The kind of the entry it will be."""
    model: str | None = None


class MessageUpdate(Event, frozen=True, tag="message_update", gc=False):
    """More of an answer. `delta` goes to the end of the block's text (of a call: its arguments). The deltas of a text
    are all of it, also where it came at once; the arguments of a call are whole only in the entry."""

    block: int
    kind: str
    """text, thinking or tool_call."""
    delta: str = ""
    name: str = ""
    """More of the name of the tool that is called."""
    id: str = ""


class MessageEnd(Event, frozen=True, tag="message_end", gc=False):
    """The message is an entry of the transcript now. None: what had streamed was dropped."""

    entry: Json = None


class HeadMoved(Event, frozen=True, tag="head", gc=False):
    """The active transcript begins at this entry; older ones are no longer part of it."""

    entry: int


class ToolStart(Event, frozen=True, tag="tool_start", gc=False):
    """A call has its place; `task` is the task that makes it."""

    task: int
    name: str
    call_id: str
    status: str
    arguments: Json = None


class ToolUpdate(Event, frozen=True, tag="tool_update", gc=False):
    """A call goes on: another status, more output (`replace`: this is all of it), other details or diagnostics."""

    task: int
    status: str | None = None
    output: str = ""
    replace: bool = False
    fields: dict[str, Json] = {}


class ToolEnd(Event, frozen=True, tag="tool_end", gc=False):
    """A call has ended; its result is an entry of its own."""

    task: int
    name: str
    call_id: str
    is_error: bool = False
    slot: Json = None
    """All that is known of the call now."""


class Retry(Event, frozen=True, tag="retry", gc=False):
    """The request failed and is sent again at `until` (seconds since the epoch)."""

    attempt: int
    until: float
    error: str


class CompactionChanged(Event, frozen=True, tag="compaction", gc=False):
    """A compaction began, goes on, or (None) is over."""

    task: str
    compaction: Json = None


class LiveChanged(Event, frozen=True, tag="live", gc=False):
    """Another member of the live document changed, such as the time of the next poll."""

    name: str
    value: Json = None


class UsageChanged(Event, frozen=True, tag="usage", gc=False):
    """What a model or tool (`group`: "models", "tools") used so far in this conversation."""

    group: str
    name: str
    used: dict[str, Any]


AnyEvent = (
    Snapshot
    | AgentChanged
    | SubmissionChanged
    | InboxChanged
    | RunStart
    | RunEnd
    | TurnStart
    | TurnEnd
    | MessageStart
    | MessageUpdate
    | MessageEnd
    | HeadMoved
    | ToolStart
    | ToolUpdate
    | ToolEnd
    | Retry
    | CompactionChanged
    | LiveChanged
    | UsageChanged
)


def fold_entries(entries: list[Json], event: Event) -> list[Json]:
    """The active transcript after an event: a snapshot's, an entry more, or fewer since the head moved."""
    match event:
        case Snapshot(view=view):
            return list(view["entries"])
        case MessageEnd(entry=entry) if entry is not None:
            return [*entries, entry]
        case HeadMoved(entry=head):
            return [entry for entry in entries if entry["id"] >= head]
        case _:
            return entries
