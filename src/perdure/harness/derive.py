"""From one commit's step of a conversation's view to the events it means."""

from typing import Any, Final

from perdure.base.jsonvalue import Json
from perdure.harness.events import (
    AgentChanged,
    CompactionChanged,
    Event,
    HeadMoved,
    InboxChanged,
    LiveChanged,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    Retry,
    RunEnd,
    RunStart,
    Snapshot,
    SubmissionChanged,
    ToolEnd,
    ToolStart,
    ToolUpdate,
    TurnEnd,
    TurnStart,
    UsageChanged,
)
from perdure.harness.feed import ViewFrame
from perdure.storage.records import Submission

ASSISTANT: Final = "perdure.assistant"
ENDING: Final = frozenset((ASSISTANT, "perdure.tool_result"))
"""Entries that belong to the turn that ends, where one commit holds the end of one and the beginning of the next."""
TOLD: Final = frozenset(("run", "partial", "tools", "retry", "compactions"))
"""Members of the live document that have events of their own."""


def derive(frame: ViewFrame) -> list[Event]:
    """The events of a frame, told once for all who ask. In the order in which things happened: what was taken in,
    what streamed, what ended, what begins next."""
    if frame.derived is None:
        frame.derived = [snapshot(frame)] if frame.is_whole else _Telling(frame).events()
    return frame.derived


def snapshot(frame: ViewFrame) -> Snapshot:
    """A whole frame as an event."""
    return Snapshot(frame.seq, frame.value, frame.cursor)


def _differ(left: Json, right: Json) -> bool:
    return left is not right and bool(left != right)


def _live(view: Json) -> Json:
    return view["docs"]["live"] or {}


def _turn(live: Json) -> tuple[int, int] | None:
    """The open turn as (run, number): the round whose calls are there, else the request after the last round."""
    run = live.get("run")
    if run is None:
        return None
    return run["generation"], run["turns"] if live["tools"] else run["turns"] + 1


class _Telling:
    """The events of one frame."""

    def __init__(self, frame: ViewFrame) -> None:
        self._frame = frame
        self._seq = frame.seq
        self._before = frame.before
        self._after = frame.value
        self._old = _live(frame.before)
        self._new = _live(frame.value)
        self._streamed = self._old.get("partial") is not None and self._new.get("partial") is None
        """An answer that streamed before has ended."""
        self._found: list[Event] = []

    def events(self) -> list[Event]:
        if not self._frame.ops:
            self._submissions()
            return self._found
        before, after = self._before["docs"], self._after["docs"]
        ended, begun = self._parted()
        if _differ(after["agent"], before["agent"]):
            self._found.append(AgentChanged(self._seq, after["agent"]))
        self._partial()
        self._entries(ended)
        self._tools()
        if after["usage"] is not before["usage"]:
            self._usage(before["usage"] or {}, after["usage"] or {})
        self._ends()
        self._submissions()
        if after["inbox"] is not before["inbox"]:
            self._inbox(before["inbox"] or {"items": []}, after["inbox"] or {"items": []})
        self._begins()
        self._entries(begun)
        self._others()
        return self._found

    def _parted(self) -> tuple[list[Json], list[Json]]:
        """The entries that end what was, and those that the turn begins with which this commit opens."""
        entries = self._frame.entries
        new = _turn(self._new)
        if new is None or new == _turn(self._old):
            return entries, []
        last = max((at for at, entry in enumerate(entries, 1) if entry["kind"] in ENDING), default=0)
        return entries[:last], entries[last:]

    # the answer that streams, and entries

    def _partial(self) -> None:
        """Deltas come from the operations; an answer that begins is told from its first value."""
        old, new = self._old.get("partial"), self._new.get("partial")
        if new is None or new is old:
            return
        if old is None or not _continues(old, new):
            if old is not None:
                self._found.append(MessageEnd(self._seq))
            self._found.append(MessageStart(self._seq, ASSISTANT, new["model"]))
            old = {"blocks": []}
        for at, block in enumerate(new["blocks"]):
            known = old["blocks"][at] if at < len(old["blocks"]) else None
            if _differ(block, known):
                self._found.append(_grown(self._seq, at, known or {}, block))

    def _entries(self, entries: list[Json]) -> None:
        head: int | None = None
        for entry in entries:
            streamed: list[Json] = []
            if self._streamed and entry["kind"] == ASSISTANT:
                self._streamed = False
                streamed = self._old["partial"]["blocks"]
            else:
                model = entry["messages"][0].get("model") if entry["kind"] == ASSISTANT else None
                self._found.append(MessageStart(self._seq, entry["kind"], model))
            if entry["kind"] == ASSISTANT:
                self._rest(entry["messages"][0]["content"], streamed)
            self._found.append(MessageEnd(self._seq, entry))
            head = entry.get("head", head)
        if self._streamed:
            self._streamed = False
            self._found.append(MessageEnd(self._seq))
        if head is not None:
            self._found.append(HeadMoved(self._seq, head))

    def _rest(self, content: list[Json], streamed: list[Json]) -> None:
        """The text that came with the end: all deltas together are the whole text."""
        for at, block in enumerate(content):
            known = streamed[at] if at < len(streamed) else {"type": block["type"], "text": ""}
            if block["type"] not in ("text", "thinking") or known["type"] != block["type"]:
                continue
            if block["text"] != known["text"] and block["text"].startswith(known["text"]):
                self._found.append(_grown(self._seq, at, known, block))

    # calls

    def _tools(self) -> None:
        old, new = self._old.get("tools") or {}, self._new.get("tools") or {}
        if old is new:
            return
        for id, slot in new.items():
            known = old.get(id)
            if known is None:
                self._start(id, slot)
            elif slot["status"] != "done" and _differ(slot, known):
                self._update(id, known, slot)
            if slot["status"] == "done" and _differ(slot, known):
                self._end(id, slot)
        for id, slot in old.items():
            if id not in new and slot["status"] != "done":
                self._end(id, self._last_slot(id) or {**slot, "is_error": True})

    def _last_slot(self, id: str) -> Json:
        """What a slot held that ended and was cleared in this very commit."""
        at = f"/docs/live/tools/{id}"
        return next((op["value"] for op in self._frame.ops if op["path"] == at and "value" in op), None)

    def _start(self, id: str, slot: Json) -> None:
        arguments = _arguments(self._after["entries"], slot["call_id"])
        self._found.append(ToolStart(self._seq, int(id), slot["name"], slot["call_id"], slot["status"], arguments))

    def _update(self, id: str, known: Json, slot: Json) -> None:
        status = slot["status"] if slot["status"] != known["status"] else None
        old, new = known.get("output", ""), slot.get("output", "")
        grown = new.startswith(old)
        fields = {
            name: value
            for name, value in slot.items()
            if name not in ("status", "output") and _differ(value, known.get(name))
        }
        output = new[len(old) :] if grown else new
        self._found.append(ToolUpdate(self._seq, int(id), status, output, not grown, fields))

    def _end(self, id: str, slot: Json) -> None:
        self._found.append(ToolEnd(self._seq, int(id), slot["name"], slot["call_id"], bool(slot.get("is_error")), slot))

    # runs, turns, and the rest of the live document

    def _ends(self) -> None:
        old, new = _turn(self._old), _turn(self._new)
        if old is not None and old != new:
            self._found.append(TurnEnd(self._seq, *old))
        run = self._old.get("run")
        if run is not None and (new is None or new[0] != run["generation"]):
            self._found.append(RunEnd(self._seq, run["generation"]))

    def _begins(self) -> None:
        old, new = _turn(self._old), _turn(self._new)
        run = self._new.get("run")
        if new is not None and (old is None or old[0] != new[0]):
            self._found.append(RunStart(self._seq, run["generation"], run["inputs"], run["started_at"]))
        if new is not None and old != new:
            self._found.append(TurnStart(self._seq, *new))

    def _others(self) -> None:
        retry = self._new.get("retry")
        if retry is not None and retry != self._old.get("retry"):
            self._found.append(Retry(self._seq, retry["attempt"], retry["until"], retry["error"]))
        self._compactions(self._old.get("compactions") or {}, self._new.get("compactions") or {})
        for name in {**self._old, **self._new}:
            if name not in TOLD and self._new.get(name) != self._old.get(name):
                self._found.append(LiveChanged(self._seq, name, self._new.get(name)))

    def _compactions(self, old: Json, new: Json) -> None:
        if old is new:
            return
        for id, value in new.items():
            if _differ(value, old.get(id)):
                self._found.append(CompactionChanged(self._seq, id, value))
        self._found.extend(CompactionChanged(self._seq, id) for id in old if id not in new)

    # submissions, inbox, usage

    def _submissions(self) -> None:
        self._found.extend(_submission(self._seq, each) for each in self._frame.submissions)

    def _inbox(self, old: Json, new: Json) -> None:
        before = {item["submission"] for item in old["items"]}
        after = {item["submission"] for item in new["items"]}
        added = [item for item in new["items"] if item["submission"] not in before]
        removed = [id for id in (item["submission"] for item in old["items"]) if id not in after]
        if added or removed:
            self._found.append(InboxChanged(self._seq, added, removed))

    def _usage(self, old: Json, new: Json) -> None:
        for group, rows in new.items():
            known = old.get(group) or {}
            for name, used in rows.items():
                if _differ(used, known.get(name)):
                    self._found.append(UsageChanged(self._seq, group, name, used))


def _continues(old: Json, new: Json) -> bool:
    """Whether a streamed answer is the older one with more to it."""
    if old["model"] != new["model"] or len(new["blocks"]) < len(old["blocks"]):
        return False
    return all(
        after["type"] == before["type"]
        and all(after.get(field, "").startswith(before.get(field, "")) for field in ("text", "name", "arguments"))
        for before, after in zip(old["blocks"], new["blocks"], strict=False)
    )


def _grown(seq: int, at: int, old: Json, block: Json) -> MessageUpdate:
    """What a block has more than before."""
    field = "arguments" if block["type"] == "tool_call" else "text"
    delta = block[field][len(old.get(field, "")) :]
    name = block.get("name", "")[len(old.get("name", "")) :]
    return MessageUpdate(seq, at, block["type"], delta, name, "" if old else block.get("id", ""))


def _arguments(entries: list[Any], call_id: str) -> Json:
    """What the newest answer that makes this call wants to call it with."""
    for entry in reversed(entries):
        if entry["kind"] != ASSISTANT or not entry["messages"]:
            continue
        for block in entry["messages"][0]["content"]:
            if block["type"] == "tool_call" and block["id"] == call_id:
                return block["arguments"]
    return None


def _submission(seq: int, record: Submission) -> SubmissionChanged:
    return SubmissionChanged(
        seq,
        record.id,
        record.status,
        record.kind,
        record.request_id,
        record.entry,
        record.answer,
        record.reason,
        record.detail,
    )
