"""What SQLite says, in our tree of errors."""

import errno
from typing import Final

import apsw

from perdure.base.errors import (
    Error,
    StorageBusy,
    StorageCorrupt,
    StorageError,
    StorageFull,
    StorageReadOnly,
    StorageRejected,
    StorageUncertain,
)

NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""What the system says where there is no more room: disk, quota, file size."""

REFUSED: Final = (
    apsw.ConstraintError,
    apsw.MismatchError,
    apsw.TooBigError,
    apsw.BindingsError,
    KeyError,
    OverflowError,
    TypeError,
    UnicodeError,
)
"""A batch that does not fit: doubled ids, words that are none of ours, values that cannot be stored."""


def no_room(error: BaseException, connection: apsw.Connection) -> bool:
    """Whether a failure means that there is no room on the disk."""
    if isinstance(error, apsw.FullError):
        return True
    return isinstance(error, apsw.IOError) and connection.system_errno in NO_ROOM


def translate(error: BaseException, connection: apsw.Connection | None, where: str) -> Error:
    """An error as ours, for a batch that certainly had no effect, a read, or an open."""
    if isinstance(error, Error):
        return error
    if connection is not None and no_room(error, connection):
        return StorageFull(f"no room on the disk for {where}", hint="make room and try again")
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return StorageBusy(f"another process kept {where} locked", hint="close what holds it and try again")
    if isinstance(error, apsw.NotADBError | apsw.CorruptError):
        return StorageCorrupt(f"{where} is damaged or no store of ours: {error}", hint="restore it from a copy")
    if isinstance(error, apsw.ReadOnlyError | apsw.PermissionsError | apsw.AuthError):
        return StorageReadOnly(f"{where} may not be written: {error}", hint="open it read-only")
    if isinstance(error, apsw.CantOpenError):
        return StorageError(f"{where} cannot be opened: {error}")
    if isinstance(error, REFUSED):
        return StorageRejected(f"the commit does not fit {where}: {type(error).__name__}: {error}")
    return StorageError(f"{where} failed: {type(error).__name__}: {error}")


def uncertain(error: BaseException, where: str) -> StorageUncertain:
    """The commit may be stored or not."""
    return StorageUncertain(
        f"a commit to {where} failed midway: {error}", hint="open the session anew; it goes on from what is stored"
    )
