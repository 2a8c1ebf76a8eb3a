"""The event log: a row for each milestone, written in the commit that it tells of. Its number is the cursor.

So a reader gets each event once, in order and without gaps. The epoch changes only where a store was begun anew.
"""

import hashlib
import secrets
from typing import Any, Final, Literal

import msgspec

from perdure import Error, InvalidValue, TaskTransaction, plain
from perdure.subagents import rows
from perdure.subagents.names import generation_of
from perdure.subagents.state import Call, Counters, CountersDoc, Event, EventDoc, Workflow, event_key

PAGE: Final = 1000
"""Events a reader gets at once, at most."""
INLINE_BYTES: Final = 16 * 1024
"""Data of a sealed result that an event carries itself."""

Type = Literal[
    "submitted", "started", "asking", "answered", "sealed", "fenced", "workflow-done", "waiting", "moving",
    "model", "delivered", "held", "released", "revised", "pruned", "budget",
]  # fmt: skip
"""Readers ignore the types that they do not know."""


class CursorExpired(Error):
    """The events after this cursor cannot be given: another epoch, dropped, or beyond the head. `head` and `oldest` are
    cursors that work."""

    code = "cursor_expired"

    def __init__(self, head: str, oldest: str) -> None:
        super().__init__(
            "the cursor is not of this log, or what follows it was dropped",
            hint=f"begin again after {oldest}, or at the head {head}",
        )
        self.head = head
        self.oldest = oldest


class Page(msgspec.Struct, kw_only=True):
    """Events after a cursor. While `more` is set, the next ones follow `head`, which is the newest of these."""

    events: list[Event]
    head: str
    more: bool


async def counters(tx: TaskTransaction) -> Any:
    """The draft of the counters; of a new store, with an epoch."""
    found = await tx.doc(CountersDoc)
    if not found["epoch"]:
        found["epoch"] = secrets.token_hex(4)
    return found


async def append_event(
    tx: TaskTransaction, type: Type, *, workflow: Workflow | None = None, call: Call | None = None, **data: Any
) -> str:
    """Log a milestone in this commit; returns its cursor."""
    count = await counters(tx)
    count["event"] += 1
    number, epoch = count["event"], count["epoch"]
    event = Event(
        id=f"{epoch}-{number}",
        cursor=f"{epoch}.{number}",
        at=tx.now_millis / 1000,
        type=type,
        data={name: plain(value) for name, value in data.items() if value is not None},
    )
    if workflow is not None:
        event.wid, event.request, event.labels = workflow.wid, workflow.request, dict(workflow.labels)
    if call is not None:
        event.wid, event.key, event.gen = call.wid, call.key, call.generation
        event.call = generation_of(call.wid, call.key, call.generation)
    await rows.write(tx, EventDoc, event_key(number), event)
    return event.cursor


def inline(data: Any) -> dict[str, Any]:
    """A result's data for its event: itself, or its size where it is large."""
    if data is None:
        return {}
    size = len(msgspec.json.encode(data))
    return {"data": data} if size <= INLINE_BYTES else {"data_bytes": size}


def text_digest(text: str) -> dict[str, Any]:
    """Digest and length of a text that an event must not carry."""
    return {"digest": hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(), "length": len(text)}


def parse_cursor(cursor: str) -> tuple[str, int]:
    """Epoch and number. Raises `InvalidValue`."""
    epoch, dot, number = cursor.partition(".")
    if not dot or not epoch or not number.isdecimal() or len(number) > 15 or not number.isascii():
        raise InvalidValue(f"not a cursor: {cursor!r:.200}", hint="use one that events printed")
    return epoch, int(number)


async def head(reader: rows.Reader) -> str:
    """The cursor of the newest event."""
    count: Counters | None = await reader.snapshot(CountersDoc)
    return "0.0" if count is None else f"{count.epoch}.{count.event}"


async def of_workflow(reader: rows.Reader, wid: str) -> list[Event]:
    """A workflow's events, oldest first; also those that are older than others which were dropped."""
    return [event for event in await rows.rows(reader, EventDoc) if event.wid == wid]


async def after(reader: rows.Reader, cursor: str, limit: int = PAGE) -> Page:
    """The events that follow a cursor, oldest first, at most `limit`. Raises `CursorExpired`, `InvalidValue`."""
    epoch, number = parse_cursor(cursor)
    count: Counters | None = await reader.snapshot(CountersDoc)
    count = count or Counters(epoch="0")
    if epoch != count.epoch or not count.dropped <= number <= count.event:
        raise CursorExpired(f"{count.epoch}.{count.event}", f"{count.epoch}.{count.dropped}")
    limit = max(1, min(limit, PAGE))
    found: list[Event] = []
    for key in await reader.document_keys(EventDoc, after=event_key(number), limit=limit):
        event = await rows.read(reader, EventDoc, key)
        if event is not None:
            found.append(event)
    newest = parse_cursor(found[-1].cursor)[1] if found else count.event
    more = newest < count.event
    return Page(events=found, head=f"{epoch}.{newest}" if more else f"{epoch}.{count.event}", more=more)
