"""What the agent asks of a model, whoever provides it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from perdure.models.messages import AssistantMessage, Message, ToolOffer

ThinkingLevel = Literal["off", "minimal", "low", "medium", "high"]


class ModelRequest(msgspec.Struct, frozen=True):
    """One request. `messages` obey the provider's pairing rules and hold no system messages unless the model takes
    them in the middle of a conversation (`Model.system_updates`); `system` is the prompt at the front."""

    messages: list[Message]
    system: str = ""
    tools: list[ToolOffer] = []
    thinking: ThinkingLevel | None = None
    session_id: str | None = None
    """Stable for one conversation: providers route by it, so that their prompt cache is warm."""
    options: dict[str, Any] = {}
    """Stream options from the settings: `max_tokens`, `temperature`, `timeout`, provider extras."""
    load_blob: Callable[[str], Awaitable[bytes]] | None = None
    """Reads the bytes of an attachment by its digest."""
    deferrable: bool = False
    """Whoever asks can wait for days: a `DeferringModel` may end the stream with `Deferred`."""


class TextDelta(msgspec.Struct, frozen=True, gc=False):
    """More text of the block at `index`; a new index begins a block."""

    index: int
    text: str


class ThinkingDelta(msgspec.Struct, frozen=True, gc=False):
    """More reasoning of the block at `index`."""

    index: int
    text: str


class ToolCallDelta(msgspec.Struct, frozen=True, gc=False):
    """More of a tool call at `index`: its name once it is known, a piece of the raw JSON of its arguments."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


class Finished(msgspec.Struct, frozen=True, gc=False):
    """The last event: the response as a whole. Its blocks stand in the order of the deltas' indexes."""

    message: AssistantMessage
    files: dict[str, bytes] = {}
    """The bytes of the attachments in the message, by their digest (sha256, hexadecimal)."""


class Deferred(msgspec.Struct, frozen=True, gc=False):
    """The last event in place of `Finished`: the provider has taken the request and answers later, as batch interfaces
    do. `handle` (JSON, at most 64 KiB) is stored and finds the answer, also from another process; `after` is the number
    of seconds after which it is worth asking for it."""

    handle: Any
    after: float


Event = TextDelta | ThinkingDelta | ToolCallDelta | Finished | Deferred


class Model(Protocol):
    """One model of one provider."""

    @property
    def name(self) -> str:
        """`provider:model`, as it is stored."""
        ...

    @property
    def context_window(self) -> int | None:
        """Tokens that fit a request and its answer; None when unknown. A model that first has to load what tells it may
        have `async def load(self) -> None`, which is awaited before."""
        ...

    @property
    def system_updates(self) -> bool:
        """Whether it takes system messages in the middle of a conversation."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[Event]:
        """Ask. Yields deltas, then one `Finished`.

        Raises a `ModelError` whose class says what kind of failure it was; the deltas yielded before it are all
        that came. A stream that ends without the provider's own end mark raises `CutOff`; it never looks complete.
        Never retries by itself. Closing the iterator, or cancelling, ends the request.
        """
        ...


@runtime_checkable
class DeferringModel(Model, Protocol):
    """A model that may answer later. A crash between its provider's yes and the commit that stores the handle makes the
    request twice; afterwards nothing is lost."""

    def poll(self, handle: Any, request: ModelRequest) -> AsyncIterator[Event]:
        """Ask for a deferred answer, made from this request: its events as those of `stream`, or `Deferred` again.

        Raises `DeferredLost` when it will never come; every other retryable error means that it may be asked for again.
        May be called any number of times for one handle.
        """
        ...

    async def cancel(self, handle: Any) -> None:
        """Nobody wants the answer any more. May come twice, or after the answer was made."""
        ...


async def loaded(model: Model) -> Model:
    """The model, once it can tell its context window at once; the event loop goes on meanwhile."""
    load = getattr(model, "load", None)
    if load is not None:
        await load()
    return model


class Models(Protocol):
    """Resolves `provider:model` names."""

    def model(self, name: str) -> Model:
        """The model, or `UnknownModel`. Importing a provider's library may happen here, never earlier."""
        ...

    def cost(self, name: str, message: AssistantMessage) -> float | None:
        """USD for a response's tokens; None when the price is unknown."""
        ...
