"""The tree of errors.

Error                       every error of ours: what happened, what is certain now, what to do; a stable `code`
├─ Refused                  the caller's mistake: nothing was stored
│  ├─ InvalidValue          a value that is not strict JSON or does not fit its type; names the path
│  ├─ InvalidDefinition     a tool, task, document or extension that cannot be used as written
│  ├─ NotFound              no such conversation, entry, task, submission, name
│  ├─ NestedTransaction     a transaction opened by the code that already holds the line
│  ├─ InvocationEnded       a call on a transaction, run or context whose block or invocation has ended
│  ├─ InvalidDecision       a task decided twice, or not at all, or what it may not decide
│  ├─ OwnershipRefused      new work under an owner that has ended, is ending or is being aborted
│  ├─ RequestConflict       a request id that was used with other content
│  ├─ Busy                  `when_busy="reject"` on a busy conversation
│  └─ TooNew                stored by a newer version than this code understands
├─ StorageError             the store could not do what it was asked
│  ├─ StorageRejected       a batch that had no effect: certain
│  ├─ StorageFull           no room on the disk: had no effect
│  ├─ StorageBusy           another process held the store's lock for too long: had no effect
│  ├─ StorageInUse          another opener owns the store
│  ├─ StorageReadOnly       a store, or its folder, that may not be written
│  ├─ StorageCorrupt        what lies in the store is no store of ours, or is damaged
│  └─ StorageUncertain      a commit whose outcome is not known
├─ SessionClosed            the session was closed
├─ SessionPoisoned          a commit failed; nothing more can be stored before the session is opened anew
└─ Unanswered               a submission that ended without an answer: `reason`, `detail`
Rooms add their own leaves (models, env) below `Error`.
"""

from typing import ClassVar, Literal

Certain = Literal["stored", "not_stored", "unknown"]


class Error(Exception):
    """An error of ours. `certain` tells whether the asked-for change is stored; `hint` tells what to do."""

    code: ClassVar[str] = "error"
    certain_by_default: ClassVar[Certain] = "not_stored"

    def __init__(self, what: str, *, hint: str = "", certain: Certain | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint
        self.certain: Certain = certain or self.certain_by_default

    def __str__(self) -> str:
        return f"{self.what} ({self.hint})" if self.hint else self.what


class Refused(Error):
    """The caller asked for something that cannot be; nothing was stored."""

    code = "refused"


class InvalidValue(Refused):
    """A value that is not strict JSON or does not fit its type. `path` is a JSON pointer ("" is the root), `fault` says
    what is wrong there."""

    code = "invalid_value"

    def __init__(self, what: str, *, path: str = "", hint: str = "") -> None:
        super().__init__(f"{what} at {path}" if path else what, hint=hint)
        self.fault = what
        self.path = path


class InvalidDefinition(Refused):
    """A definition (tool, task, document, extension) that cannot be used as written."""

    code = "invalid_definition"


class NotFound(Refused):
    """No such record or name."""

    code = "not_found"


class NestedTransaction(Refused):
    """The code that holds the line asked for another transaction; it would wait for itself."""

    code = "nested_transaction"


class InvocationEnded(Refused):
    """A transaction, run or context was used after its block or invocation had ended."""

    code = "invocation_ended"


class InvalidDecision(Refused):
    """A task decided twice, not at all, or something it may not decide."""

    code = "invalid_decision"


class OwnershipRefused(Refused):
    """New work under an owner that has ended, is ending, or is being aborted."""

    code = "ownership_refused"


class RequestConflict(Refused):
    """The request id was used before with other content."""

    code = "request_conflict"


class Busy(Refused):
    """The conversation is busy and the caller asked not to wait."""

    code = "busy"


class TooNew(Refused):
    """Stored by a newer version than this code understands; left untouched."""

    code = "too_new"


class StorageError(Error):
    """The store could not do what it was asked."""

    code = "storage_error"


class StorageRejected(StorageError):
    """The store refused a batch; it had no effect."""

    code = "storage_rejected"


class StorageFull(StorageError):
    """No room on the disk. The batch had no effect."""

    code = "storage_full"


class StorageBusy(StorageError):
    """Another process held the store's write lock for longer than the bound. The batch had no effect."""

    code = "storage_busy"


class StorageInUse(StorageError):
    """Another opener owns the store. `owner` tells who: pid, start time, control socket."""

    code = "storage_in_use"

    def __init__(self, what: str, *, hint: str = "", owner: dict[str, object] | None = None) -> None:
        super().__init__(what, hint=hint)
        self.owner = owner or {}


class StorageReadOnly(StorageError):
    """The store, or its folder, may not be written."""

    code = "storage_read_only"


class StorageCorrupt(StorageError):
    """The file is no store of ours, or it is damaged. It was left untouched. `offset`: the byte where, if known."""

    code = "storage_corrupt"

    def __init__(self, what: str, *, hint: str = "", offset: int | None = None) -> None:
        super().__init__(what, hint=hint)
        self.offset = offset


class StorageUncertain(StorageError):
    """A commit failed in a way that leaves open whether it is stored."""

    code = "storage_uncertain"
    certain_by_default = "unknown"


class SessionClosed(Error):
    """The session was closed; nothing of this call was stored."""

    code = "session_closed"


class SessionPoisoned(Error):
    """A commit failed before; the session stores nothing more. Open it anew to go on from what is stored."""

    code = "session_poisoned"
    certain_by_default = "unknown"


class Unanswered(Error):
    """A submission ended without an answer. `reason` is a stable word, `detail` says more."""

    code = "unanswered"
    certain_by_default = "stored"

    def __init__(self, reason: str, detail: str | None = None) -> None:
        super().__init__(f"unanswered: {reason}" + (f": {detail}" if detail else ""))
        self.reason = reason
        self.detail = detail
