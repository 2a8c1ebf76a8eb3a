"""Why parked work runs again."""

import msgspec

from perdure.base.ids import TaskId


class _Wake(msgspec.Struct, frozen=True, gc=False, tag_field="reason"):
    pass


class Time(_Wake, frozen=True, tag="time"):
    """The time slept for has come; no signals were listed."""


class Expired(_Wake, frozen=True, tag="expired"):
    """The deadline passed before any of the listed signals came."""


class Signalled(_Wake, frozen=True, tag="signal"):
    """A listed key holds a value."""

    signal: str
    key: str


class Tasks(_Wake, frozen=True, tag="tasks"):
    """Tasks waited for have ended: those in `ended`."""

    ended: tuple[TaskId, ...]


WakeReason = Time | Expired | Signalled | Tasks
