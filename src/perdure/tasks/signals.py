"""Signals: typed values delivered from outside to a live task, and the keys that a sleep waits for.

A key holds nothing, a value, or the mark that its deadline passed. It lies with the task's memos, so it lives exactly
as long as the task: through checkpoints, restarts, hand-overs and migrations, and is gone at the end.
"""

from collections.abc import Callable
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec

from perdure.base import jsonvalue
from perdure.base.errors import Error, InvalidDecision, InvalidDefinition, InvalidValue, TooNew
from perdure.base.jsonvalue import Json
from perdure.base.typed import OURS, codec
from perdure.storage.records import Task
from perdure.tasks.states import SignalKey, Sleeping, awakened, decode_memos, encode_memos, state_of, with_memo
from perdure.tasks.wakes import Expired, Signalled, Time

T = TypeVar("T")

SignalResult = Literal["delivered", "duplicate", "invalid", "closed", "not_found"]
"""What became of a value: stored; the key held one already; it does not fit the signal's type; the task has ended, is
ending or being aborted, or the key's deadline has passed; there is no such task."""

MEMO_PREFIX: Final = "perdure.signal."
ASKED_PREFIX: Final = "perdure.asked."
LARGE_BYTES: Final = 64 * 1024
"""A value above this is stored, and reported: the task's record is rewritten with it at every step. Send a reference
to what is large."""


class LargeSignal(Error):
    """A value was stored that is too large to be carried through every step of its task."""

    code = "large_signal"
    certain_by_default = "stored"

    def __init__(self, size: int) -> None:
        super().__init__(
            f"a value of {size:,} bytes is rewritten with every step of its task",
            hint="send a reference to what is large",
        )


class Signal(Generic[T]):
    """A kind of value that can be delivered to tasks: a name, a version, a type.

    `migrate(value, from_version)` turns a stored value of an older version into one of today's, when it is read.
    """

    def __init__(
        self,
        name: str,
        *,
        version: int = 1,
        schema: type[T],
        migrate: Callable[[Any, int], T] | None = None,
    ) -> None:
        _check_name(name, version)
        try:
            self._codec = codec(schema, where=f"signal {name}", now=not name.startswith(OURS))
        except TypeError as error:
            raise InvalidDefinition(f"signal {name}: {error}") from error
        self.name = name
        self.version = version
        self.schema: Any = schema
        self._migrate = migrate

    def __repr__(self) -> str:
        return f"Signal({self.name!r}, version={self.version})"

    def key(self, key: str) -> SignalKey[T]:
        """The key of one wait: each wait for this signal in a task uses its own."""
        check_key(key)
        return SignalKey(self.name, key)

    def to_json(self, value: Any) -> Json:
        """The value as it is stored. Raises `InvalidValue`; nothing is converted."""
        return self._codec.to_json(value)

    def from_raw(self, data: Json) -> Json:
        """JSON from outside, checked. Raises `InvalidValue`."""
        return self._codec.to_json(self._codec.from_json(data))

    def from_stored(self, data: Json, version: int) -> T:
        """A stored value as today's type. Raises `TooNew` for a newer version, `InvalidDefinition` for an older one
        without `migrate`, `InvalidValue` if the result does not fit."""
        if version > self.version:
            raise TooNew(f"a value of signal {self.name} was stored by version {version}, this code has {self.version}")
        if version < self.version:
            if self._migrate is None:
                raise InvalidDefinition(
                    f"signal {self.name} has no migrate from version {version} to {self.version}",
                    hint="Signal(…, migrate=)",
                )
            migrated: T = self._codec.from_json(self._codec.to_json(self._migrate(jsonvalue.copied(data), version)))
            return migrated
        value: T = self._codec.from_json(jsonvalue.copied(data))
        return value


class SignalState(Generic[T]):
    """What a key came to: its value, or `expired`."""

    __slots__ = ("_value", "expired")

    def __init__(self, value: T | None, *, expired: bool) -> None:
        self._value = value
        self.expired = expired
        """The deadline of a sleep on the key passed before a value came."""

    @property
    def value(self) -> T:
        """The value. Raises `InvalidDecision` if the key expired: look at `expired` first."""
        if self.expired:
            raise InvalidDecision("the key expired and holds no value", hint="look at .expired first")
        return self._value  # type: ignore[return-value]

    def __repr__(self) -> str:
        return "SignalState(expired)" if self.expired else f"SignalState({self._value!r})"


class _Held(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What lies in the memo of a key."""

    value: Any = None
    version: int = 0
    """0: the key expired."""
    used: bool = False
    """A wake has used it: it serves no other wait."""


def read(record: Task, signal: Signal[T], key: str) -> SignalState[T] | None:
    """What a key of a live task holds; None while nothing came."""
    check_key(key)
    held = _held(decode_memos(record.memos), signal.name, key)
    if held is None:
        return None
    if not held.version:
        return SignalState(None, expired=True)
    return SignalState(signal.from_stored(held.value, held.version), expired=False)


def deliver(record: Task, signal: Signal[Any], key: str, value: Json, now: int) -> tuple[SignalResult, Task]:
    """A checked value arrives at a task, at `now` in milliseconds: what became of it, and the record after it. A sleep
    that it ends is over in the record; one whose deadline has passed is, too."""
    memos = decode_memos(record.memos)
    held = _held(memos, signal.name, key)
    if held is not None:
        return ("duplicate" if held.version else "closed"), record
    if record.status == "sleeping":
        state: Sleeping = state_of(record)
        if _passed(state, now) and any(k.signal == signal.name and k.key == key for k in state.signals):
            return "closed", awakening(record, now) or record
    memos[_memo(signal.name, key)] = msgspec.to_builtins(_Held(value, signal.version))
    record = msgspec.structs.replace(record, memos=encode_memos(memos))
    if record.status == "sleeping":
        record = awakening(record, now) or record
    return "delivered", record


def is_closed(record: Task) -> bool:
    """Whether a task takes no signals any more: it has ended, is ending, or is asked to stop."""
    return record.status in ("completing", "terminal") or record.abort_requested


def awakening(record: Task, now: int) -> Task | None:
    """The sleeping task made runnable, if one of its keys holds a value or its deadline has passed; else None.

    The first key in the order listed that holds an unused value wakes it, and is used then. A deadline closes all the
    listed keys that hold nothing.
    """
    state: Sleeping = state_of(record)
    memos = decode_memos(record.memos) if state.signals else {}
    for listed in state.signals:
        held = _held(memos, listed.signal, listed.key)
        if held is not None and held.version and not held.used:
            used = msgspec.structs.replace(held, used=True)
            memos[_memo(listed.signal, listed.key)] = msgspec.to_builtins(used)
            return awakened(_with(record, memos), Signalled(listed.signal, listed.key))
    if not _passed(state, now):
        return None
    for listed in state.signals:
        memos.setdefault(_memo(listed.signal, listed.key), msgspec.to_builtins(_Held()))
    return awakened(_with(record, memos), Expired()) if state.signals else awakened(record, Time())


def asked_again(record: Task, now: int) -> Task:
    """A sleep at a gate is over without a reason, unless a key or its deadline gives one."""
    return awakening(record, now) or awakened(record, None)


def check_keys(record: Task, keys: tuple[SignalKey[Any], ...]) -> None:
    """Refuse a sleep on a key that has woken the task, or that expired: it would end at once, for ever."""
    if not keys:
        return
    memos = decode_memos(record.memos)
    for listed in keys:
        held = _held(memos, listed.signal, listed.key)
        if held is not None and (held.used or not held.version):
            what = "has woken this task already" if held.used else "expired"
            raise InvalidDecision(
                f"the key {listed.signal}/{listed.key} {what}: one key serves one wait", hint="use another key"
            )


def note_asked(record: Task, keys: tuple[SignalKey[Any], ...], now: int) -> Task:
    """Keep with the task when each question of a sleep was first asked; a gate asks it again at every pass."""
    for listed in keys:
        if listed.question is not None:
            record = with_memo(record, f"{ASKED_PREFIX}{listed.signal}/{listed.key}", now)
    return record


def asked_at(record: Task, signal: str, key: str) -> int | None:
    """When a live task first asked under a key, in milliseconds; None if it never did."""
    found: int | None = decode_memos(record.memos).get(f"{ASKED_PREFIX}{signal}/{key}")
    return found


def keys_of(record: Task) -> list[dict[str, Any]]:
    """The keys that a live task holds something for, for people: signal, key, and what it is."""
    found = []
    for name, stored in decode_memos(record.memos).items():
        if name.startswith(MEMO_PREFIX):
            signal, _, key = name.removeprefix(MEMO_PREFIX).partition("/")
            held = msgspec.convert(stored, _Held)
            state = "expired" if not held.version else "used" if held.used else "unused"
            found.append({"signal": signal, "key": key, "state": state})
    return found


def _held(memos: dict[str, Json], signal: str, key: str) -> _Held | None:
    stored = memos.get(_memo(signal, key))
    return None if stored is None else msgspec.convert(stored, _Held)


def _with(record: Task, memos: dict[str, Json]) -> Task:
    return msgspec.structs.replace(record, memos=encode_memos(memos))


def _passed(state: Sleeping, now: int) -> bool:
    return state.until is not None and now >= state.until


def _memo(signal: str, key: str) -> str:
    return f"{MEMO_PREFIX}{signal}/{key}"


def _check_name(name: object, version: object) -> None:
    if not isinstance(name, str) or not name or "/" in name or not jsonvalue.is_strict(name):
        raise InvalidDefinition(f"a signal's name is a text without '/': {name!r}")
    if type(version) is not int or version < 1:
        raise InvalidDefinition(f"signal {name}: versions are whole numbers from 1, not {version!r}")


def check_key(key: object) -> None:
    """Refuse what names no wait."""
    if not isinstance(key, str) or not key or not jsonvalue.is_strict(key):
        raise InvalidValue(f"a key is a text that is not empty, not {key!r}")
