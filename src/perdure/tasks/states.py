"""The state of a task, typed, and the pure transitions between states: from record and event to the next record."""

from typing import Any, Final, Generic, Literal, TypeVar

import msgspec

from perdure.base import jsonvalue
from perdure.base.errors import InvalidDecision, InvalidValue, StorageCorrupt
from perdure.base.ids import ConversationId, TaskId
from perdure.base.jsonvalue import Json
from perdure.storage.records import Task, TaskStatus
from perdure.tasks.outcomes import AnyOutcome, Faulted
from perdure.tasks.wakes import WakeReason

Policy = Literal["fail_fast", "all_settled", "any"]
RESERVED_MEMOS: Final = "perdure."
T = TypeVar("T")


class Question(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What a person is asked while a task sleeps. It is open exactly as long as the task sleeps on its key."""

    text: str
    choices: tuple[str, ...] = ()
    """The answers there are; none: any text."""
    kind: str = "question"
    """How surfaces show it: "question" is answered by a text, "approval" by yes or no."""
    tool: str | None = None
    """The tool whose call is to be approved."""
    arguments: Any = None
    """The arguments that are to be approved, as JSON."""


class SignalKey(msgspec.Struct, Generic[T], frozen=True, gc=False, omit_defaults=True):
    """The key of one wait for a signal, whose values are of type `T`."""

    signal: str
    key: str
    question: Question | None = None
    """What a person is asked while a sleep on the key lasts."""


QUESTION_BYTES: Final = 64 * 1024
"""A question is rewritten with every step of its task and sent to everyone who watches; more nobody reads."""


def check_signal_key(key: Any) -> None:
    """Refuse what no signal has made: stored, it would be waited for in vain, or stand for another signal's key."""
    texts: tuple[Any, ...] = (key.signal, key.key) if isinstance(key, SignalKey) else ()
    if not texts or not all(isinstance(text, str) and text and jsonvalue.is_strict(text) for text in texts):
        raise InvalidDecision("sleep takes a list of signal keys", hint='write Token.key("done")')
    if "/" in key.signal:
        raise InvalidDecision(f"no signal has the name {key.signal!r}", hint='write Token.key("done")')
    if key.question is not None:
        check_question(key.question)


def check_question(question: Any) -> None:
    """Refuse a question that could not be stored or shown."""
    if not isinstance(question, Question) or not isinstance(question.choices, tuple | list):
        raise InvalidValue(f"not a question: {question!r:.200}")
    texts: list[Any] = [question.text, question.kind, *question.choices]
    texts += [] if question.tool is None else [question.tool]
    if not all(isinstance(text, str) and text.strip() and jsonvalue.is_strict(text) for text in texts):
        raise InvalidValue(f"a question, its kind and its choices are texts: {question!r:.200}")
    jsonvalue.check(question.arguments, path="/arguments")
    if (size := len(_encode(question))) > QUESTION_BYTES:
        raise InvalidValue(f"a question of {size:,} bytes; at most {QUESTION_BYTES:,}", hint="show its beginning")


class Checkpoint(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Where a task goes on: a phase and its arguments."""

    phase: str
    arguments: dict[str, Any] = {}


class _State(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename={"checkpoint": "at"}):
    pass


class Pending(_State, frozen=True, gc=False):
    """Could run. `restarts` counts the opens that found it running without progress since. `cut`: it was running at
    this checkpoint when its process ended or closed, so its code may have acted."""

    checkpoint: Checkpoint
    wake: WakeReason | None = None
    restarts: int = 0
    cut: bool = False


class Running(_State, frozen=True, gc=False):
    """Its code runs, or ran when the process ended. `restarts` and `cut` as in `Pending`."""

    checkpoint: Checkpoint
    wake: WakeReason | None = None
    restarts: int = 0
    cut: bool = False


class Waiting(_State, frozen=True, gc=False):
    """Parked until tasks end."""

    checkpoint: Checkpoint
    on: tuple[TaskId, ...]
    policy: Policy


class Sleeping(_State, frozen=True, gc=False):
    """Parked until a time (milliseconds), signals, or both."""

    checkpoint: Checkpoint
    until: int | None = None
    signals: tuple[SignalKey[Any], ...] = ()
    gate: bool = False
    """It sleeps before anything was done: whoever changes the code, or opens the session, lets it look again."""


class Completing(_State, frozen=True, gc=False):
    """Its work is over; the outcome is held until what it owns has ended."""

    outcome: AnyOutcome


class Terminal(_State, frozen=True, gc=False):
    """It has ended."""

    outcome: AnyOutcome


State = Pending | Running | Waiting | Sleeping | Completing | Terminal

_TYPES: dict[str, Any] = {
    "pending": Pending,
    "running": Running,
    "waiting": Waiting,
    "sleeping": Sleeping,
    "completing": Completing,
    "terminal": Terminal,
}
_STATUS: dict[type, TaskStatus] = {cls: status for status, cls in _TYPES.items()}  # type: ignore[misc]
_decoders = {status: msgspec.json.Decoder(cls) for status, cls in _TYPES.items()}
_memos_decoder = msgspec.json.Decoder(dict[str, Any])
_encode = msgspec.json.Encoder().encode
_replace = msgspec.structs.replace


STATES_KNOWN: Final = 1024
"""States kept beside their encoded form: most are read again in the commits right after the one that wrote them."""
STATE_KNOWN_BYTES: Final = 2048
"""A larger state is decoded again: the cache is for the many small ones."""
_known: dict[tuple[str, bytes], Any] = {}


def state_of(record: Task) -> Any:
    """The typed state of a stored task. Raises `StorageCorrupt` if what is stored is none."""
    known = _known.get((record.status, record.state))
    if known is not None:
        return known
    try:
        return _decoders[record.status].decode(record.state)
    except (msgspec.MsgspecError, KeyError) as error:
        raise StorageCorrupt(
            f"task {record.id} is stored as {record.status}, but its state is none: {error}"
        ) from error


def apply_state(record: Task, state: State) -> Task:
    """The record with another state."""
    kind = type(state)
    encoded = _encode(state)
    if len(encoded) <= STATE_KNOWN_BYTES:
        if len(_known) >= STATES_KNOWN:
            _known.clear()
        _known[(_STATUS[kind], encoded)] = state
    on: tuple[TaskId, ...] = state.on if kind is Waiting else ()  # type: ignore[union-attr]
    sleeping = kind is Sleeping
    deadline = state.until if sleeping else None  # type: ignore[union-attr]
    return Task(
        record.id,
        record.conversation,
        record.kind,
        record.version,
        _STATUS[kind],
        record.input,
        encoded,
        record.memos,
        record.owner,
        record.background,
        record.abort_requested,
        on,
        deadline,
        sleeping and state.gate,  # type: ignore[union-attr]
        record.started_at,
        record.ended_at,
    )


def new_task(
    id: TaskId,
    conversation: ConversationId,
    kind: str,
    version: int,
    input: bytes,
    state: Pending,
    *,
    owner: TaskId | None,
    background: bool,
    started_at: int,
) -> Task:
    """The record of a task that is about to be created."""
    return Task(
        id,
        conversation,
        kind,
        version,
        "pending",
        input,
        _encode(state),
        owner=owner,
        background=background,
        started_at=started_at,
    )


def outcome_of(record: Task) -> AnyOutcome:
    """How a task ended, or is about to."""
    state = state_of(record)
    if not isinstance(state, Terminal | Completing):
        raise InvalidDecision(f"task {record.id} has not ended")
    return state.outcome


# transitions


def reserved(record: Task) -> Task:
    """A pending task begins to run, with its wake."""
    state: Pending = _standing(record, "pending")
    return apply_state(record, Running(state.checkpoint, state.wake, state.restarts, state.cut))


def awakened(record: Task, reason: WakeReason | None) -> Task:
    """A parked task becomes runnable at its checkpoint. A wake is progress."""
    return apply_state(record, Pending(_standing(record, "waiting", "sleeping").checkpoint, reason))


def gone_to(record: Task, checkpoint: Checkpoint) -> Task:
    """A running task goes on to another checkpoint. The same one again would spin without progress."""
    state: Running = _standing(record, "running")
    if _same(state.checkpoint, checkpoint):
        raise InvalidDecision(
            f"goto the same phase ({checkpoint.phase}) with the same arguments is no progress",
            hint="change an argument (a counter), sleep, or finish",
        )
    return apply_state(record, Pending(checkpoint))


def checkpointed(record: Task, checkpoint: Checkpoint) -> Task:
    """A running task stores another checkpoint and stays in its invocation. It ends the wake."""
    state: Running = _standing(record, "running")
    if _same(state.checkpoint, checkpoint):
        return record
    return apply_state(record, Running(checkpoint))


def reopened(record: Task, limit: int) -> Task:
    """The process that ran it is gone: back to its checkpoint with its wake; too often without progress: faulted."""
    state: Running = _standing(record, "running")
    if state.restarts >= limit:
        message = f"found running at {limit + 1} opens in a row without progress at phase {state.checkpoint.phase}"
        return hold(record, Faulted({"message": message, "code": "restart_limit"}))
    return apply_state(record, Pending(state.checkpoint, state.wake, state.restarts + 1, cut=True))


def closed(record: Task) -> Task:
    """The session closes in good order: back to its checkpoint; no restart is counted."""
    state: Running = _standing(record, "running")
    return apply_state(record, Pending(state.checkpoint, state.wake, state.restarts, cut=True))


def hold(record: Task, outcome: AnyOutcome) -> Task:
    """The work is over: the outcome is held until what the task owns has ended. The first outcome stands."""
    if record.status in ("completing", "terminal"):
        raise InvalidDecision(f"task {record.id} is {record.status}: its outcome stands")
    return apply_state(record, Completing(outcome))


def end(record: Task, outcome: AnyOutcome, now: int) -> Task:
    """The end, at `now` in milliseconds: memos are gone."""
    if record.status == "terminal":
        raise InvalidDecision(f"task {record.id} has ended: its outcome stands")
    ended = apply_state(record, Terminal(outcome))
    return _replace(ended, memos=None, ended_at=now)


def mark_abort(record: Task) -> Task:
    """The durable mark that asks a task to stop. One that has it, or has ended, stays as it is."""
    return record if record.abort_requested or record.status == "terminal" else _replace(record, abort_requested=True)


def _standing(record: Task, *statuses: TaskStatus) -> Any:
    """The state of a task that an event may concern; every other status is a mistake of the caller."""
    if record.status not in statuses:
        raise InvalidDecision(f"task {record.id} is {record.status}, not {' or '.join(statuses)}")
    return state_of(record)


def _same(one: Checkpoint, other: Checkpoint) -> bool:
    """Equal as stored: JSON tells 1, 1.0 and true apart, Python's == does not."""
    return one == other and jsonvalue.canonical(one.arguments) == jsonvalue.canonical(other.arguments)


# memos


def decode_memos(memos: bytes | None) -> dict[str, Json]:
    """The small values stored with a live task."""
    return {} if memos is None else _memos_decoder.decode(memos)


def encode_memos(memos: dict[str, Json]) -> bytes | None:
    """The memos as they are stored; None where there are none."""
    return _encode(memos) if memos else None


def with_memo(record: Task, name: str, value: Json) -> Task:
    """The record with one more memo; the first writer of a name wins. None would be no memo, and is refused."""
    if value is None:
        raise InvalidValue(f"the memo {name!r} cannot be None: that is what an absent one reads as")
    memos = decode_memos(record.memos)
    if name in memos:
        return record
    memos[name] = value
    return _replace(record, memos=_encode(memos))


def check_memo_name(name: object) -> None:
    """Refuse names that are not the user's."""
    if not isinstance(name, str) or not name or not jsonvalue.is_strict(name):
        raise InvalidValue("a memo's name is a text that is not empty")
    if name.startswith(RESERVED_MEMOS):
        raise InvalidValue(f"memo names that begin with {RESERVED_MEMOS!r} are reserved", hint="choose another prefix")
