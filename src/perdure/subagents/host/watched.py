"""The models of a host: each request is announced, and all go to the one model that the execution holds a slot for.

A request that was prepared for another model, before a switch or in an earlier execution, goes to this one too.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from perdure import AssistantMessage
from perdure.models.errors import ModelError
from perdure.models.protocol import Event, Finished, Model, ModelRequest, Models
from perdure.subagents.protocol import News

PROGRESS_SECONDS: Final = 1.0
"""News of what streams come so often at most."""
ERROR_LENGTH: Final = 2000
"""Characters of an error in the news."""
Tell = Callable[[News], None]


class WatchedModels:
    """Access to models that tells what happens. `allowed` is the one model that may be asked."""

    def __init__(self, inner: Models, allowed: str, tell: Tell, now: Callable[[], float] = time.time) -> None:
        self._inner = inner
        self.allowed = allowed
        self._tell = tell
        self._now = now
        self._shut = False

    def model(self, name: str) -> Model:
        """The model under that name, watched."""
        found: Any = _Watched(self, self._inner.model(name))
        return found  # type: ignore[no-any-return]

    def check(self, name: str) -> None:
        """Raise for a model that there is not."""
        self._inner.model(name)

    def shut(self) -> None:
        """There is a result: no further request is sent, however long one waits."""
        self._shut = True

    def cost(self, name: str, message: AssistantMessage) -> float | None:
        """As the models themselves say."""
        return self._inner.cost(message.model or name, message)

    async def close(self) -> None:
        """Release what the models hold."""
        close = getattr(self._inner, "close", None)
        if close is not None:
            await close()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Event]:
        """One request, from its announcement to its end."""
        if self._shut:
            await asyncio.Event().wait()
        name = self.allowed
        model, provider = self._inner.model(name), name.partition(":")[0]
        self._tell(News(what="request", at=self._now(), provider=provider, model=name))
        last = self._now()
        try:
            async for event in model.stream(request):
                now = self._now()
                if isinstance(event, Finished):
                    used = event.message.usage
                    told = News(
                        what="answer", at=now, provider=provider, model=name, stop=str(event.message.stop),
                        input=used.input if used else 0, output=used.output if used else 0,
                        cost=(used.cost if used else None) or self.cost(name, event.message) or 0.0,
                    )  # fmt: skip
                    self._tell(told)
                elif now - last >= PROGRESS_SECONDS:
                    last = now
                    self._tell(News(what="progress", at=last))
                yield event
        except ModelError as error:
            told = News(
                what="answer", at=self._now(), provider=provider, model=name, stop="error",
                error=str(error)[:ERROR_LENGTH], code=error.code,
            )  # fmt: skip
            self._tell(told)
            raise


class _Watched:
    def __init__(self, models: WatchedModels, model: Model) -> None:
        self._models = models
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def stream(self, request: ModelRequest) -> AsyncIterator[Event]:
        return self._models.stream(request)
