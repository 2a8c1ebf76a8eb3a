"""One model request: the stream, its partial answers as committed state, the whole response at the end."""

from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec

from perdure.agent.attachments import keep_files
from perdure.agent.documents import LiveDoc
from perdure.agent.entries import AssistantEntry, put
from perdure.agent.usage import book
from perdure.base.delta import Operation
from perdure.base.errors import InvocationEnded
from perdure.base.ids import ConversationId, TaskId
from perdure.base.text import well_formed
from perdure.models.errors import CutOff
from perdure.models.messages import AssistantMessage, Attachment, Said, Text, Thinking, ToolCall
from perdure.models.protocol import Deferred, Event, Finished, TextDelta, ThinkingDelta, ToolCallDelta
from perdure.models.unicode import Stitch, parse_arguments
from perdure.tasks.runtime import TaskRun
from perdure.tasks.transaction import TaskTransaction

FEW: Final = 48
"""Characters that are worth a commit of their own: its bytes on the wire are then below three times the text."""


class Partial:
    """An answer while it streams: blocks as JSON, and the operations since they were last committed."""

    def __init__(self, model: str) -> None:
        self._model = model
        self.blocks: list[dict[str, Any]] = []
        self._indexes: dict[int, int] = {}
        self._pending: dict[tuple[int, str], list[str]] = {}
        self._new: list[int] = []
        self._stitches: dict[tuple[int, str], Stitch] = {}
        self._shown = False
        self.waiting = 0
        """Characters that came since the operations were taken."""

    def add(self, event: Event) -> None:
        """Take one delta."""
        match event:
            case TextDelta(index=index, text=text):
                self._grow(self._block(index, {"type": "text", "text": ""}), "text", text)
            case ThinkingDelta(index=index, text=text):
                self._grow(self._block(index, {"type": "thinking", "text": ""}), "text", text)
            case ToolCallDelta(index=index, id=id, name=name, arguments=arguments):
                at = self._block(index, {"type": "tool_call", "id": id or "", "name": "", "arguments": ""})
                if name:
                    self._grow(at, "name", name)
                if arguments:
                    self._grow(at, "arguments", arguments)
            case _:
                pass

    @property
    def changed(self) -> bool:
        return bool(self._pending or self._new)

    def take_operations(self) -> list[Operation]:
        """What changed since the last call, as operations on the live document."""
        if not self._shown:
            self._shown = True
            self._forget()
            return [
                {"op": "replace", "path": "/partial", "value": {"model": self._model, "blocks": self._settled_blocks()}}
            ]
        fresh = set(self._new)
        ops: list[Operation] = []
        for at in self._new:
            ops.append({"op": "add", "path": f"/partial/blocks/{at}", "value": self._settled_block(at)})
        for (at, field), pieces in self._pending.items():
            if at not in fresh:
                ops.append({"op": "append", "path": f"/partial/blocks/{at}/{field}", "value": "".join(pieces)})
        self._forget()
        return ops

    def message(self, model: str, stop: Any, error: str | None) -> AssistantMessage:
        """What came so far as a message that says how it was cut off; calls are left out, they were not whole."""
        return cut_message(self._settled_blocks(), model, stop, error)

    def _forget(self) -> None:
        self._pending = {}
        self.waiting = 0
        self._new = []

    def _block(self, index: int, empty: dict[str, Any]) -> int:
        at = self._indexes.get(index)
        if at is None:
            at = self._indexes[index] = len(self.blocks)
            self.blocks.append({key: ([] if value == "" else value) for key, value in empty.items()})
            self._new.append(at)
        return at

    def _grow(self, at: int, field: str, text: str) -> None:
        text = self._stitches.setdefault((at, field), Stitch()).add(text)  # half a character waits for its other half
        if not text:
            return
        self.blocks[at][field].append(text)
        self._pending.setdefault((at, field), []).append(text)
        self.waiting += len(text)

    def _settled_block(self, at: int) -> dict[str, Any]:
        return {
            key: (well_formed("".join(value)) if isinstance(value, list) else value)
            for key, value in self.blocks[at].items()
        }

    def _settled_blocks(self) -> list[dict[str, Any]]:
        return [self._settled_block(at) for at in range(len(self.blocks))]


def sound(message: AssistantMessage) -> AssistantMessage:
    """The response as it can be stored and paired: well-formed text, arguments that are JSON, and an id of its own for
    each call, since its result finds it by that."""
    content: list[Said] = []
    used: set[str] = set()
    for number, block in enumerate(message.content):
        match block:
            case Text(text=text):
                content.append(msgspec.structs.replace(block, text=well_formed(text)))
            case Thinking(text=text):
                content.append(msgspec.structs.replace(block, text=well_formed(text)))
            case ToolCall(id=id, name=name, arguments=arguments):
                id, name = well_formed(id) or f"call_{number}", well_formed(name)
                while id in used:
                    id = f"{id}_{number}"
                used.add(id)
                content.append(ToolCall(id, name, parse_arguments(arguments), block.provider))
            case Attachment():
                content.append(block)
    return msgspec.structs.replace(message, content=content)


def cut_message(blocks: list[dict[str, Any]], model: str, stop: Any, error: str | None) -> AssistantMessage:
    """Partial blocks as the message of an attempt that did not end."""
    content: list[Said] = []
    for block in blocks:
        if block["type"] == "text" and block["text"]:
            content.append(Text(block["text"]))
        elif block["type"] == "thinking" and block["text"]:
            content.append(Thinking(block["text"]))
    return AssistantMessage(content, stop=stop, model=model, error=error)


async def keep_partial(tx: TaskTransaction, conversation: ConversationId, task: TaskId, error: str) -> None:
    """A partial answer that was committed becomes an entry, marked as aborted, that models do not see; its tokens are
    unknown."""
    live: Any = await tx.value_of(LiveDoc, conversation)
    partial = None if live is None else live["partial"]
    if partial is None:
        return
    message = cut_message(partial["blocks"], partial["model"], "aborted", error)
    put(tx, conversation, AssistantEntry, message, task=task)
    await book(tx, conversation, "models", partial["model"], None)
    await tx.patch(LiveDoc, conversation, [{"op": "replace", "path": "/partial", "value": None}])


class Progress:
    """Commits a live value at most every interval. The commits are progress: durable with the next other one."""

    def __init__(self, run: TaskRun, interval: float, clock: Any) -> None:
        self._run = run
        self._interval = interval
        self._clock = clock
        self._last = clock.monotonic()

    def due(self, waiting: int) -> bool:
        """Whether to commit now. Few characters wait for more, up to twice the interval: every commit is told to
        everyone who watches, and its envelope takes some 90 bytes."""
        passed = self._clock.monotonic() - self._last
        return bool(passed >= self._interval and (waiting >= FEW or passed >= 2 * self._interval))

    async def commit(self, ops: list[Operation]) -> None:
        """Publish the operations now."""
        if ops:
            async with self._run.transaction(progress=True) as tx:
                await tx.patch(LiveDoc, self._run.conversation_id, ops)
        self._last = self._clock.monotonic()


async def stream_answer(
    run: TaskRun, stream: AsyncIterator[Event], partial: Partial, interval: float, clock: Any
) -> AssistantMessage | Deferred:
    """Read what a model streams; partial answers become committed state on the way. Returns the whole response.

    Raises the model's errors; `partial` then holds what came before.
    """
    progress = Progress(run, interval, clock)
    try:
        async for event in stream:
            if isinstance(event, Deferred):
                return event
            if isinstance(event, Finished):
                if event.files:
                    async with run.transaction() as tx:  # before the answer that refers to them
                        keep_files(tx, event.message, event.files)
                return sound(event.message)
            partial.add(event)
            if progress.due(partial.waiting):
                await progress.commit(partial.take_operations())
            if run.ended:
                raise InvocationEnded("the task's invocation has ended")
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()
    raise CutOff("the stream ended without the end of the response")
