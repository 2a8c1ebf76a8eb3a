"""Going on past the context: hand over to oneself with a note, and look up what was said before."""

from collections.abc import Iterator
from typing import Annotated, Any, Final

from msgspec import Meta

from perdure.base import jsonvalue
from perdure.base.text import well_formed
from perdure.extensions.api import ToolContext
from perdure.extensions.extension import Extension
from perdure.extensions.results import Handoff, ToolError, ToolResult
from perdure.extensions.tool import Tool

PAGE: Final = 200
"""Entries read at once: whatever else runs gets its turn between two pages."""
HITS: Final = 20
"""Messages that one search shows; with the text around each about 3,000 tokens."""
AROUND: Final = 240
"""Characters shown on each side of what was found."""

SEARCH: Final = "search_history"
GO_ON: Final = "Continue."


async def _handoff(
    ctx: ToolContext,
    note: Annotated[str, Meta(min_length=1, description="All that you will know: goal, state, what to do next")],
) -> ToolResult:
    """Start over in an empty context that begins with your note, and go on from there.

    Use it when the work so far takes up room that the rest needs. What came before stays searchable.
    """
    # queued behind the handoff, so it begins the next run, in the new context
    await ctx.conversation().submit(GO_ON, request_id=f"perdure.handoff:{ctx.task_id}")
    return ToolResult("Handed off.", control=Handoff(note))


async def _search_history(
    ctx: ToolContext,
    text: Annotated[str, Meta(min_length=1, description="Words that all stand in the message, in any order and case")],
    before: Annotated[int | None, Meta(description="Go on behind the last result: its number")] = None,
) -> str:
    """Search everything said and done in this conversation, also before summaries and handoffs, newest first."""
    words = well_formed(text).casefold().split()
    if not words:
        raise ToolError("nothing to search for")
    conversation: Any = ctx.conversation()
    hits: list[str] = []
    searched = 0
    at = before
    while True:
        page = await conversation.entries(before=at, newest_first=True, limit=PAGE)
        for entry in page:
            searched += 1
            at = entry.id
            for who, said in _texts(entry.messages):
                found = _found(said, words)
                if found is not None:
                    hits.append(f"#{entry.id} {who}: {_around(said, *found)}")
            if len(hits) >= HITS:
                return _shown(hits, f"[more may follow: search again with before={at}]")
        if len(page) < PAGE:
            return _shown(hits, f"[{searched:,} entries searched, to the beginning]")


handoff = Tool(_handoff, name="handoff", replay="safe")
search_history = Tool(_search_history, name=SEARCH, replay="safe")

history_tools = Extension("history")
history_tools.add(handoff, search_history)


def _texts(messages: bytes) -> Iterator[tuple[str, str]]:
    """Who said what in an entry. What searches found and were asked is left out: it would be found again."""
    if messages == b"[]":
        return
    decoded: Any = jsonvalue.decode(messages)
    for message in decoded:
        role, content = message["role"], message.get("content")
        if role == "system" or message.get("name") == SEARCH:
            continue
        who = f"result of {message['name']}" if role == "tool_result" else role
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            if block["type"] == "text":
                yield who, block["text"]
            elif block["type"] == "tool_call" and block["name"] != SEARCH:
                arguments = block["arguments"]
                raw = arguments if isinstance(arguments, str) else jsonvalue.encode(arguments).decode()
                yield f"call of {block['name']}", raw


def _found(text: str, words: list[str]) -> tuple[int, int] | None:
    """Where to look: the first word's place and length, if all words are there."""
    folded = text.casefold()
    if any(word not in folded for word in words):
        return None
    return folded.index(words[0]), len(words[0])


def _around(text: str, at: int, size: int) -> str:
    begin, end = max(at - AROUND, 0), at + size + AROUND
    shown = " ".join(text[begin:end].split())
    return f"{'…' if begin else ''}{shown}{'…' if end < len(text) else ''}"


def _shown(hits: list[str], note: str) -> str:
    return "\n".join([*(hits or ["nothing found"]), note])
