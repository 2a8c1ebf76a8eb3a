"""What tools and hooks may return."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

import msgspec

from perdure.base import jsonvalue
from perdure.base.errors import Error, InvalidValue
from perdure.base.ids import TaskId
from perdure.base.text import well_formed
from perdure.base.typed import codec
from perdure.models.messages import Attachment, Content, Text, Usage
from perdure.tasks.states import Policy, SignalKey

C = TypeVar("C")


class ToolError(Error):
    """Raised by a tool: its text, exactly, becomes an error result that the model reads."""

    code = "tool_error"


class Terminate(msgspec.Struct, frozen=True, tag="terminate"):
    """Ends the run when every call of the round asks for it."""

    @property
    def kind(self) -> str:
        return "terminate"


class ToolResult(msgspec.Struct, frozen=True, kw_only=False):
    """A tool's result.

    `content` is what the model reads: text, or a list of text and attachment blocks. `details` (JSON) is for UIs,
    `diagnostics` are lines for the model, appended as one marked block. `usage` is the tool's own spend; `control`
    steers the run. `structured` keeps a typed return value as JSON.
    """

    content: str | list[Content]
    is_error: bool = False
    details: Any = None
    diagnostics: list[str] | None = None
    usage: Usage | None = None
    control: Terminate | None = None
    structured: Any = None


@dataclass(frozen=True)
class Sleep(Generic[C]):
    """Park the call until a time, a signal, or whichever comes first; the tool then runs again with `ctx.wake`."""

    signals: Sequence[SignalKey] = ()
    until: float | datetime | None = None
    checkpoint: C | None = None


@dataclass(frozen=True)
class Wait(Generic[C]):
    """Park the call until tasks have ended; the tool then runs again with `ctx.wake`."""

    on: Sequence[TaskId] = ()
    policy: Policy = "all_settled"
    checkpoint: C | None = None


@dataclass(frozen=True)
class Block:
    """A gate's no: the call does not run, and the model reads the reason."""

    reason: str


@dataclass(frozen=True)
class Continue:
    """Sends the agent back to work with this input."""

    input: str


@dataclass(frozen=True)
class Changed:
    """An edit of a selection: names to add to, or remove from, the host's default."""

    kind: Literal["add", "remove"]
    names: tuple[str, ...] = field(default=())


def Add(*names: str) -> Changed:  # reads as a value at the call
    """These names in addition to the default."""
    return Changed("add", names)


def Remove(*names: str) -> Changed:
    """The default without these names."""
    return Changed("remove", names)


class Unset:
    """The type of `UNSET`: a field that is not to be changed."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET = Unset()


def normalized(value: Any, returns: Any) -> ToolResult | Sleep[Any] | Wait[Any]:
    """A tool's return value as a result or a park. `returns` is its annotation.

    Text and None are content; any other annotated type goes out as JSON text and is kept as `structured`. Raises
    `InvalidValue` for what cannot be stored.
    """
    if isinstance(value, Sleep | Wait):
        return value
    if isinstance(value, ToolResult):
        return _checked(value)
    if value is None:
        return ToolResult("")
    if isinstance(value, str):
        return ToolResult(well_formed(value))
    json = codec(returns if returns is not None else Any, where="the tool's result").to_json(value)
    return ToolResult(jsonvalue.encode(json).decode(), structured=json)


def _checked(result: ToolResult) -> ToolResult:
    content = result.content
    if isinstance(content, str):
        content = well_formed(content)
    elif isinstance(content, list):
        content = [_block(block) for block in content]
    else:
        raise InvalidValue(f"a result's content is text or a list of blocks, not {type(content).__name__}")
    if result.details is not None:
        jsonvalue.check(result.details, path="/details")
    lines = None if result.diagnostics is None else [well_formed(str(line)) for line in result.diagnostics]
    return msgspec.structs.replace(result, content=content, diagnostics=lines)


def _block(block: Any) -> Content:
    if isinstance(block, Text):
        return Text(well_formed(block.text))
    if isinstance(block, Attachment):
        return block
    raise InvalidValue(f"a result's blocks are Text and Attachment, not {type(block).__name__}")
