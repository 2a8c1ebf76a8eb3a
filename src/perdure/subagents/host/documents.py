"""What a host keeps in the call's session, besides the conversation. Evidence is read from these rows and from it."""

from typing import Any, Literal

import msgspec

from perdure import Document, document_family


class Generation(msgspec.Struct, kw_only=True):
    """The beginning of a generation, stored by the first execution that began it."""

    task_id: str
    baseline: dict[str, float] = {}
    """What the conversation had used before: tokens, input, output, costUsd."""
    after: int = 0
    """The newest entry before it."""


class Marker(msgspec.Struct, kw_only=True):
    """An execution has begun: only what came after counts for it."""

    generation: int
    at: float
    after: int = 0
    """The newest entry before it."""


class Asked(msgspec.Struct, kw_only=True):
    """A question: open until it is answered, whoever waits on it meanwhile."""

    qid: str
    generation: int
    text: str
    rev: int
    at: float
    exec: str = ""
    """The execution that asked it last."""
    task: int | None = None
    """The parked call that waits on it; None: it was interrupted and not asked again."""
    open: bool = True


class Report(msgspec.Struct, kw_only=True):
    """What an execution reported."""

    outcome: str
    summary: str = ""
    data: Any = None


class Delivery(msgspec.Struct, kw_only=True):
    """Something that was handed in, stored in the commit of its effect, or (a submission) right before it."""

    how: Literal["submitted", "interrupted", "answered", "withdrawn"]


def _family(name: str, type: Any) -> Document[Any]:
    return document_family(f"agents.host.{name}", type, scope="session")


GenerationDoc = _family("generation", Generation)
"""By number."""
MarkerDoc = _family("marker", Marker)
"""By execution."""
AskedDoc = _family("asked", Asked)
"""By question id."""
ReportDoc = _family("report", Report)
"""By execution: the first one that fitted."""
RejectedDoc = _family("rejected", str)
"""By number of the generation: why its last attempt to report was refused."""
DeliveryDoc = _family("delivery", Delivery)
"""By `delivery_key`."""


def delivery_key(generation: int, request: str) -> str:
    """A generation's deliveries stand together."""
    return f"{delivery_prefix(generation)}{request}"


def delivery_prefix(generation: int) -> str:
    """What the keys of a generation's deliveries begin with."""
    return f"{generation:08d}/"
