"""The system prompt as a sequence of stored changes: what a model saw can be replayed at any place of a transcript."""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Final

import msgspec

from perdure.models.messages import Message, SystemMessage, ToolOffer


class Keep(Enum):
    """The one value that stands for "as it was"."""

    KEEP = "keep"


KEEP: Final = Keep.KEEP
"""In place of a section's text: it could not be rendered and keeps its last text."""

Rendered = tuple[str, str | Keep | None]
"""A section's name and its text now; None: it is left out."""


class PromptState(msgspec.Struct, frozen=True):
    """The sections in their order and the tools on offer, as of one place of a transcript. Never changed in place."""

    sections: Mapping[str, str] = msgspec.field(default_factory=dict)
    tools: tuple[ToolOffer, ...] = ()


def change(state: PromptState, rendered: Iterable[Rendered], tools: Sequence[ToolOffer]) -> SystemMessage | None:
    """The smallest message that leads from `state` to what was rendered; None if nothing changed.

    Sections stand in the order given; of two with one name the later text counts, at the place of the first. A blank
    text is left out like None. A section of the state that is not rendered any more is removed. The order is told
    only where additions at the end and removals do not give it by themselves.
    """
    target = _target(state, rendered)
    same_tools = tuple(tools) == state.tools
    if same_tools and list(target.items()) == list(state.sections.items()):
        return None
    changed: dict[str, str | None] = {name: text for name, text in target.items() if state.sections.get(name) != text}
    changed.update((name, None) for name in state.sections if name not in target)
    message = SystemMessage(sections=changed, tools=None if same_tools else list(tools))
    order = list(target)
    if list(apply(state, message).sections) != order:
        message = SystemMessage(sections=message.sections, order=order, tools=message.tools)
    return None if is_empty(message) else message


def _target(state: PromptState, rendered: Iterable[Rendered]) -> dict[str, str]:
    texts: dict[str, str | None] = {}
    for name, text in rendered:
        texts[name] = state.sections.get(name) if isinstance(text, Keep) else text
    return {name: text for name, text in texts.items() if text and not text.isspace()}


def apply(state: PromptState, message: SystemMessage) -> PromptState:
    """The state behind a system message. Names in `order` that do not exist are passed over, unnamed ones come last."""
    sections = dict(state.sections)
    for name, text in message.sections.items():
        if text is None:
            sections.pop(name, None)
        else:
            sections[name] = text
    if message.order is not None:
        first = {name: sections[name] for name in message.order if name in sections}
        sections = first | {name: text for name, text in sections.items() if name not in first}
    tools = state.tools if message.tools is None else tuple(message.tools)
    return PromptState(sections, tools)


def fold(messages: Iterable[Message], state: PromptState | None = None) -> PromptState:
    """The state behind all system messages among `messages`, in order."""
    state = state or PromptState()
    for message in messages:
        if isinstance(message, SystemMessage):
            state = apply(state, message)
    return state


def whole(state: PromptState) -> SystemMessage | None:
    """One message that gives the whole state, for a range that begins anew; None for an empty state."""
    return change(PromptState(), list(state.sections.items()), state.tools)


def render_system(state: PromptState) -> str:
    """The prompt as text: the sections in order, a blank line between them. The same state gives the same bytes."""
    return "\n\n".join(text.strip("\n") for text in state.sections.values())


def is_empty(message: SystemMessage) -> bool:
    """Whether the message changes nothing."""
    return not message.sections and message.order is None and message.tools is None
