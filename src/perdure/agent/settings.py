"""Policy, read live at each decision and never stored. Times in seconds, sizes in tokens or bytes."""

import math
from typing import Any, Literal

import msgspec

from perdure.base.errors import InvalidValue
from perdure.models.retry import RetrySettings


class Budget(msgspec.Struct, kw_only=True):
    """Bounds; None: no bound. Reached: the run ends `unanswered("budget")` at a boundary.

    `max_turns` counts within a run; `max_cost` (USD) and `max_tokens` (in and out) count all that the conversation ever
    used, so once they are reached no further run of it asks a model.
    """

    max_cost: float | None = None
    max_turns: int | None = None
    max_tokens: int | None = None

    @property
    def unbounded(self) -> bool:
        """Whether nothing is bounded."""
        return self.max_cost is None and self.max_turns is None and self.max_tokens is None


class CompactionSettings(msgspec.Struct, kw_only=True):
    """When older messages are summarized, in tokens of the model's context window. In a window that is too small for
    these, each takes its share of it."""

    reserve_tokens: int = 16_384
    """Room for the answer: a request that would leave less waits for a summary."""
    background_tokens: int = 32_768
    """This much before that, a summary starts while the conversation goes on."""
    keep_tokens: int = 20_000
    """About so much of the newest messages stays as it is."""
    automatic: bool = True
    """False: only `compact()` summarizes; a request that does not fit fails with the provider's words."""


def stored_budget(budget: Any) -> dict[str, float]:
    """A budget as a conversation stores it: its bounds, without those that are None. Raises `InvalidValue`."""
    if not isinstance(budget, Budget):
        raise InvalidValue(f"a budget is a Budget, not {budget!r}", hint="Budget(max_turns=20)")
    found = {name: value for name in budget.__struct_fields__ if (value := getattr(budget, name)) is not None}
    for name, value in found.items():
        kinds = (int, float) if name == "max_cost" else (int,)
        if type(value) not in kinds or not 0 <= value < math.inf:
            raise InvalidValue(f"{name} counts from 0, it is not {value!r}")
    return found


class Settings(msgspec.Struct, kw_only=True):
    """What a host may set, also while everything runs."""

    extensions: list[str] | None = None
    """The default selection, in order; None: every installed extension in the order of installation."""
    default_model: str | None = None
    instructions: str | None = None
    retry: RetrySettings = msgspec.field(default_factory=RetrySettings)
    budget: Budget = msgspec.field(default_factory=Budget)
    compaction: CompactionSettings = msgspec.field(default_factory=CompactionSettings)
    steer_mode: Literal["all", "one"] = "all"
    """How many queued steers join a run at one boundary."""
    follow_up_mode: Literal["all", "one"] = "one"
    """How many queued follow-ups start the next run together."""
    parallel_tools: bool = True
    stream_options: dict[str, Any] = {}
    deferred_limit: float = 172_800.0
    """How long an answer may be put off by its provider; batch interfaces promise a day. Later the run fails."""
    progress_interval: float = 0.1
    """Partial answers and tool output are committed at most this often."""
    retention: float | None = 60.0
    """How long an idle conversation's transcript stays in memory; None: for ever."""
    close_timeout: float = 10.0
    gate_timeout: float | None = None
    """A `before_tool` hook that has not answered by then blocks its call; None: it is waited for."""
    restart_limit: int = 3
    orphan_missing: bool = False
    """End abort-marked tasks whose code is not installed instead of keeping them blocked."""
