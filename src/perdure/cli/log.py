"""`perdure log`: a conversation's transcript, as it is stored."""

import asyncio
from pathlib import Path
from typing import Any

import click
import msgspec

from perdure.base import jsonvalue
from perdure.base.errors import NotFound
from perdure.base.ids import ROOT, ConversationId, EntryId
from perdure.cli.config import load_config
from perdure.cli.open import reading
from perdure.cli.session_names import find_session
from perdure.cli.show import emit, say, shortened
from perdure.models.messages import (
    AssistantMessage,
    Attachment,
    Message,
    SystemMessage,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    decode_messages,
    text_of,
)
from perdure.storage.records import Entry

PAGE = 500


@click.command("log")
@click.argument("session")
@click.option("--conversation", type=int, default=int(ROOT), show_default=True, help="Which conversation.")
@click.option("--last", type=click.IntRange(1), help="Only the newest entries.")
@click.option("--full", is_flag=True, help="Whole tool results instead of their first line.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def command(session: str, conversation: int, last: int | None, full: bool, as_json: bool) -> int:
    """Print a conversation's transcript; failed and aborted attempts are shown too, marked."""
    asyncio.run(_log(find_session(load_config(), session), ConversationId(conversation), last, full, as_json))
    return 0


async def _log(path: Path, conversation: ConversationId, last: int | None, full: bool, as_json: bool) -> None:
    async with reading(path) as store:
        if await store.conversation(conversation) is None:
            raise NotFound(f"no conversation {conversation}")
        if last is not None:
            newest = await store.storage.scan_entries(conversation, order="newest", limit=last)
            for entry in reversed(newest):
                _print(entry, full, as_json)
            return
        after: EntryId | None = None
        while page := await store.storage.scan_entries(conversation, after=after, limit=PAGE):
            for entry in page:
                _print(entry, full, as_json)
            after = page[-1].id


def _print(entry: Entry, full: bool, as_json: bool) -> None:
    messages = decode_messages(entry.messages)
    if as_json:
        emit(
            {
                "id": entry.id,
                "kind": entry.kind,
                "task": entry.task,
                "head": entry.head,
                "messages": msgspec.to_builtins(messages),
                "data": jsonvalue.decode(entry.data),
            }
        )
        return
    lines = [line for message in messages for line in described(message, full)]
    for line in lines or [f"({entry.kind})"]:
        say(f"{entry.id:>6}  {line}")


def described(message: Message, full: bool) -> list[str]:
    """A message as lines for people."""
    if isinstance(message, SystemMessage):
        names = ", ".join(message.sections) or "no sections"
        tools = "" if message.tools is None else f"; tools: {', '.join(tool.name for tool in message.tools) or 'none'}"
        return [f"system  {names}{tools}"]
    if isinstance(message, ToolResultMessage):
        text = text_of(message)
        mark = "error " if message.is_error else ""
        return [f"result  {message.name}: {mark}{text if full else shortened(text)}", *_files(message)]
    if isinstance(message, AssistantMessage):
        lines = []
        if message.stop in ("aborted", "error"):
            lines.append(f"agent   [{message.stop}: {message.error or ''}] {shortened(text_of(message))}")
        elif text_of(message):
            lines.append(f"agent   {text_of(message)}")
        calls = [block for block in message.content if isinstance(block, ToolCall)]
        lines += [f"call    {call.name} {_arguments(call, full)}" for call in calls]
        return [*lines, *_files(message)] or ["agent   (nothing)"]
    return [f"user    {text_of(message)}", *_files(message)]


def _files(message: UserMessage | AssistantMessage | ToolResultMessage) -> list[str]:
    blocks = [] if isinstance(message.content, str) else message.content
    files = [block for block in blocks if isinstance(block, Attachment)]
    return [f"file    {file.name or file.digest[:12]} ({file.media_type})" for file in files]


def _arguments(call: ToolCall, full: bool) -> str:
    arguments: Any = call.arguments
    text = arguments if isinstance(arguments, str) else jsonvalue.encode(arguments).decode()
    return text if full else shortened(text)
