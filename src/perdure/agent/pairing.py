"""A message list that any provider takes: every call has its one result, every id is unique, nothing is empty."""

from collections.abc import Iterable
from typing import Final, TypeVar

import msgspec

from perdure.agent.prompt import PromptState, apply, is_empty
from perdure.base.errors import InvalidValue
from perdure.models.messages import (
    AssistantMessage,
    Content,
    Message,
    Said,
    SystemMessage,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)

NO_RESULT: Final = "interrupted: no result of this call was stored; it may or may not have taken effect"
"""What a model reads where a call has no result."""

NO_OUTPUT: Final = "(no output)"
"""A tool result without any text, which providers refuse."""

NO_TEXT: Final = "(empty message)"
"""A user message without any text, which providers refuse."""

FAILED: Final = ("aborted", "error")
"""Stop reasons of attempts that the model does not see."""

CALL_ID_CHARACTERS: Final = 64
"""What the strictest provider allows for the id of a call."""


Spoken = TypeVar("Spoken", UserMessage, ToolResultMessage)


class _Slot(msgspec.Struct):
    """The place of one call's result."""

    index: int
    call: ToolCall
    answered: bool = False


class PairedMessages:
    """A message list built message by message, each at a cost of its own size.

    A result takes its place behind its call's turn as soon as it comes; until then a result that tells of an
    interruption stands there. Nothing that was added earlier moves, but for system messages before the first answer.
    The id of a call on the wire depends only on what was added before it.
    """

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.systems: list[int] = []
        """Where the system messages are."""
        self.prompt = PromptState()
        self.measured: int | None = None
        """Where the newest answer is whose usage tells the size of what stands up to it."""
        self._answered = False
        self._slots: dict[str, list[_Slot]] = {}
        self._used: set[str] = set()
        self._repeats: dict[str, int] = {}

    def add(self, message: Message, *, measures: bool = True) -> None:
        """Add the next message. `measures` False: its usage was counted over something else than this list."""
        match message:
            case UserMessage():
                self.messages.append(_never_empty(message, NO_TEXT))
            case SystemMessage():
                self._add_system(message)
            case AssistantMessage():
                self._add_turn(message, measures)
            case ToolResultMessage():
                self._add_result(message)

    def hide(self, messages: Iterable[Message]) -> None:
        """Pass over messages that the model does not see; results of their calls find no call."""
        for message in messages:
            if isinstance(message, AssistantMessage):
                self._slots.update((block.id, []) for block in message.content if isinstance(block, ToolCall))

    def _add_system(self, message: SystemMessage) -> None:
        if is_empty(message):
            return
        self.prompt = apply(self.prompt, message)
        # before the first answer all system messages stand at the front, in order
        index = len(self.messages) if self._answered else len(self.systems)
        self.messages.insert(index, message)
        self.systems.append(index)

    def _add_turn(self, message: AssistantMessage, measures: bool) -> None:
        content = [block for block in message.content if not _is_blank(block)]
        if message.stop in FAILED or all(isinstance(block, Thinking) for block in content):
            self.hide([message])
            return
        wired = [self._wired(block) if isinstance(block, ToolCall) else block for block in content]
        same = len(wired) == len(message.content) and all(a is b for a, b in zip(wired, message.content, strict=True))
        self._answered = True
        if measures and message.usage is not None:
            self.measured = len(self.messages)
        self.messages.append(message if same else msgspec.structs.replace(message, content=wired))
        self.hide([message])  # a repeated id means the newest turn from here on
        for block, original in zip(wired, content, strict=True):
            if isinstance(block, ToolCall) and isinstance(original, ToolCall):
                self._slots[original.id].append(_Slot(len(self.messages), block))
                self.messages.append(ToolResultMessage(block.id, block.name, NO_RESULT, is_error=True))

    def _add_result(self, message: ToolResultMessage) -> None:
        free = [slot for slot in self._slots.get(message.call_id, ()) if not slot.answered]
        if not free:
            return
        # one turn may use one id twice, for different tools
        slot = next((slot for slot in free if slot.call.name == message.name), free[0])
        slot.answered = True
        result = _never_empty(message, NO_OUTPUT)
        if result.call_id != slot.call.id or result.name != slot.call.name:
            result = msgspec.structs.replace(result, call_id=slot.call.id, name=slot.call.name)
        self.messages[slot.index] = result

    def _wired(self, call: ToolCall) -> ToolCall:
        name = call.id or "call"
        wire_id, count = name, self._repeats.get(name, 1)
        while wire_id in self._used:
            count += 1
            suffix = f"-{count}"
            wire_id = name[: CALL_ID_CHARACTERS - len(suffix)] + suffix
        self._repeats[name] = count
        self._used.add(wire_id)
        return call if wire_id == call.id else msgspec.structs.replace(call, id=wire_id)


def paired(messages: Iterable[Message]) -> list[Message]:
    """The messages as any provider takes them, by the rules of `PairedMessages`; for lists made by foreign code."""
    result = PairedMessages()
    for message in messages:
        result.add(message)
    return result.messages


def check_pairing(messages: list[Message]) -> None:
    """Refuse a list that a strict provider would refuse. Raises `InvalidValue` naming the first message at fault."""
    seen: set[str] = set()
    due: list[ToolCall] = []
    for index, message in enumerate(messages):
        where = f"message {index}"
        if isinstance(message, ToolResultMessage):
            if not due or due[0].id != message.call_id:
                raise InvalidValue(f"{where}: a result of {message.call_id!r} that is not due here")
            if due.pop(0).name != message.name:
                raise InvalidValue(f"{where}: the result names another tool than its call")
        elif due:
            raise InvalidValue(f"{where}: the call {due[0].id!r} has no result")
        if isinstance(message, AssistantMessage):
            due = [block for block in message.content if isinstance(block, ToolCall)]
            if message.stop in FAILED:
                raise InvalidValue(f"{where}: a failed attempt")
        if isinstance(message, SystemMessage) and is_empty(message):
            raise InvalidValue(f"{where}: a system message that changes nothing")
        if not isinstance(message, SystemMessage) and _says_nothing(message.content):
            raise InvalidValue(f"{where}: nothing in it")
        for call in due if isinstance(message, AssistantMessage) else ():
            if not call.id or call.id in seen:
                raise InvalidValue(f"{where}: the call id {call.id!r} is empty or was used before")
            seen.add(call.id)
    if due:
        raise InvalidValue(f"the last call {due[0].id!r} has no result")


def _never_empty(message: Spoken, instead: str) -> Spoken:
    if isinstance(message.content, str):
        return msgspec.structs.replace(message, content=instead) if _is_space(message.content) else message
    content: list[Content] = [block for block in message.content if not _is_blank(block)]
    if len(content) == len(message.content) and content:
        return message
    return msgspec.structs.replace(message, content=content or instead)


def _is_blank(block: Said) -> bool:
    """Whether a provider would refuse the block as empty; one with details of a provider goes back as it came."""
    match block:
        case Text():
            return block.provider is None and _is_space(block.text)
        case Thinking():
            return block.provider is None and block.signature is None and _is_space(block.text)
    return False


def _is_space(text: str) -> bool:
    return not text or text.isspace()


def _says_nothing(content: str | list[Said] | list[Content]) -> bool:
    if isinstance(content, str):
        return _is_space(content)
    return all(isinstance(block, Thinking) for block in content) or any(_is_blank(block) for block in content)
