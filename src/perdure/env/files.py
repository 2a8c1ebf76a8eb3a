"""Files of the machine that this runs on: ranged reads, whole-or-nothing writes. Blocking; callers use a thread.

Only the standard library, and no newer Python than 3.9: this is also sent to the far side of a connection. Errors are
OSError and ValueError; what is no regular file is ENXIO.
"""

import contextlib
import errno
import os
import stat as modes
from typing import Literal

Kind = Literal["file", "directory", "link", "other"]
Stat = tuple[Kind, int, float]
"""Kind, size in bytes, time of the last change."""


def read(path: str, offset: int, limit: int | None) -> bytes:
    """Bytes of a file from `offset`, at most `limit`; empty behind its end. Pipes and devices are refused."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe without writer would block
    try:
        _check_regular(os.fstat(descriptor), path)
        with open(descriptor, "rb", closefd=False) as file:
            file.seek(offset)
            return file.read(-1 if limit is None else limit)
    finally:
        os.close(descriptor)


def write(path: str, data: bytes) -> None:
    """Replace a file as a whole: written without a name, flushed, then given its name. Missing folders are made.

    Links are followed; mode and, where allowed, owner are kept. A crash leaves the old file or the new one. Other hard
    links to the old file keep the old content.
    """
    target = os.path.realpath(path)
    before = _existing(target, path)
    folder = os.path.dirname(target)
    os.makedirs(folder, exist_ok=True)
    beside = os.path.join(folder, f".perdure-{os.urandom(8).hex()}.tmp")
    try:
        _write_beside(folder, beside, data, before)
        os.replace(beside, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside)
        raise
    _flush_folder(folder)


def stat(path: str) -> Stat:
    """What is known of a path; a link is followed, a broken one is a link."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        found = os.lstat(path)
    return _kind_size_time(found)


def listing(path: str) -> list[tuple[str, Stat]]:
    """Names in a folder with what is known of them, by name; links are not followed. What vanishes is left out."""
    found = []
    with os.scandir(path) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                found.append((entry.name, _kind_size_time(entry.stat(follow_symlinks=False))))
    return sorted(found, key=lambda item: item[0])


def resolve(path: str) -> str:
    """The absolute path with links followed; the end of it need not exist."""
    if "\0" in path:
        raise ValueError("a path cannot contain a NUL character")
    return os.path.realpath(path)


def home() -> str:
    """The user's own folder."""
    return os.path.expanduser("~")


def under_home(path: str) -> str:
    """A path with `~` at its beginning taken for the user's own folder; a name like `~x` is a name."""
    return home() + path[1:] if path == "~" or path.startswith("~/") else path


def _check_regular(found: os.stat_result, path: str) -> None:
    if modes.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, "is a folder", path)
    if not modes.S_ISREG(found.st_mode):
        raise OSError(errno.ENXIO, "no regular file", path)


def _existing(target: str, path: str) -> os.stat_result | None:
    """The file that will be replaced. A rename does not ask for its permission, so that is done here."""
    try:
        found = os.stat(target)
    except FileNotFoundError:
        return None
    _check_regular(found, path)
    if not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, "permission denied", path)
    return found


def _write_beside(folder: str, beside: str, data: bytes, before: os.stat_result | None) -> None:
    """A new flushed file. It has no name until it is complete, where the file system can do that."""
    mode = 0o666 if before is None else 0o600  # a new file gets what the umask leaves
    nameless = True
    try:
        descriptor = os.open(folder, os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC, mode)
    except (OSError, AttributeError):  # the file system, or the system, has no such thing
        nameless = False
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with open(descriptor, "wb", buffering=0) as file:
        rest = memoryview(data)
        while rest:
            rest = rest[file.write(rest) :]
        if before is not None:
            with contextlib.suppress(PermissionError):
                os.fchown(descriptor, before.st_uid, before.st_gid)
            os.fchmod(descriptor, modes.S_IMODE(before.st_mode))  # after the owner, whose change clears bits
        os.fsync(descriptor)
        if nameless:
            _give_name(descriptor, folder, beside)


def _give_name(descriptor: int, folder: str, name: str) -> None:
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:  # a folder's descriptor, because only then the link to our open file is followed
        os.link(f"/proc/self/fd/{descriptor}", os.path.basename(name), dst_dir_fd=at, follow_symlinks=True)
    finally:
        os.close(at)


def _flush_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError:
        pass  # some file systems cannot flush a folder; the file itself is flushed
    finally:
        os.close(descriptor)


def _kind_size_time(found: os.stat_result) -> Stat:
    mode = found.st_mode
    if modes.S_ISREG(mode):
        return "file", found.st_size, found.st_mtime
    if modes.S_ISDIR(mode):
        return "directory", found.st_size, found.st_mtime
    return "link" if modes.S_ISLNK(mode) else "other", found.st_size, found.st_mtime
