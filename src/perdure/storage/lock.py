"""Who owns a store: an advisory lock on a file of its own beside the store, so that it ends with its process."""

import errno
import fcntl
import os
import socket
import struct
import time
import weakref
from typing import Any, Final

import msgspec

from perdure.base.errors import StorageError, StorageFull, StorageInUse, StorageReadOnly

_TEST_LOCK: Final = getattr(fcntl, "F_OFD_GETLK", None)
_SET_LOCK: Final = getattr(fcntl, "F_OFD_SETLK", None)
_FLOCK_STRUCT: Final = "hhqqi4x"
"""`struct flock` on 64-bit Linux: type, whence, start, length, pid."""

REMOTE_WITHOUT_LOCKS: Final = frozenset(
    {"fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone", "davfs", "fuse.davfs2"}
)
"""File systems over a network whose locks are not seen by other machines."""
LOCAL_LOCK_OPTIONS: Final = frozenset({"nolock", "nobrl", "local_lock=all", "local_lock=flock"})
"""Mount options of NFS and SMB by which a lock is not seen by other machines."""
REMOTE: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs"})

_held: "weakref.WeakSet[OwnerLock]" = weakref.WeakSet()


def lock_path(store: str | os.PathLike[str]) -> str:
    """The lock file of a store: beside the real file, whatever links lead to it."""
    return os.path.realpath(store) + ".lock"


def read_owner(store: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Who owns the store right now (`pid`, `started`, `host`, `control`), or None. Takes no lock."""
    path = lock_path(store)
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        owner = _read(descriptor)
        return owner if owner is not None and _is_held(descriptor, owner) else None
    finally:
        os.close(descriptor)


class OwnerLock:
    """Ownership of one store. The lock ends with `release`, and with the process however it ends.

    A forked child does not share it: the child's copy of the descriptor is closed in the moment of the fork.
    """

    def __init__(self, store: str | os.PathLike[str]) -> None:
        self.store = os.path.realpath(store)
        self.path = lock_path(store)
        self._descriptor: int | None = None
        self._owner: dict[str, Any] = {}

    @property
    def held(self) -> bool:
        """Whether this object owns the store, in this process."""
        return self._descriptor is not None

    def acquire(self) -> None:
        """Become the owner at once, or raise `StorageInUse` with the present owner. Never waits."""
        if self._descriptor is not None:
            raise StorageInUse(f"{self.store} is already open here", owner=dict(self._owner))
        _refuse_remote(self.store)
        descriptor = self._take()
        self._descriptor = descriptor
        _held.add(self)
        self._owner = {"pid": os.getpid(), "started": time.time(), "host": socket.gethostname(), "control": None}
        try:
            self._write()
        except OSError as error:
            self._forget()
            raise StorageFull(f"cannot write {self.path}: {error.strerror}", hint="make room on the disk") from error

    def publish(self, *, control: str | None) -> None:
        """Tell whoever asks where this owner listens (the address of its control socket)."""
        if self._descriptor is None:
            raise StorageError(f"{self.store} is not owned by this object")
        self._owner["control"] = control
        self._write()

    def __del__(self) -> None:
        self._forget()

    def release(self) -> None:
        """Give up ownership. May be called twice. The lock file stays: removing it would let two owners in."""
        descriptor, self._descriptor = self._descriptor, None
        _held.discard(self)
        if descriptor is None:
            return
        try:
            os.ftruncate(descriptor, 0)
        finally:
            os.close(descriptor)

    def _take(self) -> int:
        while True:
            try:
                descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            except OSError as error:
                raise _cannot_lock(self.path, error) from error
            try:
                self._lock(descriptor)
                if _same_file(descriptor, self.path):
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)  # somebody removed the file in between: what we hold locks nothing

    def _lock(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                owner = _read(descriptor) or {}
                who = f"process {owner['pid']} on {owner.get('host')}" if "pid" in owner else "another opener"
                raise StorageInUse(
                    f"{self.store} is in use by {who}", hint="close it there, or open it read-only", owner=owner
                ) from None
            raise StorageError(
                f"the file system of {self.path} has no working locks: {error.strerror}", hint="use a local disk"
            ) from error
        self._prove()
        if _SET_LOCK is not None:
            fcntl.fcntl(descriptor, _SET_LOCK, struct.pack(_FLOCK_STRUCT, fcntl.F_WRLCK, 0, 0, 0, 0))

    def _prove(self) -> None:
        """A file system may accept a lock and not keep it: a second try must fail."""
        probe = os.open(self.path, os.O_RDWR)
        try:
            fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
        finally:
            os.close(probe)
        raise StorageError(f"the file system of {self.path} grants a lock twice", hint="use a local disk")

    def _write(self) -> None:
        assert self._descriptor is not None
        text = msgspec.json.encode(self._owner)
        os.pwrite(self._descriptor, text, 0)
        os.ftruncate(self._descriptor, len(text))

    def _forget(self) -> None:
        """In a forked child: close the copy without unlocking, which would unlock the parent as well."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _forget_all() -> None:
    for lock in list(_held):
        lock._forget()
    _held.clear()


os.register_at_fork(after_in_child=_forget_all)


def _read(descriptor: int) -> dict[str, Any] | None:
    try:
        return msgspec.json.decode(os.pread(descriptor, 65536, 0), type=dict[str, Any])
    except (msgspec.DecodeError, OSError):
        return None


def _is_held(descriptor: int, owner: dict[str, Any]) -> bool:
    if _TEST_LOCK is not None:
        asked = struct.pack(_FLOCK_STRUCT, fcntl.F_WRLCK, 0, 0, 0, 0)
        try:
            kind = struct.unpack(_FLOCK_STRUCT, fcntl.fcntl(descriptor, _TEST_LOCK, asked))[0]
        except OSError:
            return _alive(owner)
        return bool(kind != fcntl.F_UNLCK)
    return _alive(owner)


def _alive(owner: dict[str, Any]) -> bool:
    """Where a lock cannot be tested without taking it: whether the process still exists."""
    try:
        os.kill(int(owner["pid"]), 0)
    except PermissionError:
        return True
    except (OSError, KeyError, ValueError):
        return False
    return True


def _same_file(descriptor: int, path: str) -> bool:
    try:
        named = os.stat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(descriptor), named)


def _cannot_lock(path: str, error: OSError) -> StorageError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return StorageError(f"there is no folder {os.path.dirname(path)}", hint="create it first")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StorageReadOnly(
            f"{path} may not be written: {error.strerror}", hint="open the store read-only, or change the permissions"
        )
    return StorageError(f"cannot open {path}: {error.strerror}")


def _refuse_remote(store: str, mounts: str = "/proc/self/mountinfo") -> None:
    kind, options = _mount_of(store, mounts)
    if kind in REMOTE_WITHOUT_LOCKS or (kind in REMOTE and options & LOCAL_LOCK_OPTIONS):
        raise StorageError(
            f"{store} lies on a network file system ({kind}) without working locks", hint="use a local disk"
        )


def _mount_of(store: str, mounts: str) -> tuple[str, frozenset[str]]:
    """Kind and options of the mount that holds the store; empty where the system does not tell."""
    best, kind, options = -1, "", frozenset[str]()
    try:
        with open(mounts, encoding="utf-8", errors="surrogateescape") as lines:
            for line in lines:
                left, _, right = line.partition(" - ")
                point = left.split()[4].encode("utf-8", "surrogateescape").decode("unicode_escape", "replace")
                inside = point == "/" or store == point or store.startswith(point + "/")
                if inside and len(point) >= best:
                    fields = right.split()
                    best, kind = len(point), fields[0]
                    options = frozenset(fields[2].split(",")) if len(fields) > 2 else frozenset()
    except (OSError, IndexError):
        return "", frozenset()
    return kind, options
