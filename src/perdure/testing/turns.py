"""What a scripted model says: turns, and short ways to write them."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from perdure.models.errors import CutOff, ModelError
from perdure.models.messages import AssistantMessage, Attachment, Said, StopReason, Text, Thinking, ToolCall, Usage
from perdure.models.protocol import ModelRequest

Block = Said

USAGE = Usage(input=100, output=10)
"""What a turn costs unless it says otherwise."""


class Turn(msgspec.Struct, frozen=True):
    """One response: its blocks, how it ends, and what happens on the way.

    `error` is raised instead of an answer, or after `cut_after` deltas of one. `usage` None: none is reported.
    """

    content: tuple[Block, ...] = ()
    stop: StopReason | None = None
    usage: Usage | None = USAGE
    wait: float = 0.0
    """Seconds by the injected clock before the first delta."""
    wait_between: float = 0.0
    """Seconds by the injected clock before each further delta."""
    error: ModelError | None = None
    cut_after: int | None = None
    hold: asyncio.Event | None = None
    """The stream stands still before its first delta until this is set."""
    files: dict[str, bytes] = {}
    """The bytes of its attachments, by digest."""
    deferred: tuple[float, ...] = ()
    """The provider puts the answer off: it is worth asking after so many seconds, then after so many more, and so on.
    """

    def with_usage(self, usage: Usage | None) -> "Turn":
        """The same turn, counted differently."""
        return msgspec.structs.replace(self, usage=usage)

    def after(self, seconds: float, *, between: float = 0.0) -> "Turn":
        """The same turn, later and slower."""
        return msgspec.structs.replace(self, wait=seconds, wait_between=between)

    def held_by(self, event: asyncio.Event) -> "Turn":
        """The same turn, standing still before its first delta until the event is set."""
        return msgspec.structs.replace(self, hold=event)


TurnLike = Turn | Block | str | ModelError | Sequence["Turn | Block | str"]
"""A text says it; a call calls it; a list is one turn of several blocks; an error fails."""


class OutOfTurns(ModelError):
    """The script has no turn for this request: it asked more often than the script foresaw."""

    code = "out_of_turns"

    def __init__(self, asked: int, turns: int) -> None:
        super().__init__(f"the script holds {turns} turns, and turn {asked + 1} was asked for")


TurnFunction = Callable[[ModelRequest], TurnLike]


class Script:
    """A list of turns that is told by what a request holds, not by how many requests came.

    Turn n answers a request that holds n assistant turns. Failing turns count for none: each stands before the turn
    that it delays, and fails once for every conversation of this process.
    """

    def __init__(self, turns: Sequence[TurnLike]) -> None:
        self._due: list[list[Turn]] = [[]]
        for turn in map(as_turn, turns):
            self._due[-1].append(turn)
            if turn.error is None:
                self._due.append([])
        self._taken: dict[tuple[str | None, int], int] = {}

    def __call__(self, request: ModelRequest) -> Turn:
        place = progress(request)
        due = self._due[place] if place < len(self._due) else []
        key = (request.session_id, place)
        taken = self._taken.get(key, 0)
        if not due or (taken >= len(due) and due[-1].error is not None):
            raise OutOfTurns(place, len(self._due) - 1)
        self._taken[key] = taken + 1
        return due[min(taken, len(due) - 1)]


def progress(request: ModelRequest) -> int:
    """How many answers of the model a request holds; those that were cut off never get into one."""
    return sum(
        isinstance(message, AssistantMessage) and message.stop not in {"aborted", "error"}
        for message in request.messages
    )


def say(text: str, *, stop: StopReason = "stop", usage: Usage | None = USAGE) -> Turn:
    """A turn that answers with text."""
    return Turn((Text(text),), stop=stop, usage=usage)


def think(text: str, *, signature: str | None = None) -> Turn:
    """A turn that only thinks; put it in a list before `say` or `call`."""
    return Turn((Thinking(text, signature=signature),), stop="stop")


def call(name: str, arguments: Mapping[str, Any] | str | None = None, *, id: str = "") -> Turn:
    """A turn that calls a tool; several in a list are calls in parallel. Text as arguments goes out as it stands."""
    given = arguments if isinstance(arguments, str) else dict(arguments or {})
    return Turn((ToolCall(id=id, name=name, arguments=given),))


def show(image: bytes, media_type: str = "image/png") -> Turn:
    """A turn that answers with an image."""
    digest = sha256(image).hexdigest()
    return Turn((Attachment(digest, media_type),), files={digest: image})


def fail(error: ModelError) -> Turn:
    """A request that fails before anything came."""
    return Turn(error=error)


def cut(after_n_deltas: int, turn: TurnLike, error: ModelError | None = None) -> Turn:
    """A stream that breaks off after so many deltas of `turn`, with `error` (a `CutOff` unless another is given)."""
    broken = error or CutOff("the script cuts this answer off")
    return msgspec.structs.replace(as_turn(turn), cut_after=after_n_deltas, error=broken)


def wait(seconds: float, turn: TurnLike) -> Turn:
    """A turn that begins after so many seconds of the injected clock."""
    return as_turn(turn).after(seconds)


def later(after: float, turn: TurnLike, *more: float) -> Turn:
    """A turn that the provider puts off, as batch interfaces do: asked for after so many seconds; each of `more` is a
    further pause that it then asks for. Answered at once where the request does not allow that."""
    return msgspec.structs.replace(as_turn(turn), deferred=(after, *more))


def as_turn(turn: TurnLike) -> Turn:
    """Whatever a script may hold, as one turn. A list joins the blocks; its last part decides how the turn ends."""
    if isinstance(turn, Turn):
        return turn
    if isinstance(turn, str):
        return say(turn)
    if isinstance(turn, ModelError):
        return fail(turn)
    if isinstance(turn, Sequence):
        parts = [as_turn(part) for part in turn]
        blocks = tuple(block for part in parts for block in part.content)
        if not parts:
            return Turn()
        stop = None if parts[-1].stop == "stop" else parts[-1].stop
        files = {digest: data for part in parts for digest, data in part.files.items()}
        return msgspec.structs.replace(parts[-1], content=blocks, stop=stop, files=files)
    return Turn((turn,))
