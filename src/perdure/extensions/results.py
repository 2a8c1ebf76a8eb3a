"""What tools and hooks may return."""

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Generic, Literal

import msgspec

from perdure.base import jsonvalue
from perdure.base.errors import Error, InvalidValue
from perdure.base.ids import EntryId, TaskId
from perdure.base.text import cut_head, cut_tail, well_formed
from perdure.base.typed import codec
from perdure.extensions.kept import C_co
from perdure.models.messages import AssistantMessage, Attachment, Content, Message, Text, ToolResultMessage, Usage
from perdure.tasks.states import Policy, SignalKey

RESULT_BYTES: Final = 200 * 1024
"""Bytes of UTF-8 of a result's text: about 50,000 tokens. A tool that shows more should page it, as `read` does."""

DETAILS_BYTES: Final = 1024 * 1024
"""Bytes of JSON of a result's details, and of its structured value; larger ones are left out."""


class ToolError(Error):
    """Raised by a tool: its text, exactly, becomes an error result that the model reads."""

    code = "tool_error"


class Terminate(msgspec.Struct, frozen=True):
    """Ends the run when every call of the round asks for it. A task of an `after_tools` hook may complete with it: one
    is enough."""

    terminate: Literal[True] = True


class AddTools(msgspec.Struct, frozen=True):
    """Adds tools to what the conversation offers, from the next request on, as `configure(tools=…)` would: stored with
    the result, so a fork or a restart has them too. Names that no selected extension brings are skipped."""

    names: list[str] = msgspec.field(name="add_tools")


class Handoff(msgspec.Struct, frozen=True):
    """Ends the run and begins a new context from the note; one result of the round is enough."""

    note: str = msgspec.field(name="handoff")


Control = Terminate | AddTools | Handoff
"""What a result may ask of the run beyond being read."""


class Continue(msgspec.Struct, frozen=True):
    """The answer does not stand: the model goes on with this input. Returned by an `on_yield` hook, or the result of a
    task that such a hook started."""

    input: str | list[Content] = msgspec.field(name="continue")


class RunAnswer(msgspec.Struct, frozen=True):
    """What `on_yield` and `after_run` hooks look at: the answer of a run, and the entry that holds it."""

    entry_id: EntryId
    message: AssistantMessage

    @property
    def text(self) -> str:
        """What it says."""
        return "".join(block.text for block in self.message.content if isinstance(block, Text))


class ToolRound(msgspec.Struct, frozen=True):
    """What `after_tools` hooks look at: the response that called, its entry, and the results in the order of the
    calls."""

    entry_id: EntryId
    message: AssistantMessage
    results: tuple[ToolResultMessage, ...]


class CompactionPlan(msgspec.Struct, frozen=True):
    """What `before_compact` hooks look at: the messages that a summary would stand for, and why it is made now.

    `cause`: "manual", "background" (the limit comes near), "blocking" (the next request waits for it) or "overflow"
    (the provider found a request too long). Sizes in tokens, partly estimated.
    """

    cause: str
    instructions: str | None
    messages: list[Message]
    """Paired, an earlier summary first. Copies: changing them changes nothing."""
    first_kept: EntryId
    """Everything from this entry on stays as it is."""
    older_tokens: int
    kept_tokens: int


class Summary(msgspec.Struct, frozen=True):
    """A `before_compact` hook's own summary, in place of one that the model would write."""

    text: str


class Decline(msgspec.Struct, frozen=True):
    """A `before_compact` hook's no: this compaction does not happen."""

    reason: str = ""


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
    control: Control | None = None
    structured: Any = None


class Sleep(msgspec.Struct, Generic[C_co], frozen=True):
    """Park the call until a time, a signal, or whichever comes first; the tool then runs again with `ctx.wake`."""

    signals: Sequence[SignalKey[Any]] = ()
    until: float | datetime | None = None
    checkpoint: C_co | None = None


class Wait(msgspec.Struct, Generic[C_co], frozen=True):
    """Park the call until tasks have ended; the tool then runs again with `ctx.wake`."""

    on: Sequence[TaskId] = ()
    policy: Policy = "all_settled"
    checkpoint: C_co | None = None


class Block(msgspec.Struct, frozen=True):
    """A gate's no: the call does not run, and the model reads the reason."""

    reason: str


class Changed(msgspec.Struct, frozen=True):
    """An edit of a selection: names to add to, or remove from, the host's default."""

    kind: Literal["add", "remove"]
    names: tuple[str, ...] = msgspec.field(default=())


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
        return checked_result(value)
    if value is None:
        return ToolResult("")
    if isinstance(value, str):
        return ToolResult(bounded_text(well_formed(value)))
    json = codec(returns if returns is not None else Any, where="the tool's result").to_json(value)
    encoded = jsonvalue.encode(json)
    structured = json if len(encoded) <= DETAILS_BYTES else None
    return ToolResult(bounded_text(encoded.decode()), structured=structured)


def checked_result(result: ToolResult) -> ToolResult:
    """A result that can be stored and read: well-formed text within the bounds, fields of their types. Raises
    `InvalidValue`."""
    content = result.content
    if isinstance(content, str):
        content = bounded_text(well_formed(content))
    elif isinstance(content, list):
        content = _blocks(content)
    else:
        raise InvalidValue(f"a result's content is text or a list of blocks, not {type(content).__name__}")
    if result.diagnostics is not None and not isinstance(result.diagnostics, list | tuple):
        raise InvalidValue("a result's diagnostics are a list of texts")
    lines = None if result.diagnostics is None else [_text(line) for line in result.diagnostics]
    return ToolResult(
        content,
        bool(result.is_error),
        _bounded_json(result.details, "/details"),
        lines,
        _checked_usage(result.usage),
        _checked_control(result.control),
        _bounded_json(result.structured, "/structured"),
    )


def bounded_text(text: str) -> str:
    """The text as a model may read it: within `RESULT_BYTES`, else its head and tail, with what was left out told."""
    if len(text) * 4 <= RESULT_BYTES or (size := len(text.encode())) <= RESULT_BYTES:
        return text
    head, tail = cut_head(text, RESULT_BYTES // 2), cut_tail(text, RESULT_BYTES // 2)
    gone = size - len(head.encode()) - len(tail.encode())
    return f"{head}\n[{gone:,} bytes of this result were left out here and are not kept]\n{tail}"


def _text(line: Any) -> str:
    return bounded_text(well_formed(str(line)))


def _blocks(content: list[Any]) -> list[Content]:
    found: list[Content] = []
    for block in content:
        if isinstance(block, Text) and isinstance(block.text, str):
            found.append(Text(bounded_text(well_formed(block.text))))
        elif isinstance(block, Attachment):
            jsonvalue.check(msgspec.to_builtins(block))
            found.append(msgspec.convert(msgspec.to_builtins(block), Attachment))
        else:
            raise InvalidValue(f"a result's blocks are Text and Attachment, not {type(block).__name__}")
    return found


def _bounded_json(value: Any, path: str) -> Any:
    if value is None:
        return None
    jsonvalue.check(value, path=path)
    size = len(jsonvalue.encode(value))
    return value if size <= DETAILS_BYTES else {"left_out_bytes": size}


def _checked_usage(usage: Any) -> Usage | None:
    if usage is None:
        return None
    try:
        found = msgspec.convert(msgspec.to_builtins(usage), Usage)
    except (msgspec.ValidationError, TypeError) as error:
        raise InvalidValue(f"a result's usage is a Usage: {error}") from error
    numbers = (found.input, found.output, found.cache_read, found.cache_write, found.cost or 0.0)
    if not isinstance(usage, Usage) or any(not 0 <= number < math.inf for number in numbers):
        raise InvalidValue(f"a result's usage counts tokens and USD from 0, not {usage!r}")
    return found


def _checked_control(control: Any) -> Control | None:
    match control:
        case None | Terminate():
            return control
        case Handoff(note=str(note)):
            return Handoff(bounded_text(well_formed(note)))
        case AddTools(names=list() | tuple() as names) if names and all(isinstance(n, str) and n for n in names):
            return AddTools([well_formed(name) for name in dict.fromkeys(names)])
        case Handoff() | AddTools():
            raise InvalidValue("Handoff takes a note, AddTools a list of names that is not empty")
    raise InvalidValue(f"a result's control is Terminate, AddTools or Handoff, not {type(control).__name__}")


def stored_control(control: Control) -> Any:
    """Control as the JSON object that the live document keeps: one key that says which it is."""
    return msgspec.to_builtins(control)


def read_control(stored: Any) -> Control | None:
    """What `stored_control` gave. Older sessions stored the word "terminate"."""
    match stored:
        case "terminate" | {"terminate": True}:
            return Terminate()
        case {"handoff": str(note)}:
            return Handoff(note)
        case {"add_tools": list(names)}:
            return AddTools(names)
    return None
