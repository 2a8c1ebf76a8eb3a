"""Clients that know nothing but what came over the wire, and views read anew to compare them with."""

from typing import Any

import msgspec

from perdure import Harness
from perdure.base import delta
from perdure.events import AnyEvent, EventStream, Snapshot, fold_entries
from perdure.harness.views import Views
from perdure.session.watch import Frame, Watch
from perdure.testing.clock import settle

_events = msgspec.json.Decoder(AnyEvent)


def over_the_wire(value: Any) -> Any:
    """What arrives of a JSON value."""
    return msgspec.json.decode(msgspec.json.encode(value))


class Client:
    """Applies frames to the first value it got."""

    def __init__(self, opening: Any) -> None:
        self._opening = opening
        self.value: Any = None
        self.bytes = 0
        self.frames: list[Frame] = []

    async def __aenter__(self) -> "Client":
        self.watch: Watch = await self._opening.__aenter__()
        self.value = over_the_wire(self.watch.value)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._opening.__aexit__(None, None, None)

    def take(self, frame: Frame) -> None:
        """Apply one frame; it must lead to its own value."""
        encoded = frame.encode()
        self.bytes += len(encoded)
        self.frames.append(frame)
        self.value = delta.apply(self.value, msgspec.json.decode(encoded)["ops"])
        assert delta.same(self.value, frame.value)

    async def drain(self) -> Any:
        """Take everything that is there; the state then."""
        await settle()
        return await self.take_ready()

    async def take_ready(self) -> Any:
        """The same, without letting anything else run."""
        while self.watch._frames:
            self.take(await anext(self.watch))
        return self.value


class Listener:
    """Folds events to a transcript."""

    def __init__(self, opening: Any) -> None:
        self._opening = opening
        self.entries: list[Any] = []
        self.events: list[Any] = []
        self.bytes = 0

    async def __aenter__(self) -> "Listener":
        self.stream: EventStream = await self._opening.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._opening.__aexit__(None, None, None)

    def take(self, event: AnyEvent) -> None:
        """Fold one event, as it arrives."""
        encoded = msgspec.json.encode(event)
        self.bytes += 0 if isinstance(event, Snapshot) else len(encoded)
        arrived = _events.decode(encoded)
        self.events.append(arrived)
        self.entries = fold_entries(self.entries, arrived)

    async def drain(self) -> list[Any]:
        """Take everything that is there; the transcript then."""
        await settle()
        return await self.take_ready()

    async def take_ready(self) -> list[Any]:
        """The same, without letting anything else run."""
        while self.stream._ready or self.stream._watch._frames:
            self.take(await anext(self.stream))
        return self.entries

    @property
    def types(self) -> list[str]:
        """The types of what came, in order."""
        return [told["type"] for told in map(over_the_wire, self.events)]


async def fresh_view(harness: Harness, conversation: Any) -> Any:
    """The view as the store has it, read anew."""
    async with Views(harness.session).conversation(conversation.id, None) as watch:
        return over_the_wire(watch.value)


async def fresh_graph(harness: Harness) -> Any:
    """The task graph as the store has it, read anew."""
    async with Views(harness.session).tasks(None) as watch:
        return over_the_wire(watch.value)
