"""What a host keeps in the call's session, besides the conversation. Evidence is read from these rows."""

from typing import Any

import msgspec

from perdure import Document, document_family


class Generation(msgspec.Struct, kw_only=True):
    """The beginning of a generation, stored with the first execution that got its task."""

    task_id: str
    baseline: dict[str, float] = {}
    """What the conversation had used before."""
    after: int = 0
    """The newest entry before it."""


class Marker(msgspec.Struct, kw_only=True):
    """An execution has begun: only what came after counts for it."""

    generation: int
    at: float
    after: int = 0
    noted: bool = False
    """Whether the model was told of an interruption."""


class Asked(msgspec.Struct, kw_only=True):
    """A question: open until it is answered, whoever waits on it meanwhile."""

    qid: str
    generation: int
    text: str
    rev: int
    at: float
    task: int | None = None
    """The parked call that waits on it; None: it was interrupted and not asked again."""
    open: bool = True


class Report(msgspec.Struct, kw_only=True):
    """What a generation reported; or why its last attempt was refused."""

    exec: str
    outcome: str = ""
    summary: str = ""
    data: Any = None
    rejected: str | None = None


class Settlement(msgspec.Struct, kw_only=True):
    """How the run of an execution ended."""

    status: str
    reason: str = ""
    detail: str = ""
    text: str = ""
    stop: str = ""
    at: float = 0.0


def _family(name: str, type: Any) -> Document[Any]:
    return document_family(f"agents.host.{name}", type, scope="session")


GenerationDoc = _family("generation", Generation)
"""By number."""
MarkerDoc = _family("marker", Marker)
"""By execution."""
AskedDoc = _family("asked", Asked)
"""By question id."""
ReportDoc = _family("report", Report)
"""By number of the generation."""
SettlementDoc = _family("settlement", Settlement)
"""By execution."""
TakenDoc = _family("taken", dict)
"""By request: what was delivered and is stored. The value is empty."""
