"""What an orchestrator and the host of one execution say to each other: lines of JSON on a Unix socket.

The host listens on `StateRoot.host_socket(execution)`; it belongs to no orchestrator's pipes, so it goes on when one
dies, and the next one connects. The first line comes from the host: `Hello`. The orchestrator proves itself with the
nonce that the host got at its start. **Truth is the call's session**: what a host reports is news, and whatever was
missed is read from there after its end (see `evidence`).

Calls carry a number and are answered by a line with the same number. `begin` is the launch gate: before it a host
writes nothing, and a host that gets none within `BEGIN_SECONDS` exits with 0. Repeating a call is harmless: everything
that is delivered carries a request id and is stored once.
"""

from typing import Any, Final, Literal

import msgspec

PROTOCOL: Final = 1
BEGIN_SECONDS: Final = 30.0
FEATURES: Final = ("ask", "report", "budget", "model-guard", "park")


class Hello(msgspec.Struct, kw_only=True, tag="hello"):
    """The first line of a host on every connection."""

    protocol: int
    features: list[str]
    exec: str
    pid: int
    started: str
    begun: bool


class Begin(msgspec.Struct, kw_only=True, tag="begin"):
    """Start: the execution is current and not fenced. Stores the marker, hands over the task under its own identity
    (once for the generation, however many executions), resumes what was interrupted."""

    id: int
    nonce: str
    launch: "Launch"


class Launch(msgspec.Struct, kw_only=True):
    """What a host needs to run one generation. Everything in it is pinned."""

    exec: str
    wid: str
    key: str
    generation: int
    cwd: str
    model: str
    """provider:model; no other may be asked (`set-model` allows another one)."""
    task: str
    """The generation's opening: the task, or a follow-up with its notes before it."""
    task_id: str
    """Its request id: the same for all executions of the generation."""
    agent: dict[str, Any]
    """The pinned definition (see `agent_files.AgentDefinition`)."""
    tools: list[str] | None = None
    skills: list[str] = []
    schema: dict[str, Any] | None = None
    once: bool = False
    budget: dict[str, float] = {}
    thinking: str | None = None
    resumed: bool = False
    """An earlier execution of the generation was cut off: the model is told so, once for each interruption."""


class Deliver(msgspec.Struct, kw_only=True, tag="deliver"):
    """Hand in a message, in the order of sending. Answered by `Done` once it is stored in the session: `taken` (the
    news `took` tell when it has its place), `placed`, `interrupted`, or `held` if the run is over and nothing is taken
    any more.

    A `steer` goes to the next boundary, and interrupts a question that is waited on; a `notify` likewise but never
    while a question is open (the orchestrator holds it until then); a `follow-up` when the run would end.
    """

    id: int
    request: str
    kind: Literal["steer", "notify", "follow-up"]
    text: str


class Answered(msgspec.Struct, kw_only=True, tag="answer"):
    """The answer to an open question, delivered to the parked call. `Done.result` is what the signal said."""

    id: int
    request: str
    qid: str
    rev: int
    text: str


class Withdraw(msgspec.Struct, kw_only=True, tag="withdraw"):
    """Take a message back, or never take it: `withdrawn`, or `placed` if it has its place."""

    id: int
    request: str


class SetModel(msgspec.Struct, kw_only=True, tag="set-model"):
    """From the next request on this model is used, and no other."""

    id: int
    request: str
    model: str


class Close(msgspec.Struct, kw_only=True, tag="close"):
    """Close the session without settling anything, and exit."""

    id: int


class Done(msgspec.Struct, kw_only=True, tag="done"):
    """The answer to the call of that number. `error` says why nothing was done."""

    id: int
    error: str | None = None
    result: Any = None


class News(msgspec.Struct, kw_only=True, tag="news", omit_defaults=True):
    """Something happened. No arguments, results or streamed text are in it."""

    what: Literal[
        "request",  # a model request starts: provider, model
        "answer",  # it ended: stop, error, usage
        "progress",  # something streamed
        "retry",  # the request failed and is asked again after a pause: error
        "tool",  # a tool call starts: name, call
        "tool-end",
        "question",  # qid, rev, text, task
        "question-closed",
        "took",  # the request of a delivery has been placed in the transcript
        "parked",  # nothing runs and nothing will without a delivery
        "active",  # it does again
        "settled",  # the generation's run has ended: read the evidence
        "refused",  # the guard stopped a request: wrong model, or the budget is reached
    ]
    at: float = 0.0
    provider: str = ""
    model: str = ""
    name: str = ""
    call: str = ""
    stop: str = ""
    error: str = ""
    code: str = ""
    """The structured class of a provider's error, where there is one."""
    input: int = 0
    output: int = 0
    cost: float = 0.0
    qid: str = ""
    rev: int = 0
    text: str = ""
    task: int = 0
    request: str = ""
    reason: str = ""


ToHost = Begin | Deliver | Answered | Withdraw | SetModel | Close
FromHost = Hello | Done | News


class Evidence(msgspec.Struct, kw_only=True):
    """What a call's session says about a generation; only what came after the marker of the execution counts for it.

    Read from the store, also while its host lives; the result is the same whoever reads.
    """

    marker: bool
    """The execution's marker is stored: the host did begin."""
    task_taken: bool
    """The generation's task has been submitted."""
    settled: bool
    """The task's run has ended."""
    stop: str | None = None
    """How the last answer ended."""
    text: str = ""
    """The final text: of a finished answer, not of an aborted or failed one."""
    report: dict[str, Any] | None = None
    """{outcome, summary, data}"""
    report_rejected: str | None = None
    """Why the last attempt to report was refused."""
    error: str | None = None
    """The provider's last error, if no good answer followed."""
    error_code: str | None = None
    unfinished: list[str] = []
    """Tools whose result never came, by name, without a question that is waited on."""
    question: dict[str, Any] | None = None
    """{qid, rev, text, task}: the open question, if the call waits on it."""
    budget_reached: bool = False
    """The durable receipt of the guard."""
    usage: dict[str, float] = {}
    """Of the generation: {input, output, costUsd}; each request once."""
    taken: list[str] = []
    """Requests of deliveries that the model was given, or will be with the result of a call. What only waits for its
    place is not among them: the next generation takes it out of the session's queue before it begins."""
    model: str | None = None
    entries: int = 0
    """New ones, as far as they were read."""
    damaged: list[int] = []
    """Entries that cannot be read, by number."""


def encode(line: ToHost | FromHost) -> bytes:
    """One line."""
    return msgspec.json.encode(line) + b"\n"


def decode_to_host(line: bytes) -> ToHost:
    """What an orchestrator said. Raises `msgspec.ValidationError` for anything else."""
    return msgspec.json.decode(line, type=ToHost)


def decode_from_host(line: bytes) -> FromHost:
    """What a host said."""
    return msgspec.json.decode(line, type=FromHost)
