"""Following a run: lines on stderr for people, events as JSON lines on stdout for programs. Both tell of commits."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from perdure.cli.show import emit, note, shortened
from perdure.events import Event, EventStream, Retry, ToolEnd, ToolStart
from perdure.harness.conversation import Conversation


@asynccontextmanager
async def follow(conversation: Conversation, as_json: bool) -> AsyncIterator[None]:
    """Report what happens in a conversation while the block runs, up to the commit that it has seen last."""
    if not as_json and not sys.stderr.isatty():
        yield
        return
    async with conversation.events() as events:
        reader = asyncio.create_task(_read(events, as_json))
        try:
            yield
            await asyncio.sleep(0)  # events of the last commit are there already
        finally:
            events.stop()
            with contextlib.suppress(asyncio.CancelledError):
                await reader


async def _read(events: EventStream, as_json: bool) -> None:
    async for event in events:
        if as_json:
            emit(msgspec.to_builtins(event))
        else:
            _tell(event)


def _tell(event: Event) -> None:
    match event:
        case ToolStart(name=name):
            note(f"… {name}")
        case ToolEnd(name=name, is_error=failed):
            note(f"{'✗' if failed else '✓'} {name}")
        case Retry(error=error):
            note(f"… trying again: {shortened(error)}")
        case _:
            pass
