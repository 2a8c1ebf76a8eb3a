"""A model with a small window that counts what it reads, and short ways to talk until it is full."""

from collections.abc import Callable
from typing import Any

from perdure import CompactionSettings, Settings, Usage
from perdure.agent.summary import OPENING
from perdure.models.messages import UserMessage
from perdure.models.protocol import ModelRequest
from perdure.testing.scripted_model import ScriptedModel, Turn
from perdure.testing.strict import estimate_tokens
from perdure.testing.turns import as_turn
from tests.agent.kit import ask

LONG = "word " * 40
"""50 tokens."""
WINDOW = 2_000


def small(**changed: Any) -> Settings:
    """Settings for a window of 2,000 tokens: in the background from 1,000 on, waiting from 1,500 on, keeping 300."""
    numbers: dict[str, Any] = {"reserve_tokens": 500, "background_tokens": 500, "keep_tokens": 300, **changed}
    return Settings(compaction=CompactionSettings(**numbers))


def is_summary(request: ModelRequest) -> bool:
    """Whether a request asks for a summary: the task stands in its last message."""
    last = request.messages[-1]
    return isinstance(last, UserMessage) and "taken out of your context" in str(last.content)


def summaries(request: Any) -> int:
    """How many summaries stand in a request."""
    return sum(isinstance(m, UserMessage) and str(m.content).startswith(OPENING) for m in request.messages)


class Counting(ScriptedModel):
    """Answers by two functions, one for summaries; reports what it read as a provider would."""

    def __init__(
        self,
        answer: Callable[[ModelRequest], Any] = lambda request: "fine",
        summary: Callable[[ModelRequest], Any] = lambda request: "NOTES",
        **options: Any,
    ) -> None:
        def turn(request: ModelRequest) -> Turn:
            made = as_turn(summary(request) if is_summary(request) else answer(request))
            if made.error is not None:
                return made
            return made.with_usage(Usage(input=estimate_tokens(request), output=10))

        super().__init__(turn, **{"context_window": WINDOW, **options})

    def asked(self) -> list[ModelRequest]:
        """Requests that were not for summaries."""
        return [request for request in self.requests if not is_summary(request)]

    def summarized(self) -> list[ModelRequest]:
        """Requests for summaries."""
        return [request for request in self.requests if is_summary(request)]


async def talk(root: Any, turns: int, first: int = 0) -> None:
    """So many short exchanges of about 60 tokens each."""
    for number in range(first, first + turns):
        await ask(root, f"{number} {LONG}")


async def compactions(root: Any) -> list[dict[str, Any]]:
    """What the live document shows of compactions."""
    return list((await root.live())["compactions"].values())
