"""The built-in documents of a conversation: which agent it has, what happens now, what waits, what it cost."""

from typing import Any, TypedDict

from perdure.session.documents import Document


class AgentValue(TypedDict, total=False):
    """Names only; a missing field means the host's default. `extensions` and `tools`: a list is exact,
    {"add": […], "remove": […]} edits the default."""

    model: str
    thinking: str
    extensions: Any
    tools: Any
    instructions: str
    cwd: str
    budget: dict[str, float]


class RunValue(TypedDict):
    """An open run: from its inputs to its final answer."""

    generation: int
    inputs: list[int]
    started_at: float
    turns: int


class LiveValue(TypedDict):
    """What happens now: the run, the answer being streamed, the tool calls of the round, the compactions (those that
    have ended are shown until the next begins)."""

    run: RunValue | None
    partial: Any
    retry: Any
    tools: dict[str, Any]
    compactions: dict[str, Any]


class InboxValue(TypedDict):
    """Submissions that wait for their place, in order."""

    items: list[dict[str, Any]]


class UsageValue(TypedDict):
    """What this conversation's own requests and tools used; subagents and forks have their own."""

    models: dict[str, dict[str, Any]]
    tools: dict[str, dict[str, Any]]


def no_run() -> dict[str, Any]:
    """What the live document shows of a run while there is none."""
    return {"run": None, "partial": None, "retry": None, "tools": {}}


def empty_live() -> Any:
    return {**no_run(), "compactions": {}}


AgentDoc: Document[Any] = Document("perdure.agent", AgentValue, history="rewindable", fork="as_of", initial=dict)
LiveDoc: Document[Any] = Document("perdure.live", LiveValue, initial=empty_live, checked=False)
InboxDoc: Document[Any] = Document("perdure.inbox", InboxValue, initial=lambda: {"items": []}, checked=False)
UsageDoc: Document[Any] = Document(
    "perdure.usage", UsageValue, initial=lambda: {"models": {}, "tools": {}}, checked=False
)
