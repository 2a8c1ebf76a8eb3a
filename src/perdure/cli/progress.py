"""Following a run: lines on stderr for people, JSON events on stdout for programs. Both read committed state."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from perdure.agent.documents import LiveDoc
from perdure.cli.show import emit, note, shortened
from perdure.harness.conversation import Conversation
from perdure.harness.harness import Harness


@asynccontextmanager
async def follow(harness: Harness, conversation: Conversation, as_json: bool) -> AsyncIterator[None]:
    """Report what happens in a conversation while the block runs."""
    if not as_json and not sys.stderr.isatty():
        yield
        return
    async with harness.watch_document(LiveDoc, conversation.id) as watch:
        reader = asyncio.create_task(_read(watch, as_json))
        try:
            yield
            await asyncio.sleep(0)  # frames of the last commit are there already
        finally:
            watch.stop()
            with contextlib.suppress(asyncio.CancelledError):
                await reader


async def _read(watch: Any, as_json: bool) -> None:
    events = LiveEvents()
    for event in events.of(watch.value):
        _report(event, as_json)
    async for frame in watch:
        for event in events.of(frame.value):
            _report(event, as_json)


def _report(event: dict[str, Any], as_json: bool) -> None:
    if as_json:
        emit(event)
    elif event["type"] == "tool":
        mark = {"running": "…", "done": "✓", "failed": "✗"}.get(event["status"], "·")
        note(f"{mark} {event['name']}")
    elif event["type"] == "retry":
        note(f"… trying again: {shortened(event['error'])}")
    elif event["type"] == "deferred":
        note("… the provider answers later")


class LiveEvents:
    """What changed from one value of the live document to the next, as events."""

    def __init__(self) -> None:
        self._tools: dict[str, str] = {}
        self._text = ""
        self._retry: Any = None
        self._deferred: Any = None

    def of(self, live: Any) -> list[dict[str, Any]]:
        """The events that lead to this value."""
        found: list[dict[str, Any]] = []
        if live is None:
            return found
        blocks = live["partial"]["blocks"] if live["partial"] else []
        text = "".join(block["text"] for block in blocks if block["type"] == "text")
        if text != self._text:
            if text.startswith(self._text) and text:
                found.append({"type": "text", "delta": text[len(self._text) :]})
            elif text:
                found.append({"type": "text", "delta": text, "restarted": True})
            self._text = text
        for id, slot in live["tools"].items():
            status = "failed" if slot.get("is_error") else slot["status"]
            if self._tools.get(id) != status:
                self._tools[id] = status
                found.append({"type": "tool", "task": int(id), "name": slot["name"], "status": status})
        if live["retry"] != self._retry:
            self._retry = live["retry"]
            if self._retry is not None:
                found.append({"type": "retry", **self._retry})
        deferred = live.get("deferred")
        if deferred != self._deferred:
            self._deferred = deferred
            if deferred is not None:
                found.append({"type": "deferred", **deferred})
        return found
