"""Where a summary may cut: between two turns, never between a call and its result. Pure."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from perdure.agent.context import Place
from perdure.agent.estimate import estimate_messages
from perdure.agent.pairing import FAILED
from perdure.agent.settings import CompactionSettings
from perdure.base.ids import EntryId
from perdure.models.messages import AssistantMessage, Message, SystemMessage, ToolCall, ToolResultMessage, UserMessage


class Limits(msgspec.Struct, frozen=True):
    """Sizes of a context, in tokens."""

    background: int
    """From here on a summary starts beside the conversation."""
    block: int
    """From here on the next request waits for a summary."""
    keep: int
    """What stays as it is, of the newest messages."""


class Cut(msgspec.Struct, frozen=True):
    """A place to cut, with the tokens on both sides (the prompt counts on neither)."""

    at: EntryId
    """The first entry that stays."""
    older: int
    """Of what will be summarized, without an earlier summary."""
    earlier: int
    """Of the earlier summary."""
    kept: int


def limits(window: int, settings: CompactionSettings) -> Limits:
    """The sizes for a model. In a window too small for the settings each takes its share of it, so that the
    thresholds keep their order and half of the window can always be used."""
    block = max(window - settings.reserve_tokens, window // 2)
    background = max(block - settings.background_tokens, block // 2)
    return Limits(background, block, min(settings.keep_tokens, block // 3))


def keeping(cause: str, tokens: int, bounds: Limits | None, settings: CompactionSettings) -> tuple[int, int | None]:
    """How much of the newest messages to keep, and for how much there is room, of a context of so many tokens.

    Asked for by a person, or when the provider found the whole too long, less than half is kept, so that something is
    gained whatever the settings are.
    """
    keep = settings.keep_tokens if bounds is None else bounds.keep
    if cause == "manual":
        keep = min(keep, tokens // 2)
    elif cause == "overflow":
        keep = min(keep, tokens // 3)
    return keep, None if bounds is None else bounds.block // 2


def choose_cut(places: Sequence[Place], keep: int, room: int | None = None) -> Cut | None:
    """The newest place that leaves at least `keep` tokens behind it; None: nothing older could be summarized.

    If what it leaves does not fit `room`, the first place that leaves less; if none does, the newest. Where a person's
    message begins what is kept at little extra cost, that is taken.
    """
    sizes = [estimate_messages(m for m in place.messages if not isinstance(m, SystemMessage)) for place in places]
    earlier = sum(size for place, size in zip(places, sizes, strict=True) if place.front)
    total = sum(sizes) - earlier
    cuts: list[tuple[Cut, bool]] = []
    before = 0
    starts = _turn_starts(places)
    for index, (place, size) in enumerate(zip(places, sizes, strict=True)):
        if index in starts and before > 0:
            cuts.append((Cut(place.id, before, earlier, total - before), isinstance(_first(place), UserMessage)))
        before += 0 if place.front else size
    if not cuts:
        return None
    enough = [found for found in cuts if found[0].kept >= keep]
    chosen, spoken = enough[-1] if enough else cuts[0]
    if room is not None and chosen.kept > room:
        return next((cut for cut, _ in cuts if cut.kept <= room), cuts[-1][0])
    nearby = [cut for cut, said in enough if said and cut.kept <= chosen.kept + keep // 4]
    return chosen if spoken or not nearby else nearby[-1]


def _turn_starts(places: Sequence[Place]) -> set[int]:
    """The places where a turn, or what somebody said between two turns, begins and no call before is unanswered.

    The round of the newest turn may be open: nothing behind its start is a place to cut.
    """
    starts: set[int] = set()
    open_calls: Counter[str] = Counter()
    for index, place in enumerate(places):
        first = _first(place)
        if isinstance(first, AssistantMessage):
            open_calls.clear()  # whatever has no result by the next turn will have none
        if first is not None and not isinstance(first, ToolResultMessage) and not place.front and not open_calls:
            starts.add(index)
        for message in place.messages:
            if isinstance(message, AssistantMessage) and message.stop not in FAILED:
                open_calls.update(block.id for block in message.content if isinstance(block, ToolCall))
            elif isinstance(message, ToolResultMessage):
                open_calls -= Counter([message.call_id])
    return starts


def _first(place: Place) -> Message | None:
    """The first message of a place that a model sees, but for what belongs to the prompt."""
    for message in place.messages:
        if isinstance(message, SystemMessage) or (isinstance(message, AssistantMessage) and message.stop in FAILED):
            continue
        return message
    return None
