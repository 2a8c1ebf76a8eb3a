"""The one file descriptor of an owner: appending lines whole, flushing, reading back."""

import errno
import fcntl
import os
from typing import Final

from perdure.base.errors import StorageCorrupt, StorageError, StorageFull, StorageReadOnly, StorageUncertain

NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""What the system says where there is no more room: disk, quota, file size."""
_FULL_SYNC: Final = getattr(fcntl, "F_FULLFSYNC", None)
"""Where it exists, plain flushing leaves the data in the drive's own memory."""


class LineFile:
    """A file that only grows. `end` is the length of what is whole, `flushed` how much of that is on the disk."""

    def __init__(self, path: str, *, writable: bool) -> None:
        self.path = path
        flags = os.O_RDWR | os.O_CREAT if writable else os.O_RDONLY
        try:
            self._descriptor = os.open(path, flags | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise cannot(error, path) from error
        self.end = 0
        self.flushed = 0

    @property
    def descriptor(self) -> int:
        """For whoever reads it another way."""
        return self._descriptor

    def fetch(self, offset: int, length: int) -> bytes:
        """Bytes of a whole line."""
        try:
            found = os.pread(self._descriptor, length, offset)
        except OSError as error:
            raise cannot(error, self.path) from error
        if len(found) != length:
            raise StorageCorrupt(f"{self.path} ends before byte {offset + length}", offset=offset)
        return found

    def append(self, line: bytes) -> None:
        """Write a line whole or leave the file as it was: `StorageFull`, `StorageError`; `StorageUncertain` if not."""
        left = memoryview(line)
        at = self.end
        try:
            while left:
                written = os.pwrite(self._descriptor, left, at)
                at, left = at + written, left[written:]
        except OSError as error:
            self._take_back(error)
            raise cannot(error, self.path) from error
        self.end += len(line)

    def flush(self, end: int) -> None:
        """Everything up to `end` is on the disk once this returns. Raises `StorageUncertain`."""
        try:
            flush_descriptor(self._descriptor)
        except OSError as error:
            raise uncertain(error, self.path) from error
        self.flushed = max(self.flushed, end)

    def cut(self, end: int) -> None:
        """Drop everything behind `end`."""
        try:
            os.ftruncate(self._descriptor, end)
        except OSError as error:
            raise cannot(error, self.path) from error

    def close(self) -> None:
        """Let go of it. May be called twice."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _take_back(self, error: OSError) -> None:
        try:
            os.ftruncate(self._descriptor, self.end)
        except OSError:
            raise uncertain(error, self.path) from error


def flush_descriptor(descriptor: int) -> None:
    """Wait until what was written is on the disk."""
    if _FULL_SYNC is not None:
        fcntl.fcntl(descriptor, _FULL_SYNC)
    elif hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:
        os.fsync(descriptor)


def cannot(error: OSError, path: str) -> StorageError:
    """A failure that certainly had no effect."""
    if error.errno in NO_ROOM:
        return StorageFull(f"no room on the disk for {path}", hint="make room and try again")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StorageReadOnly(f"{path} may not be written: {error.strerror}", hint="open it read-only")
    return StorageError(f"{path} failed: {error.strerror}")


def uncertain(error: OSError, path: str) -> StorageUncertain:
    """A line may be stored or not."""
    return StorageUncertain(
        f"a commit to {path} failed midway: {error.strerror}",
        hint="open the session anew; it goes on from what is stored",
    )
