"""What the orchestrator keeps: state rows, changed in the commit of the decision that changed them.

Families are keyed so that what is live is found without reading what has ended. Times are seconds since the epoch,
by the harness's clock.
"""

from typing import Any, Final, Literal

import msgspec

from perdure import Document, document_family

CallStatus = Literal["ok", "failed", "gate-failed", "stopped", "timeout", "budget", "unknown", "skipped"]
WorkflowStatus = Literal["running", "done", "failed", "stopped", "parked"]
Phase = Literal["queued", "running", "asking", "sealed"]
SendKind = Literal["steer", "notify", "follow-up", "answer", "model"]
Reason = Literal["unconfirmed-stop", "provider-exhausted", "writer-lock", "lease", "slot", "silent"]
LIVE: Final = ("running", "parked")


class Usage(msgspec.Struct, kw_only=True):
    """Tokens (cache reads and writes count as input) and US dollars."""

    input: int = 0
    output: int = 0
    cost_usd: float = msgspec.field(default=0.0, name="costUsd")


class Result(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a generation ended with: the seal, stored once, whole, and given to scripts as it is."""

    key: str
    gen: int
    status: CallStatus
    ok: bool = False
    output: str = ""
    data: Any = None
    error: str | None = None
    usage: Usage = msgspec.field(default_factory=Usage)
    artifacts: list[str] = []
    losses: int = 0
    sealed: float = 0.0


class Question(msgspec.Struct, kw_only=True):
    """What a call asks. The id is that of the text within the generation; `rev` counts how often it was asked."""

    qid: str
    rev: int
    text: str
    asked: float
    generation: int
    task: int = 0
    """The parked tool call in the call's session, which the answer is delivered to."""
    answered: str | None = None
    """The request that answered it."""


class Delivery(msgspec.Struct, kw_only=True):
    """Something accepted for a call that its host has not taken yet. Order is the order of the list."""

    request: str
    kind: SendKind
    text: str = ""
    model: str | None = None
    qid: str | None = None
    rev: int | None = None
    at: float = 0.0
    sender: str = ""
    handed: bool = False
    """The host of the current execution may have it; the receipt, that it has its place, has not come."""
    withdrawn: str | None = None
    """The request that takes it back, while its host may have it: unless it has its place, it is withdrawn."""


class Waiting(msgspec.Struct, kw_only=True):
    """Why an unsealed call does not move, and since when."""

    reason: Reason
    detail: str
    since: float


class Fence(msgspec.Struct, kw_only=True):
    """An execution that was cut off."""

    at: float
    exec: str
    reason: str
    told: bool = False
    """Whether the event log has it; it does once the next execution begins."""


class Call(msgspec.Struct, kw_only=True):
    """A call of a workflow: one conversation in one session of its own, through all its generations."""

    wid: str
    key: str
    agent: str
    spec: dict[str, Any]
    """Of the latest generation, as validated."""
    fingerprint: str
    """Hash of spec and pinned agent: a replayed proposal must have the same."""
    revision: int = 1
    generation: int = 1
    opening: str = ""
    """What the latest generation begins with: the task, or a follow-up with its notes before it."""
    opening_request: str = ""
    """Under what request id it is handed over."""
    phase: Phase = "queued"
    proposed: int = 0
    """The generation whose result the workflow is given: a follow-up opens later ones."""
    retiring: bool = False
    """A revision takes the place of what runs: it ends without a result."""
    task: int = 0
    """The task that runs the generation."""
    exec: str | None = None
    """The execution that is current, from its admission to its fence."""
    attempt: int = 1
    launch: int = 0
    losses: int = 0
    hibernated: bool = False
    held: bool = False
    created: float = 0.0
    started: float | None = None
    pokes: int = 0
    """How often its task was told of something decided for it (see `pokes`)."""
    queued_for: str = ""
    """The provider that it waits for."""
    queued: int = 0
    """Place in the order of waiting for admission; 0: it does not wait."""
    model: str | None = None
    """The model that the last request used."""
    wanted: str | None = None
    """A model asked for by a send and not used yet."""
    switch_failed: str | None = None
    question: Question | None = None
    asked: dict[str, int] = {}
    """How often each question was asked in this generation."""
    deliveries: list[Delivery] = []
    notes: list[str] = []
    """Recorded for the next follow-up's opening."""
    waiting: Waiting | None = None
    last_fence: Fence | None = None
    active_ms: int = 0
    usage: Usage = msgspec.field(default_factory=Usage)
    """Of this generation."""
    spent: Usage = msgspec.field(default_factory=Usage)
    """Of the generations before this one."""
    status: CallStatus | None = None
    """How the latest generation was sealed."""
    gate: Literal["begun", "passed", "failed"] | None = None
    """Of this generation: a gate that began and is not known to have ended does not run again."""


class Execution(msgspec.Struct, kw_only=True):
    """One run of a generation in a live process; the row is there from admission until it is proven gone.

    Slots and memory are counted from these rows: there is no second book.
    """

    exec: str
    wid: str
    key: str
    generation: int
    nonce: str
    provider: str
    model: str
    thinking: str | None = None
    reserved: str | None = None
    """A second provider's slot, for a switch that is under way."""
    reserved_at: float | None = None
    kind: Literal["host", "gate"] = "host"
    state: Literal["admitted", "spawned", "begun", "fencing"] = "admitted"
    admitted: float = 0.0
    begun: float | None = None
    pid: int | None = None
    started: str | None = None
    """The process's start time as the kernel tells it: with the pid it means one process for ever."""
    boot: str = ""
    tracked: list[tuple[int, str]] = []
    """Descendants that were seen, by pid and start time."""
    fence_failed: float | None = None
    session: str | None = None
    """Of the workflow's origin, for listings."""


class Workflow(msgspec.Struct, kw_only=True):
    """One accepted run."""

    wid: str
    request: str
    sender: str
    form: Literal["single", "tasks", "chain", "script"]
    cwd: str
    created: float
    digest: str
    revision: int = 1
    name: str | None = None
    origin: str | None = None
    """The parent session that gets the notices."""
    listed: str | None = None
    """A session whose list shows it, without notices."""
    labels: dict[str, str] = {}
    status: WorkflowStatus = "running"
    reason: str | None = None
    """Why it is parked or failed."""
    held: bool = False
    """Nothing more is dispatched, until it is released."""
    paused: bool = False
    """What runs is cut off, too."""
    stopping: bool = False
    parks: int = 0
    """How often it was parked."""
    task: int = 0
    ended: float | None = None
    budget: dict[str, float] = {}
    budget_reached: bool = False
    max_calls: int = 300
    calls: list[str] = []
    """Keys, in the order of their first proposal."""
    open: list[str] = []
    """Keys of calls with a generation that is not sealed."""
    skipped: list[str] = []
    planned: int | None = None
    """How many calls there will be, where that is known before."""
    result: Any = None
    error: str | None = None
    emitted: list[Any] = []
    """The newest values that the script emitted; at most 100."""


class Pins(msgspec.Struct, kw_only=True):
    """What a revision was admitted with; files may change afterwards."""

    steps: list[dict[str, Any]] = []
    """For tasks and chain: specs with their keys."""
    script: str | None = None
    """Digest of the script's bytes in the pins folder."""
    language: Literal["python", "javascript"] | None = None
    path: str | None = None
    args: Any = None
    inputs: dict[str, str] = {}
    agents: dict[str, Any] = {}
    """Definitions by name."""
    warnings: list[str] = []


class Journal(msgspec.Struct, kw_only=True):
    """What a script was told, in order; a replay must ask the same and is told the same."""

    incarnations: int = 0
    """How often the script was begun."""
    records: list[list[Any]] = []
    """["begin", now, seed], ["call" or "refused", key, fingerprint, generation], ["shown", key, generation, now, seed],
    ["now", seconds], ["random", number], ["emit", digest]"""


class Request(msgspec.Struct, kw_only=True):
    """An instruction, decided once. Stays when its workflow is pruned."""

    request: str
    kind: str
    digest: str
    sender: str
    at: float
    decided: float | None = None
    applied: bool | None = None
    reply: dict[str, Any] = {}
    wid: str | None = None
    key: str | None = None
    """The call that it was applied to."""
    targets: int = 0
    """It is one of a send to so many."""


class Notice(msgspec.Struct, kw_only=True):
    """Something for a parent session, identified by id and revision, given once."""

    id: str
    rev: int
    kind: Literal["question", "finished", "stall", "unknown", "budget", "conflict", "shared"]
    session: str
    wid: str
    key: str | None = None
    text: str = ""
    at: float = 0.0
    resolved: str | None = None
    """How it was settled; None: open."""
    presented: int = 0
    """The newest revision that its session has taken."""


class Event(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A milestone. The row's number is the cursor."""

    id: str
    cursor: str
    at: float
    type: str
    wid: str | None = None
    request: str | None = None
    labels: dict[str, str] = {}
    key: str | None = None
    gen: int | None = None
    call: str | None = None
    data: dict[str, Any] = {}


class Counters(msgspec.Struct, kw_only=True):
    """What is numbered, and who wrote it."""

    epoch: str = ""
    event: int = 0
    """The newest event."""
    dropped: int = 0
    """The newest event that was dropped."""
    queue: int = 0
    senders: dict[str, int] = {}
    """The next number of each sender."""


class Exhausted(msgspec.Struct, kw_only=True):
    """A provider whose usage window is used up."""

    provider: str
    since: float
    error: str
    next_try: float
    probe: str | None = None
    """The call that tries it."""


class Tombstone(msgspec.Struct, kw_only=True):
    """What is left of a pruned workflow."""

    wid: str
    status: WorkflowStatus
    ended: float | None
    request: str
    digest: str
    labels: dict[str, str] = {}
    deleted: bool = False
    """Whether its folder is gone."""


def _family(name: str, type: Any) -> Document[Any]:
    return document_family(f"agents.{name}", type, scope="session")


OutputDoc: Document[Any] = document_family("agents.output", str, scope="session")
"""By absolute path: the digest of what was written there last."""
CountersDoc: Document[Any] = Document("agents.counters", Counters, scope="session", initial=Counters)
WorkflowDoc = _family("workflow", Workflow)
"""By wid."""
LiveDoc = _family("live", dict)
"""By wid: workflows that are not ended, or have a generation open. The value is empty."""
EndedDoc = _family("ended", dict)
"""By `recent_key`: ended workflows, the newest first. The value is {"wid": …}."""
PinsDoc = _family("pins", Pins)
"""By `wid@revision`."""
JournalDoc = _family("journal", Journal)
"""By `wid@revision`."""
CallDoc = _family("call", Call)
"""By `wid/key`."""
ResultDoc = _family("result", Result)
"""By `wid/key@generation`."""
ExecutionDoc = _family("execution", Execution)
"""By execution id; only those that are not proven gone."""
RequestDoc = _family("request", Request)
"""By request id."""
NoticeDoc = _family("notice", Notice)
"""By notice id."""
OpenNoticeDoc = _family("open-notice", dict)
"""By `session/id`: notices that are open or not presented. The value is empty."""
EventDoc = _family("event", Event)
"""By `event_key` of its number."""
ExhaustedDoc = _family("exhausted", Exhausted)
"""By provider."""
TombstoneDoc = _family("tombstone", Tombstone)
"""By wid."""
BuriedDoc = _family("buried", dict)
"""By wid: pruned workflows whose rows and folders are not deleted yet. The value is empty."""


def event_key(number: int) -> str:
    """Sixteen digits, so that the order of keys is the order of events."""
    return f"{number:016d}"


def recent_key(at: float, wid: str) -> str:
    """Newest first: the order of keys is that of falling times."""
    return f"{10**14 - int(at * 1000):014d}/{wid}"
