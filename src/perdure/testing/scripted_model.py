"""A model that says what a script tells it to: for tests, for demonstrations, and for work without a network.

It is as strict as the strictest provider, so that a request which a real one would refuse fails here too.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import msgspec

from perdure.base.clock import Clock, SystemClock
from perdure.models.errors import DeferredLost, UnknownModel
from perdure.models.messages import AssistantMessage, StopReason, Text, Thinking, ToolCall, Usage
from perdure.models.protocol import Deferred, Event, Finished, ModelRequest, TextDelta, ThinkingDelta, ToolCallDelta
from perdure.testing.strict import check_request
from perdure.testing.turns import (
    Block,
    OutOfTurns,
    Script,
    Turn,
    TurnFunction,
    TurnLike,
    as_turn,
    call,
    cut,
    fail,
    later,
    progress,
    say,
    show,
    think,
    wait,
)

__all__ = [
    "NamedScript",
    "OutOfTurns",
    "Script",
    "ScriptedModel",
    "Turn",
    "call",
    "cut",
    "fail",
    "later",
    "say",
    "show",
    "think",
    "wait",
]

Turns = Sequence[TurnLike] | TurnFunction


class ScriptedModel:
    """A model and a `Models` in one: pass it as `models=`, and every name (or each of `names`) resolves to it.

    `turns` is a list, used up in order over all conversations, or a function from the request to the next turn.
    `by_progress` picks by the conversation instead, so that a reopened process goes on where the script was.

    `chunk` is the number of characters per delta. `strict=False` lets any request through. `requests` keeps every
    request that came, refused ones too; `polls` every question for a deferred answer, and `cancelled` every deferred
    answer that nobody wanted any more; `usage` is the provider's own ledger: what its finished answers reported.
    """

    def __init__(
        self,
        turns: Turns,
        *,
        name: str = "scripted:model",
        names: Sequence[str] | None = None,
        context_window: int | None = None,
        system_updates: bool = False,
        chunk: int = 8,
        strict: bool = True,
        clock: Clock | None = None,
        price: Callable[[Usage], float | None] | None = None,
    ) -> None:
        self._turns: list[TurnLike] | TurnFunction = turns if callable(turns) else list(turns)
        self._name = name
        self._names = None if names is None else frozenset(names)
        self._context_window = context_window
        self._system_updates = system_updates
        self._chunk = chunk
        self._strict = strict
        self._clock = clock or SystemClock()
        self._price = price
        self._next = 0
        self.requests: list[ModelRequest] = []
        self.polls: list[Any] = []
        self.cancelled: list[Any] = []
        self.usage = Usage()

    @classmethod
    def by_progress(
        cls,
        turns: Sequence[TurnLike],
        *,
        name: str = "scripted:model",
        names: Sequence[str] | None = None,
        context_window: int | None = None,
        system_updates: bool = False,
        chunk: int = 8,
        clock: Clock | None = None,
    ) -> "ScriptedModel":
        """A script told by the request itself (see `Script`): a retry, a fork or a second process gets what is due."""
        return cls(
            Script(turns),
            name=name,
            names=names,
            context_window=context_window,
            system_updates=system_updates,
            chunk=chunk,
            clock=clock,
        )

    @property
    def name(self) -> str:
        return self._name

    @property
    def context_window(self) -> int | None:
        return self._context_window

    @property
    def system_updates(self) -> bool:
        return self._system_updates

    def model(self, name: str) -> "ScriptedModel | NamedScript":
        """Itself under that name; `UnknownModel` if `names` were given and it is none of them."""
        if self._names is not None and name not in self._names:
            raise UnknownModel(f"the script has no model {name!r}", hint=f"known: {', '.join(sorted(self._names))}")
        return self if name == self._name else NamedScript(self, name)

    def cost(self, name: str, message: AssistantMessage) -> float | None:
        """What `price` says; unknown without one."""
        if message.usage is None or self._price is None:
            return None
        return self._price(message.usage)

    def stream(self, request: ModelRequest) -> AsyncGenerator[Event]:
        return self.stream_as(self._name, request)

    async def stream_as(self, name: str, request: ModelRequest) -> AsyncGenerator[Event]:
        """The next turn, for a request made under `name`."""
        self.requests.append(request)
        if self._strict:
            await check_request(request, self._context_window, self._system_updates)
        turn = self._take(request)
        content = [_with_id(block, request, number) for number, block in enumerate(turn.content)]
        if turn.hold is not None:
            await turn.hold.wait()
        if turn.deferred and request.deferrable:
            yield Deferred(_handle(f"deferred-{len(self.requests)}", turn, content), turn.deferred[0])
            return
        async for event in self._tell(name, turn, content):
            yield event

    async def poll_as(self, name: str, handle: Any) -> AsyncGenerator[Event]:
        """What a deferred answer has come to. The handle holds all of it, so that any process can ask."""
        self.polls.append(handle)
        told = msgspec.convert(handle, type=_Handle)
        if any(one["id"] == told.id for one in self.cancelled):
            raise DeferredLost("it was cancelled")
        if told.pauses:
            yield Deferred({**handle, "pauses": told.pauses[1:]}, told.pauses[0])
            return
        async for event in self._tell(name, Turn(stop=told.stop, usage=told.usage), told.content):
            yield event

    def poll(self, handle: Any, request: ModelRequest) -> AsyncGenerator[Event]:
        return self.poll_as(self._name, handle)

    async def cancel(self, handle: Any) -> None:
        self.cancelled.append(handle)

    async def _tell(self, name: str, turn: Turn, content: list[Block]) -> AsyncGenerator[Event]:
        deltas = self._deltas(content) if turn.error is None or turn.cut_after is not None else []
        for number, event in enumerate(deltas[: turn.cut_after]):
            if pause := turn.wait if number == 0 else turn.wait_between:
                await self._clock.sleep(pause)
            yield event
        if turn.error is not None:
            raise turn.error.with_traceback(None)
        self._count(turn.usage)
        stop = turn.stop or _stop(content)
        message = AssistantMessage(content=content, stop=stop, model=name, usage=turn.usage)
        yield Finished(message, turn.files)

    def _take(self, request: ModelRequest) -> Turn:
        if not isinstance(self._turns, list):
            return as_turn(self._turns(request))
        if self._next >= len(self._turns):
            raise OutOfTurns(self._next, len(self._turns))
        self._next += 1
        return as_turn(self._turns[self._next - 1])

    def _deltas(self, content: Sequence[Block]) -> list[Event]:
        events: list[Event] = []
        for index, block in enumerate(content):
            match block:
                case Text():
                    events += [TextDelta(index, piece) for piece in self._pieces(block.text)]
                case Thinking():
                    events += [ThinkingDelta(index, piece) for piece in self._pieces(block.text)]
                case ToolCall():
                    arguments = block.arguments
                    raw = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
                    events.append(ToolCallDelta(index, id=block.id, name=block.name))
                    events += [ToolCallDelta(index, arguments=piece) for piece in self._pieces(raw)]
        return events

    def _pieces(self, text: str) -> list[str]:
        return [text[start : start + self._chunk] for start in range(0, len(text), self._chunk)]

    def _count(self, usage: Usage | None) -> None:
        if usage is None:
            return
        total = self.usage
        self.usage = Usage(
            input=total.input + usage.input,
            output=total.output + usage.output,
            cache_read=total.cache_read + usage.cache_read,
            cache_write=total.cache_write + usage.cache_write,
        )


class NamedScript:
    """A scripted model under another name; the script, its requests and its bill are the model's."""

    def __init__(self, script: ScriptedModel, name: str) -> None:
        self._script = script
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    @property
    def context_window(self) -> int | None:
        return self._script.context_window

    @property
    def system_updates(self) -> bool:
        return self._script.system_updates

    def stream(self, request: ModelRequest) -> AsyncGenerator[Event]:
        return self._script.stream_as(self._name, request)

    def poll(self, handle: Any, request: ModelRequest) -> AsyncGenerator[Event]:
        return self._script.poll_as(self._name, handle)

    async def cancel(self, handle: Any) -> None:
        await self._script.cancel(handle)


def _with_id(block: Block, request: ModelRequest, number: int) -> Block:
    """A call without an id gets one that follows from its place, so that a second process gives it the same."""
    if isinstance(block, ToolCall) and not block.id:
        return msgspec.structs.replace(block, id=f"call_{progress(request)}_{number}")
    return block


def _stop(content: Sequence[Block]) -> StopReason:
    return "tool_calls" if any(isinstance(block, ToolCall) for block in content) else "stop"


class _Handle(msgspec.Struct):
    """A deferred answer, as its handle tells it."""

    id: str
    pauses: list[float]
    content: list[Block]
    stop: StopReason | None
    usage: Usage | None


def _handle(id: str, turn: Turn, content: list[Block]) -> Any:
    if turn.error is not None or turn.files:
        raise ValueError("a deferred turn neither fails nor shows images")
    handle = _Handle(id, list(turn.deferred[1:]), content, turn.stop, turn.usage)
    return msgspec.to_builtins(handle)
