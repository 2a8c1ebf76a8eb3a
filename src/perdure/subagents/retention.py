"""How long the event log is kept: what is old and belongs to nothing that is under way is dropped.

A cursor before the newest dropped event has expired. Events of work that is under way stay, however old they are, and
are found by the workflow's timeline.
"""

from typing import Any, Final

from perdure import TaskTransaction
from perdure.session.session import Session
from perdure.subagents import rows
from perdure.subagents.events import counters
from perdure.subagents.state import Event, EventDoc, LiveDoc

COMPACT_SECONDS: Final = 3600.0
AT_ONCE: Final = 200
"""So many events are looked at in one commit: whoever else wants to commit gets in between."""


async def compact(session: Session[Any], retention_ms: int) -> int:
    """Drop the events that were logged longer ago and whose workflow has ended with nothing open, or was pruned;
    returns how many."""
    dropped, after = 0, ""
    while True:
        async with session.transaction() as tx:
            keys = await tx.document_keys(EventDoc, after=after or None, limit=AT_ONCE)
            count, more = await _drop(tx, keys, tx.now_millis - retention_ms)
        dropped += count
        if not more:
            return dropped
        after = keys[-1]


async def _drop(tx: TaskTransaction, keys: list[str], before_ms: float) -> tuple[int, bool]:
    """Drop what may go of these; how many, and whether later ones may be old enough too."""
    live = set(await rows.keys(tx, LiveDoc))
    newest, dropped = "", 0
    young = False
    for key in keys:
        event: Event | None = await rows.read(tx, EventDoc, key)
        if event is None:
            continue
        if event.at * 1000 > before_ms:
            young = True
            break
        if event.wid not in live:
            await tx.retire(EventDoc, key=key)
            newest, dropped = key, dropped + 1
    if newest:
        count = await counters(tx)
        count["dropped"] = max(count["dropped"], int(newest))
    return dropped, len(keys) == AT_ONCE and not young
